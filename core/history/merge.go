package history

import (
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
	First     []int64 // the global number of the first node of each type, and the total number
	Relations []Relation
}

// Relation is the ends of the edges of one type, as places of node types.
type Relation struct{ Source, Target int }

// Types returns the number of node types.
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

// Batch is a flat batch between the sampler and its pruned form: Merge, Decide, Build. Its memory is kept from batch to
// batch, and its results are valid until the next batch. It is not safe for concurrent use.
//
// With several types or relations, it takes, in addition to the Pruner, three passes over the nodes and edges of the
// drawn batch, one of them with a random access to 4 bytes per edge, and two over the pruned one.
type Batch struct {
	Tables []Table // of level l at l, 0 <= l < L. After Decide hidden levels are set, with nodes of Merged

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
	edge      []int32          // by edge of Pruned.Graph: its position among the edges of its relation
	reads     []bool           // by node of graph: whether its features are read
	loaded    []int32          // the nodes whose features are read, ascending

	next  []int64   // by node: where its edges of the relations to come begin
	layer Layer     // the current layer of the current relation
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

// Merged returns the batch as one graph. Its first nodes are the seeds of all types.
func (b *Batch) Merged() *sample.Subgraph { return b.merged }

// mergeNodes lists the nodes by hop, and within a hop by type.
func (b *Batch) mergeNodes() {
	g, w, n := b.drawn, &b.whole, len(b.drawn.Nodes)
	b.flat, b.place, b.types = reuse.Slice(b.flat, n), reuse.Slice(b.place, n), reuse.Slice(b.types, n)
	w.Nodes, w.NodesPerHop = reuse.Slice(w.Nodes, n), reuse.Zeros(w.NodesPerHop, b.hops+1)
	from := append(b.next[:0], b.plain.nodes...) // the first node of each type in the current hop
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

// mergeEdges lists the edges by target, and those of a target by relation.
func (b *Batch) mergeEdges() {
	g, w := b.drawn, &b.whole
	w.Row, w.Pos = reuse.Slice(w.Row, len(g.Row)), reuse.Slice(w.Pos, len(g.Row))
	w.EdgesPerHop = reuse.Zeros(w.EdgesPerHop, b.hops)
	inner := len(g.Nodes) - int(w.NodesPerHop[b.hops])
	w.Ptr = reuse.Zeros(w.Ptr, inner+1)
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

// arrange makes the table of a level, whose nodes have the types in typ, without computed rows and hits.
func (b *Batch) arrange(l int, typ []int32) {
	t, level, targets := &b.Tables[l], &b.out.Levels[l], b.out.Layers[l].NumDst
	types := b.shape.Types()
	t.First, t.Targets = reuse.Zeros(t.First, types+1), reuse.Zeros(t.Targets, types)
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

// split divides the rows of a table, like the rows of its level, into computed ones and hits, in the table's order.
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
