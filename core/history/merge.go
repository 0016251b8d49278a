package history

import (
	"slices"

	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Pruning does not depend on types: a node whose row of a layer is kept needs no neighbour along any relation, and a
// row of features is read if any relation still needs it. So a Pruner sees a batch as one graph over all node types and
// relations: a hop has the nodes of all types, and a node has the in-edges of all relations, relation after relation.
// The remaining graph becomes a flat batch again (see core/sample). The tables of levels are arranged by node type, in
// the order of the graph, the targets of each type first. Candidates, ties and evictions follow that order, with one
// ranking of a layer over all types.
//
// With one node type and one relation the flat batch is that graph already: nothing is copied or arranged.

// Shape describes a graph to pruning: its node types and relations.
type Shape struct {
	First     []int64 // the global number of the first node of each type; and of all, how many
	Relations []Relation
}

// Relation is the ends of the edges of one type, as places of node types.
type Relation struct{ Source, Target int }

// Types is the number of node types.
func (s *Shape) Types() int { return len(s.First) - 1 }

// Single reports whether there is one node type and one relation.
func (s *Shape) Single() bool { return s.Types() == 1 && len(s.Relations) == 1 }

// Table is a Level by node type.
type Table struct {
	Level
	First   []int64 // the first row of each type, and the end
	Targets []int64 // of each type, the targets of the next layer, which are its first rows

	row []int32 // by row of the Pruner's level: its row here
	was []int32 // the inverse
}

// Batch is a flat batch on its way from the sampler to what history leaves of it: Merge, Decide, Build. Its memory is
// kept from batch to batch, and its results are valid until the next batch. It is not safe for concurrent use.
//
// Cost, with several types or relations, beside that of the Pruner: three passes over the nodes and edges of the batch
// as it was drawn, one of them with a random access to 4 bytes for each edge, and two over what is left.
type Batch struct {
	Tables []Table // of level l at l, 0 <= l < L. After Decide those of hidden levels are set, with nodes of Merged

	shape  Shape
	pruner *Pruner
	out    Pruned
	hops   int
	drawn  *sample.Subgraph
	plain  layout // of drawn

	merged *sample.Subgraph // drawn as one graph: positions of edges are their places in drawn
	whole  sample.Subgraph  // its memory
	flat   []int32          // by node of merged: its place in drawn
	place  []int32          // by node of drawn: its place in merged
	types  []int32          // by node of merged

	graph     *sample.Subgraph // the remaining batch, flat
	part      sample.Subgraph  // its memory
	left      layout           // of graph
	number    []int32          // by node of Pruned.Graph: its place in graph
	of        []int32          // by node of graph: its place in Pruned.Graph
	leftTypes []int32          // by node of Pruned.Graph
	edge      []int32          // by edge of Pruned.Graph: its place among those of its relation
	reads     []bool           // by node of graph: whether its features are read
	loaded    []int32          // the nodes whose features are read, ascending

	next  []int64   // by node: where its edges of the relations to come begin
	layer Layer     // the layer at hand of the relation at hand
	byRow []float32 // the savings of a level
	loops []int32
}

// NewBatch returns a Batch for graphs of a shape that takes its memory from budget.
func NewBatch(budget *mem.Budget, shape Shape) *Batch {
	return &Batch{shape: shape, pruner: NewPruner(budget)}
}

// Close frees the memory that is counted.
func (b *Batch) Close() {
	b.pruner.Close()
	b.out.Free()
}

// Merge begins with a flat batch, which must stay as it is until the results are no longer needed.
func (b *Batch) Merge(drawn *sample.Subgraph) {
	b.drawn, b.merged, b.hops = drawn, drawn, len(drawn.NodesPerHop)/b.shape.Types()-1
	b.plain.set(&b.shape, drawn)
	if b.shape.Single() {
		return
	}
	b.merged = &b.whole
	b.mergeNodes()
	b.mergeEdges()
}

// Merged is the batch as one graph. Its first nodes are the seeds of all types.
func (b *Batch) Merged() *sample.Subgraph { return b.merged }

// mergeNodes lists the nodes hop by hop, those of a hop type after type.
func (b *Batch) mergeNodes() {
	g, w, n := b.drawn, &b.whole, len(b.drawn.Nodes)
	b.flat, b.place, b.types = reuse.Slice(b.flat, n), reuse.Slice(b.place, n), reuse.Slice(b.types, n)
	w.Nodes, w.NodesPerHop = reuse.Slice(w.Nodes, n), zeros(w.NodesPerHop, b.hops+1)
	from := append(b.next[:0], b.plain.nodes...) // the first node of each type in the hop at hand
	v := int32(0)
	for hop := range b.hops + 1 {
		for typ := range b.shape.Types() {
			count := g.NodesPerHop[typ*(b.hops+1)+hop]
			for at := from[typ]; at < from[typ]+count; at++ {
				b.flat[v], b.place[at], b.types[v], w.Nodes[v] = int32(at), v, int32(typ), g.Nodes[at]
				v++
			}
			from[typ] += count
			w.NodesPerHop[hop] += count
		}
	}
	b.next = from
}

// mergeEdges lists the edges target by target, those of a target relation after relation.
func (b *Batch) mergeEdges() {
	g, w := b.drawn, &b.whole
	w.Row, w.Pos = reuse.Slice(w.Row, len(g.Row)), reuse.Slice(w.Pos, len(g.Row))
	w.EdgesPerHop = zeros(w.EdgesPerHop, b.hops)
	inner := len(g.Nodes) - int(w.NodesPerHop[b.hops])
	w.Ptr = zeros(w.Ptr, inner+1)
	for i, r := range b.shape.Relations {
		for hop := range b.hops {
			w.EdgesPerHop[hop] += g.EdgesPerHop[i*b.hops+hop]
		}
		ptr := g.Ptr[b.plain.ptr[i]:b.plain.ptr[i+1]]
		for k, v := range b.place[b.plain.nodes[r.Target]:][:len(ptr)-1] {
			w.Ptr[v+1] += ptr[k+1] - ptr[k]
		}
	}
	for v := range inner {
		w.Ptr[v+1] += w.Ptr[v]
	}
	b.next = append(b.next[:0], w.Ptr[:inner]...)
	for i, r := range b.shape.Relations {
		ptr, first := g.Ptr[b.plain.ptr[i]:b.plain.ptr[i+1]], b.plain.edges[i]
		sources := b.place[b.plain.nodes[r.Source]:b.plain.nodes[r.Source+1]]
		for k, v := range b.place[b.plain.nodes[r.Target]:][:len(ptr)-1] {
			to := b.next[v]
			for e := first + ptr[k]; e < first+ptr[k+1]; e++ {
				w.Row[to], w.Pos[to] = uint32(sources[g.Row[e]]), e
				to++
			}
			b.next[v] = to
		}
	}
}

// Decide is Pruner.Decide for the merged batch. Then the hidden levels of Tables are set.
func (b *Batch) Decide(numSeeds int64, lookup Lookup) error {
	if err := b.pruner.Decide(b.merged, numSeeds, lookup, &b.out); err != nil {
		return err
	}
	b.Tables = reuse.Slice(b.Tables, len(b.out.Levels))
	for l := 1; l < len(b.out.Levels); l++ {
		b.arrange(l, b.types)
		if !b.shape.Single() {
			b.Tables[l].split(&b.out.Levels[l])
		}
	}
	return nil
}

// arrange makes the table of a level, whose nodes are of the types in typ, without what is computed and found.
func (b *Batch) arrange(l int, typ []int32) {
	t, level, targets := &b.Tables[l], &b.out.Levels[l], b.out.Layers[l].NumDst
	types := b.shape.Types()
	t.First, t.Targets = zeros(t.First, types+1), zeros(t.Targets, types)
	if b.shape.Single() {
		t.Level, t.First[1], t.Targets[0] = *level, int64(len(level.Nodes)), targets
		return
	}
	t.Nodes = reuse.Slice(t.Nodes, len(level.Nodes))
	t.row, t.was = reuse.Slice(t.row, len(level.Nodes)), reuse.Slice(t.was, len(level.Nodes))
	for i, v := range level.Nodes {
		t.First[typ[v]+1]++
		if int64(i) < targets {
			t.Targets[typ[v]]++
		}
	}
	for of := range types {
		t.First[of+1] += t.First[of]
	}
	for i, v := range level.Nodes {
		row := t.First[typ[v]]
		t.row[i], t.was[row], t.Nodes[row] = int32(row), int32(i), v
		t.First[typ[v]]++
	}
	copy(t.First[1:], t.First) // each element is the start of the next type
	t.First[0] = 0
}

// split divides the rows of a table, as those of its level are, into computed ones and hits, in its own order.
func (t *Table) split(level *Level) {
	slots := reuse.Slice(t.Slots, len(level.Nodes)) // of all rows at first
	for i := range slots {
		slots[i] = Miss
	}
	for i, at := range level.Hits {
		slots[t.row[at]] = level.Slots[i]
	}
	t.Computed, t.Hits = t.Computed[:0], t.Hits[:0]
	for row, slot := range slots {
		if slot == Miss {
			t.Computed = append(t.Computed, int32(row))
			continue
		}
		slots[len(t.Hits)] = slot
		t.Hits = append(t.Hits, int32(row))
	}
	t.Slots = slots[:len(t.Hits)]
}

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
	to.Nodes, to.NodesPerHop = reuse.Slice(to.Nodes, n), zeros(to.NodesPerHop, b.shape.Types()*(b.hops+1))
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
	to.EdgesPerHop = zeros(to.EdgesPerHop, len(b.shape.Relations)*b.hops)
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
	b.reads = zeros(b.reads, len(b.number))
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

// Loaded is the nodes of Graph whose features are read, ascending: seeds and those of level 0.
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

// NumLayers is the number of layers, one for each hop.
func (b *Batch) NumLayers() int { return len(b.out.Layers) }

// Layer is the edges of layer l, 1 <= l <= NumLayers, along a relation: sources are rows of the table below within
// their type, edges are places among those of the relation in Graph. The relations of a layer must be asked for in
// order. What it returns is valid until the next call.
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

// Degrees are the in-edges of each node of Graph that were drawn, and how many of those lead from the node to itself,
// or no elements where none does. They are known of graphs with one node type and one relation alone; ok says whether
// this is one. The normalization of GCN needs them, which is defined by the edges among the nodes of one type.
func (b *Batch) Degrees() (degrees, loops []int32, ok bool) {
	if !b.shape.Single() {
		return nil, nil, false
	}
	return b.out.Degree, b.countLoops(), true
}

func (b *Batch) countLoops() []int32 {
	g := b.drawn
	b.loops = zeros(b.loops, len(b.out.Graph.Nodes))
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

// layout holds the bounds of the lists of each type and relation in a flat batch.
type layout struct {
	nodes []int64 // of each type, its first node; and the end
	ptr   []int64 // of each relation, its first place in Ptr; and the end
	edges []int64 // of each relation, its first edge; and the end
}

func (c *layout) setNodes(s *Shape, g *sample.Subgraph) {
	hops := len(g.NodesPerHop)/s.Types() - 1
	c.nodes = append(c.nodes[:0], 0)
	for typ := range s.Types() {
		c.nodes = append(c.nodes, c.nodes[typ]+sum(g.NodesPerHop[typ*(hops+1):(typ+1)*(hops+1)]))
	}
}

func (c *layout) set(s *Shape, g *sample.Subgraph) {
	c.setNodes(s, g)
	hops := len(g.NodesPerHop)/s.Types() - 1
	c.ptr, c.edges = append(c.ptr[:0], 0), append(c.edges[:0], 0)
	for i, r := range s.Relations {
		targets := c.nodes[r.Target+1] - c.nodes[r.Target] - g.NodesPerHop[(r.Target+1)*(hops+1)-1]
		c.ptr = append(c.ptr, c.ptr[i]+targets+1)
		c.edges = append(c.edges, c.edges[i]+sum(g.EdgesPerHop[i*hops:(i+1)*hops]))
	}
}
