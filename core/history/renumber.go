package history

import "freshgo/core/sample"

// renumber makes the nodes of Pruned.Graph, their degrees and the places of their edges, and lists those to be loaded.
func (p *Pruner) renumber(g *sample.Subgraph, out *Pruned) {
	sub, layers := &out.Graph, len(out.Layers)
	loaded := out.Loaded[:0]
	n, v := 0, 0
	sub.Ptr[0] = 0
	for hop := range layers {
		first := n
		at := sub.Ptr[n]
		from := at
		for end := v + int(g.NodesPerHop[hop]); v < end; v++ {
			if p.needed[v] == 0 {
				continue
			}
			kept := int64(0)
			for l := range layers - hop {
				kept = max(kept, p.rows[l].Len(v))
			}
			at += int64(copy(sub.Pos[at:at+kept], g.Pos[g.Ptr[v]:]))
			if hop == 0 || p.needed[v] == inLevel0 {
				loaded = append(loaded, int32(n))
			}
			sub.Nodes[n], out.Kept[n], out.Degree[n] = g.Nodes[v], int32(v), int32(g.Ptr[v+1]-g.Ptr[v])
			p.id[v] = int32(n)
			n++
			sub.Ptr[n] = at
		}
		sub.NodesPerHop[hop], sub.EdgesPerHop[hop] = int64(n-first), at-from
	}
	sub.Ptr = sub.Ptr[:n+1]
	sub.Row, sub.Pos = sub.Row[:sub.Ptr[n]], sub.Pos[:sub.Ptr[n]]
	sub.NodesPerHop[layers] = int64(len(p.leaves))
	for _, v := range p.leaves {
		sub.Nodes[n], out.Kept[n], out.Degree[n] = g.Nodes[v], v, 0
		loaded = append(loaded, int32(n))
		n++
	}
	sub.Nodes, out.Degree, out.Kept, out.Loaded = sub.Nodes[:n], out.Degree[:n], out.Kept[:n], loaded
}

// number writes the nodes of a level, and the edges of the layer above it, in the numbers of Pruned.Graph, and the
// edges' sources as rows of the level. An edge that several layers have is written by each, alike.
func (p *Pruner) number(level *Level, layer *Layer, sub *sample.Subgraph) {
	places, inner := p.places, int32(len(p.id))
	leaf := place{row: int32(len(level.Nodes)), id: int32(len(sub.Ptr) - 1)} // the first
	for i, v := range level.Nodes {
		if v >= inner {
			leaf.row = int32(i)
			break
		}
		places[v] = place{row: int32(i), id: p.id[v]}
		level.Nodes[i] = p.id[v]
	}
	places[inner] = leaf
	for i := range level.Nodes[leaf.row:] {
		level.Nodes[int(leaf.row)+i] = leaf.id + int32(i)
	}
	for i := range layer.NumDst {
		from, end := layer.Ptr[i], layer.Ptr[i+1]
		first := sub.Ptr[level.Nodes[i]]
		source, edge, row := layer.Source[from:end], layer.Edge[from:end], sub.Row[first:][:end-from]
		for k, c := range source {
			known := min(c, inner)
			at, beyond := places[known], c-known // leaves follow the first one by one
			source[k], row[k], edge[k] = at.row+beyond, uint32(at.id+beyond), int32(first)+int32(k)
		}
	}
}
