package history

import (
	"slices"

	"freshgo/core/internal/reuse"
	"freshgo/core/sample"
)

// Build makes the remaining batch. Then the nodes of Tables are nodes of Graph, numbered within their types.
func (b *Batch) Build() {
	b.pruner.Build(b.merged, &b.out)
	if b.shape.Single() {
		b.graph, b.loaded = &b.out.Graph, b.out.Loaded
		b.left.set(&b.shape, b.graph)
		for l := range b.out.Levels {
			b.arrange(l, nil)
		}
		return
	}
	b.graph = &b.part
	b.splitNodes()
	b.splitEdges()
	b.left.set(&b.shape, b.graph)
	b.listLoaded()
	b.arrange(0, b.leftTypes)
	for l := range b.Tables {
		t := &b.Tables[l]
		for i, n := range b.out.Levels[l].Nodes {
			t.Nodes[t.row[i]] = b.number[n] - int32(b.left.nodes[b.leftTypes[n]])
		}
	}
}

// splitNodes gives the node types their nodes, of each hop in the order of Pruned.Graph. In the last hop that is the
// order in which the edges that are left name them, which does not depend on edges that are gone.
func (b *Batch) splitNodes() {
	from, to := &b.out.Graph, &b.part
	n := len(from.Nodes)
	b.number, b.of, b.leftTypes = reuse.Slice(b.number, n), reuse.Slice(b.of, n), reuse.Slice(b.leftTypes, n)
	to.Nodes, to.NodesPerHop = reuse.Slice(to.Nodes, n), reuse.Zeros(to.NodesPerHop, b.shape.Types()*(b.hops+1))
	first := 0
	for hop, count := range from.NodesPerHop {
		for k := range int(count) {
			typ := b.types[b.out.Kept[first+k]]
			b.leftTypes[first+k] = typ
			to.NodesPerHop[int(typ)*(b.hops+1)+hop]++
		}
		first += int(count)
	}
	b.next = append(b.next[:0], 0) // by type and hop: the place of the next node
	for i, count := range to.NodesPerHop {
		b.next = append(b.next, b.next[i]+count)
	}
	first = 0
	for hop, count := range from.NodesPerHop {
		for k := first; k < first+int(count); k++ {
			next := &b.next[int(b.leftTypes[k])*(b.hops+1)+hop]
			to.Nodes[*next], b.of[*next], b.number[k] = from.Nodes[k], int32(k), int32(*next)
			*next++
		}
		first += int(count)
	}
}

// splitEdges gives the relations their edges. Those of a node of Pruned.Graph are by relation.
func (b *Batch) splitEdges() {
	from, to := &b.out.Graph, &b.part
	to.Ptr, to.Row, to.Pos = to.Ptr[:0], to.Row[:0], to.Pos[:0]
	to.EdgesPerHop = reuse.Zeros(to.EdgesPerHop, len(b.shape.Relations)*b.hops)
	b.left.setNodes(&b.shape, to)
	b.edge = reuse.Slice(b.edge, len(from.Row))
	b.next = append(b.next[:0], from.Ptr[:len(from.Ptr)-1]...)
	for i, r := range b.shape.Relations {
		first, end := len(to.Row), b.plain.edges[i+1]
		to.Ptr = append(to.Ptr, 0)
		target := b.left.nodes[r.Target]
		for hop := range b.hops {
			before := len(to.Row)
			for range to.NodesPerHop[r.Target*(b.hops+1)+hop] {
				n := b.of[target]
				target++
				e := b.next[n]
				for ; e < from.Ptr[n+1] && from.Pos[e] < end; e++ {
					b.edge[e] = int32(len(to.Row) - first)
					to.Row = append(to.Row, uint32(int64(b.number[from.Row[e]])-b.left.nodes[r.Source]))
					to.Pos = append(to.Pos, b.drawn.Pos[from.Pos[e]])
				}
				b.next[n] = e
				to.Ptr = append(to.Ptr, int64(len(to.Row)-first))
			}
			to.EdgesPerHop[i*b.hops+hop] = int64(len(to.Row) - before)
		}
	}
}

// listLoaded lists the nodes whose features are read.
func (b *Batch) listLoaded() {
	b.reads = reuse.Zeros(b.reads, len(b.number))
	for _, n := range b.out.Loaded {
		b.reads[b.number[n]] = true
	}
	b.loaded = b.loaded[:0]
	for node, is := range b.reads {
		if is {
			b.loaded = append(b.loaded, int32(node))
		}
	}
}

// Graph returns the remaining batch, flat. It has no weights.
func (b *Batch) Graph() *sample.Subgraph { return b.graph }

// Loaded returns the nodes of Graph whose features are read, ascending: the seeds and the nodes of level 0.
func (b *Batch) Loaded() []int32 { return b.loaded }

// LoadedOf returns the loaded nodes of node type typ, and the first node of the type.
func (b *Batch) LoadedOf(typ int) (loaded []int32, first int32) {
	at := func(node int64) int {
		i, _ := slices.BinarySearch(b.loaded, int32(node))
		return i
	}
	first, end := int32(b.left.nodes[typ]), b.left.nodes[typ+1]
	return b.loaded[at(int64(first)):at(end)], first
}

// Places sets the place of each node that was drawn: its number in Graph if its features are read, else -1.
func (b *Batch) Places(places []int32) {
	for i := range places {
		places[i] = -1
	}
	if b.shape.Single() {
		for _, n := range b.out.Loaded {
			places[b.out.Kept[n]] = n
		}
		return
	}
	for _, n := range b.out.Loaded {
		places[b.flat[b.out.Kept[n]]] = b.number[n]
	}
}

// Layer returns the edges of layer l, 1 <= l <= len(Tables), along a relation: sources are rows of the table below
// within their type, edges are positions among the edges of the relation in Graph. Call it for the relations of a layer
// in order. The result is valid until the next call.
func (b *Batch) Layer(l, relation int) *Layer {
	from := &b.out.Layers[l-1]
	if b.shape.Single() {
		return from
	}
	if relation == 0 {
		b.next = append(b.next[:0], from.Ptr[:from.NumDst]...)
	}
	below, part := &b.Tables[l-1], &b.layer
	r, end := b.shape.Relations[relation], b.plain.edges[relation+1]
	base := int32(below.First[r.Source])
	part.NumSrc, part.NumDst = below.First[r.Source+1]-below.First[r.Source], below.Targets[r.Target]
	part.Ptr, part.Source, part.Edge = append(part.Ptr[:0], 0), part.Source[:0], part.Edge[:0]
	for _, target := range below.was[below.First[r.Target]:][:part.NumDst] { // the first rows of their type
		e := b.next[target]
		for ; e < from.Ptr[target+1] && b.out.Graph.Pos[from.Edge[e]] < end; e++ {
			part.Source = append(part.Source, below.row[from.Source[e]]-base)
			part.Edge = append(part.Edge, b.edge[from.Edge[e]])
		}
		b.next[target] = e
		part.Ptr = append(part.Ptr, int64(len(part.Source)))
	}
	return part
}

// Saves is Pruner.Saves in the order of the Computed rows of Tables. cost takes a global node number.
func (b *Batch) Saves(cost func(node int64) float32, saves [][]float32) error {
	if err := b.pruner.Saves(&b.out, cost, saves); err != nil || b.shape.Single() {
		return err
	}
	for l, of := range saves {
		t := &b.Tables[l+1]
		b.byRow = reuse.Slice(b.byRow, len(t.row))
		for i, at := range b.out.Levels[l+1].Computed {
			b.byRow[t.row[at]] = of[i]
		}
		for i, row := range t.Computed {
			of[i] = b.byRow[row]
		}
	}
	return nil
}

// Degrees returns the drawn in-edges of each node of Graph, and the number of self-loops among them, empty if there are
// none. ok is false for graphs with several node types or edge types, for which they are unknown. The normalization of
// GCN needs them, which is defined for edges among nodes of one type.
func (b *Batch) Degrees() (degrees, loops []int32, ok bool) {
	if !b.shape.Single() {
		return nil, nil, false
	}
	return b.out.Degree, b.countLoops(), true
}

func (b *Batch) countLoops() []int32 {
	g := b.drawn
	b.loops = reuse.Zeros(b.loops, len(b.out.Graph.Nodes))
	none := true
	for at, node := range b.out.Kept {
		if int(node) >= len(g.Ptr)-1 {
			continue
		}
		for _, source := range g.Row[g.Ptr[node]:g.Ptr[node+1]] {
			if int32(source) == node {
				b.loops[at]++
				none = false
			}
		}
	}
	if none {
		return nil
	}
	return b.loops
}
