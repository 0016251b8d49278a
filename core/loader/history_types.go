package loader

import (
	"freshgo/core/history"
	"freshgo/core/sample"
)

// A history over a graph with types. What is pruned does not depend on types: a node whose row of a layer is kept needs no neighbour along any relation, and a
// row of features is read if any relation still asks for it. So package history sees a batch as one graph of all types and relations, in which the nodes of a hop
// are those of all types, and a node's in-edges those of all relations; and what it leaves becomes a batch with types again. Tables of levels are arranged by type,
// in the order of the graph, of each type the targets first: of one type this is the order that package history gives them. Candidates, ties and eviction follow
// that order, one ranking for a layer over all types.
//
// Cost, beside that of package history: three passes over nodes and edges of the batch as it was drawn, one of them with a random access to 4 bytes for each edge,
// and two over what is left.

// typedPruning is a batch with types on its way through package history.
type typedPruning struct {
	schema *schema
	plain  sections // of the batch as it was drawn

	whole  sample.Subgraph // that batch as one graph; its edges have their places in the flat batch as positions
	flat   []int32         // by node of whole: its place in the flat batch
	merged []int32         // by node of the flat batch: its place in whole
	typ    []int32         // by node of whole

	graph  sample.Subgraph // what is left, flat
	left   sections        // of graph
	number []int32         // by node of history.Pruned.Graph: its place in graph
	at     []int32         // by node of graph: its place in history.Pruned.Graph
	edge   []int32         // by edge of history.Pruned.Graph: its place among those of its relation
	done   []int64         // by node of history.Pruned.Graph: the edges that relations before had
	loaded []int32         // nodes of graph whose features are read, ascending
	levels []typedLevel
	part   history.Layer // the layer at hand of the relation at hand
}

// typedLevel is a history.Level arranged by type.
type typedLevel struct {
	history.Level
	first []int64 // the first row of each type, and the end
	dst   []int64 // of each type, the targets of the next layer: its first rows
	row   []int32 // by row of the history.Level as it was: its row here
	was   []int32 // the inverse
}

// merge makes whole of a flat batch.
func (t *typedPruning) merge(g *sample.Subgraph) {
	s, n := t.schema, len(g.Nodes)
	t.plain = s.cut(g)
	t.flat, t.merged, t.typ = grown(t.flat, n), grown(t.merged, n), grown(t.typ, n)
	w := &t.whole
	w.Nodes, w.Row, w.Pos = grown(w.Nodes, n), grown(w.Row, len(g.Row)), grown(w.Pos, len(g.Row))
	w.NodesPerHop, w.EdgesPerHop = make([]int64, s.hops+1), make([]int64, s.hops)
	v, inner := int32(0), 0
	for hop := range s.hops + 1 {
		inner = int(v)
		for typ := range s.types() {
			counts := g.NodesPerHop[typ*(s.hops+1) : (typ+1)*(s.hops+1)]
			from := t.plain.nodes[typ]
			for _, k := range counts[:hop] {
				from += k
			}
			for at := from; at < from+counts[hop]; at++ {
				t.flat[v], t.merged[at], t.typ[v], w.Nodes[v] = int32(at), v, int32(typ), g.Nodes[at]
				v++
			}
			w.NodesPerHop[hop] += counts[hop]
		}
	}
	w.Ptr = grown(w.Ptr, inner+1)
	clear(w.Ptr)
	for i, r := range s.relations {
		for hop := range s.hops {
			w.EdgesPerHop[hop] += g.EdgesPerHop[i*s.hops+hop]
		}
		ptr, base := g.Ptr[t.plain.ptr[i]:t.plain.ptr[i+1]], t.plain.nodes[r.target]
		for k := range t.plain.expanded[i] {
			w.Ptr[t.merged[base+k]+1] += ptr[k+1] - ptr[k]
		}
	}
	for v := range inner {
		w.Ptr[v+1] += w.Ptr[v]
	}
	t.done = append(t.done[:0], w.Ptr[:inner]...)
	for i, r := range s.relations {
		ptr, base, first := g.Ptr[t.plain.ptr[i]:t.plain.ptr[i+1]], t.plain.nodes[r.target], t.plain.edges[i]
		sources := t.merged[t.plain.nodes[r.source]:t.plain.nodes[r.source+1]]
		for k := range t.plain.expanded[i] {
			v := t.merged[base+k]
			to := t.done[v]
			for e := first + ptr[k]; e < first+ptr[k+1]; e++ {
				w.Row[to], w.Pos[to] = uint32(sources[g.Row[e]]), e
				to++
			}
			t.done[v] = to
		}
	}
}

// arrange puts the hidden levels of what was decided in the order of types.
func (t *typedPruning) arrange(out *history.Pruned) {
	t.levels = grown(t.levels, len(out.Levels))
	for l := 1; l < len(out.Levels); l++ {
		from, to := &out.Levels[l], &t.levels[l]
		to.arrange(t, from.Nodes, out.Layers[l].NumDst, func(v int32) int32 { return t.typ[v] })
		slots := grown(to.Slots, len(from.Nodes)) // of all rows at first
		for i := range slots {
			slots[i] = history.Miss
		}
		for i, at := range from.Hits {
			slots[to.row[at]] = from.Slots[i]
		}
		to.Computed, to.Hits = to.Computed[:0], to.Hits[:0]
		for row, slot := range slots {
			if slot == history.Miss {
				to.Computed = append(to.Computed, int32(row))
				continue
			}
			slots[len(to.Hits)] = slot
			to.Hits = append(to.Hits, int32(row))
		}
		to.Slots = slots[:len(to.Hits)]
	}
}

// arrange finds the row of each node of a level, of which the first so many are targets.
func (l *typedLevel) arrange(t *typedPruning, nodes []int32, targets int64, typ func(int32) int32) {
	types := t.schema.types()
	l.first, l.dst = grown(l.first, types+1), grown(l.dst, types)
	clear(l.first)
	clear(l.dst)
	l.Nodes, l.row, l.was = grown(l.Nodes, len(nodes)), grown(l.row, len(nodes)), grown(l.was, len(nodes))
	for i, v := range nodes {
		of := typ(v)
		l.first[of+1]++
		if int64(i) < targets {
			l.dst[of]++
		}
	}
	for of := range types {
		l.first[of+1] += l.first[of]
	}
	for i, v := range nodes {
		of := typ(v)
		row := l.first[of]
		l.row[i], l.was[row], l.Nodes[row] = int32(row), int32(i), v
		l.first[of]++
	}
	copy(l.first[1:], l.first) // each is where the next began
	l.first[0] = 0
}

// split makes graph of what is left, and the rest of the levels. g is the flat batch as it was drawn.
func (t *typedPruning) split(g *sample.Subgraph, out *history.Pruned) {
	t.splitNodes(g, out)
	t.splitEdges(g, out)
	t.levels[0].arrange(t, out.Levels[0].Nodes, out.Layers[0].NumDst, func(n int32) int32 { return t.typ[out.Kept[n]] })
	for l := range t.levels {
		level := &t.levels[l]
		for i, n := range out.Levels[l].Nodes {
			level.Nodes[level.row[i]] = t.number[n] - int32(t.left.nodes[t.typ[out.Kept[n]]])
		}
	}
}

// splitNodes numbers the nodes that are left in the order in which they were drawn.
func (t *typedPruning) splitNodes(g *sample.Subgraph, out *history.Pruned) {
	s := t.schema
	place := t.merged // nobody asks for it any more
	for i := range place {
		place[i] = -1
	}
	for n, v := range out.Kept {
		place[t.flat[v]] = int32(n)
	}
	t.number, t.at = grown(t.number, len(out.Kept)), t.at[:0]
	to := &t.graph
	to.Nodes, to.NodesPerHop = to.Nodes[:0], make([]int64, s.types()*(s.hops+1))
	at := 0
	for i, count := range g.NodesPerHop {
		for range count {
			if n := place[at]; n >= 0 {
				t.number[n] = int32(len(to.Nodes))
				to.Nodes, t.at = append(to.Nodes, g.Nodes[at]), append(t.at, n)
				to.NodesPerHop[i]++
			}
			at++
		}
	}
}

// splitEdges gives the relations their edges. Those of a node are by relation.
func (t *typedPruning) splitEdges(g *sample.Subgraph, out *history.Pruned) {
	s, from, to := t.schema, &out.Graph, &t.graph
	to.Ptr, to.Row, to.Pos = to.Ptr[:0], to.Row[:0], to.Pos[:0]
	to.EdgesPerHop = make([]int64, len(s.relations)*s.hops)
	t.left = s.cut(to) // of the nodes
	t.edge = grown(t.edge, len(from.Row))
	t.done = append(t.done[:0], from.Ptr[:len(from.Ptr)-1]...)
	for i, r := range s.relations {
		first, end := len(to.Row), t.plain.edges[i+1]
		to.Ptr = append(to.Ptr, 0)
		target := int(t.left.nodes[r.target])
		for hop := range s.hops {
			before := len(to.Row)
			for range to.NodesPerHop[r.target*(s.hops+1)+hop] {
				n := t.at[target]
				target++
				e := t.done[n]
				for ; e < from.Ptr[n+1] && from.Pos[e] < end; e++ {
					t.edge[e] = int32(len(to.Row) - first)
					to.Row = append(to.Row, uint32(int64(t.number[from.Row[e]])-t.left.nodes[r.source]))
					to.Pos = append(to.Pos, g.Pos[from.Pos[e]])
				}
				t.done[n] = e
				to.Ptr = append(to.Ptr, int64(len(to.Row)-first))
			}
			to.EdgesPerHop[i*s.hops+hop] = int64(len(to.Row) - before)
		}
	}
	t.left = s.cut(to)
}

// findWanted sets wanted, by node of the flat batch, and loaded.
func (t *typedPruning) findWanted(wanted []int32, out *history.Pruned) {
	for _, n := range out.Loaded {
		wanted[t.flat[out.Kept[n]]] = t.number[n]
	}
	t.loaded = t.loaded[:0]
	for _, to := range wanted {
		if to >= 0 {
			t.loaded = append(t.loaded, to)
		}
	}
}

// layer is the edges of layer l along relation i: sources are rows of the level below within their type, edges places among those of the relation. Relations are
// asked for in order; what it returns is valid until the next call.
func (t *typedPruning) layer(out *history.Pruned, l, i int) *history.Layer {
	from, below, part := &out.Layers[l-1], &t.levels[l-1], &t.part
	if i == 0 {
		t.done = append(t.done[:0], from.Ptr[:from.NumDst]...)
	}
	r, end := &t.schema.relations[i], t.plain.edges[i+1]
	base := int32(below.first[r.source])
	part.NumSrc, part.NumDst = below.first[r.source+1]-below.first[r.source], below.dst[r.target]
	part.Ptr, part.Source, part.Edge = append(part.Ptr[:0], 0), part.Source[:0], part.Edge[:0]
	for _, target := range below.was[below.first[r.target]:][:part.NumDst] { // the first rows of their type
		e := t.done[target]
		for ; e < from.Ptr[target+1] && out.Graph.Pos[from.Edge[e]] < end; e++ {
			part.Source = append(part.Source, below.row[from.Source[e]]-base)
			part.Edge = append(part.Edge, t.edge[from.Edge[e]])
		}
		t.done[target] = e
		part.Ptr = append(part.Ptr, int64(len(part.Source)))
	}
	return part
}

// cost is what loading a node's rows costs: nothing where its type has none.
func (t *typedPruning) cost(l *Loader) func(int64) float32 {
	costs := make([]float32, t.schema.types())
	for i := range l.tables {
		if !l.tables[i].byEdge {
			costs[l.tables[i].typ] = 1
		}
	}
	return func(node int64) float32 { return costs[sample.TypeOf(t.schema.first, node)] }
}

// saves brings the savings of a hidden layer's rows into the order of types.
func (t *typedPruning) saves(layer int, from *history.Level, saves []float32) {
	level := &t.levels[layer]
	byRow := make([]float32, len(level.row))
	for i, at := range from.Computed {
		byRow[level.row[at]] = saves[i]
	}
	for i, row := range level.Computed {
		saves[i] = byRow[row]
	}
}
