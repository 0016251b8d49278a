package draw

import (
	"slices"

	"freshgo/core/internal/bitset"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The lists of each type and relation in a flat batch, the memory of the batch, and the rows on disk that it needs.

// TypeOffsets holds the offsets of the lists of each type and relation in a flat batch.
type TypeOffsets struct {
	Nodes    []int64 // of each type, its first node; and the end
	Seeds    []int64 // of each type
	reached  []int64 // of each type, nodes found before the last hop
	Expanded []int64 // of each relation, targets; its part of Ptr has one more
	Ptr      []int64 // of each relation, its first place in Ptr; and the end
	Edges    []int64 // of each relation, its first edge; and the end
	Rows     []int64 // of each type, its first row of the node tensors; and the end: nodes, unless some have no row
}

// Cut sets c to the offsets of a batch, in the memory that c has.
func (c *TypeOffsets) Cut(s *Schema, g *sample.Subgraph) {
	c.Nodes, c.Ptr, c.Edges = append(c.Nodes[:0], 0), append(c.Ptr[:0], 0), append(c.Edges[:0], 0)
	c.Seeds, c.reached, c.Expanded = c.Seeds[:0], c.reached[:0], c.Expanded[:0]
	for t := range s.NumTypes() {
		counts := s.NodesPerHop(g, t)
		reached := Sum(counts[:s.Hops])
		c.Seeds, c.reached = append(c.Seeds, counts[0]), append(c.reached, reached)
		c.Nodes = append(c.Nodes, c.Nodes[t]+reached+counts[s.Hops])
	}
	c.Rows = c.Nodes
	for i, r := range s.Edges {
		expanded, n := c.reached[r.Target], Sum(s.EdgesPerHop(g, i))
		if s.Subgraph != sample.Directional {
			expanded = c.Nodes[r.Target+1] - c.Nodes[r.Target]
			n = g.Ptr[c.Ptr[i]+expanded]
		}
		c.Expanded = append(c.Expanded, expanded)
		c.Ptr, c.Edges = append(c.Ptr, c.Ptr[i]+expanded+1), append(c.Edges, c.Edges[i]+n)
	}
}

// NodesPerHop returns the nodes of a type that each hop found, the seeds first.
func (s *Schema) NodesPerHop(g *sample.Subgraph, typ int) []int64 {
	return g.NodesPerHop[typ*(s.Hops+1) : (typ+1)*(s.Hops+1)]
}

// EdgesPerHop returns the edges of a relation that each hop drew.
func (s *Schema) EdgesPerHop(g *sample.Subgraph, relation int) []int64 {
	return g.EdgesPerHop[relation*s.Hops : (relation+1)*s.Hops]
}

// NodesOfTypes returns the number of nodes of each type.
func (c *TypeOffsets) NodesOfTypes() (counts []int64) {
	for t := range c.Nodes[1:] {
		counts = append(counts, c.Nodes[t+1]-c.Nodes[t])
	}
	return counts
}

// Demanded returns the offsets of a batch that needs at least as much of every type and relation as the measured ones,
// and at most the demand in total.
func (s *Schema) Demanded(d *sizing.Demand) *TypeOffsets {
	c := &TypeOffsets{Nodes: []int64{0}, Rows: []int64{0}, Ptr: []int64{0}, Edges: []int64{0}}
	g := sample.Subgraph{NodesPerHop: d.NodesPerHop, EdgesPerHop: d.EdgesPerHop, Rooms: d.Rooms}
	if len(g.NodesPerHop) == 0 { // nothing was measured
		g.NodesPerHop, g.EdgesPerHop = make([]int64, s.NumTypes()*(s.Hops+1)), make([]int64, len(s.Edges)*s.Hops)
		g.Rooms = make([]int64, len(s.Edges))
	}
	for t := range s.NumTypes() {
		counts := s.NodesPerHop(&g, t)
		reached := min(d.Nodes, Sum(counts[:s.Hops]))
		nodes := min(d.Nodes, Sum(counts))
		c.Seeds, c.reached = append(c.Seeds, counts[0]), append(c.reached, reached)
		c.Nodes, c.Rows = append(c.Nodes, c.Nodes[t]+nodes), append(c.Rows, c.Rows[t]+min(d.Rows, nodes))
	}
	for i, r := range s.Edges {
		expanded, edges := c.reached[r.Target], Sum(s.EdgesPerHop(&g, i))
		if s.Subgraph != sample.Directional {
			expanded, edges = c.Nodes[r.Target+1]-c.Nodes[r.Target], g.Rooms[i]
		}
		c.Expanded = append(c.Expanded, expanded)
		c.Ptr, c.Edges = append(c.Ptr, c.Ptr[i]+expanded+1), append(c.Edges, c.Edges[i]+edges)
	}
	return c
}

func Sum(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// BatchRows holds the rows of a batch as policies and plans see them: numbers of
// rows on disk, each once. A position is an index into this list; where no seed
// repeats it is also the row of the batch's tensors.
type BatchRows struct {
	Rows      []uint32
	At        []int32   // the tensor row of each position; nil: the position itself
	Copies    []repeat  // tensor rows that repeat another
	nodeIndex nodeIndex // of the nodes that may repeat: scratch

	typeOffsets TypeOffsets // of a batch as it was drawn: scratch

	Missed missed // where the consumer holds rows
}

type repeat struct{ Row, Of int32 }

// CachedTypes selects the rows that batches need: the rows of some node types.
type CachedTypes struct {
	types   *Schema
	Listed  []bool   // node types whose rows are needed
	Order   []uint32 // as in Sampling
	held    []int32  // as Options.Held
	trees   bool     // a node may be in several
	Repeats bool     // a seed may be there twice
}

// NewCachedTypes returns the CachedTypes of the listed node types.
func (m *Sampling) NewCachedTypes(listed []bool) CachedTypes {
	o := &m.Options
	return CachedTypes{
		types: m.Parts.Schema, Listed: listed, held: o.Held, trees: o.Trees(),
		Repeats: slices.Contains(listed, true) && o.mayRepeat(m.Parts.NumNodes),
	}
}

// mayRepeat reports whether a seed may be in a batch twice.
func (o *Options) mayRepeat(numNodes int64) bool {
	return o.Links == nil && o.SeedWeights != nil || o.Seeds != nil && repeats(o.Seeds, numNodes)
}

// mayRepeat returns the number of leading nodes of a batch that may repeat: its seeds,
// or all where they are in trees.
func (l *CachedTypes) mayRepeat(nodes []int64, numSeeds int64) int {
	switch {
	case l.trees:
		return len(nodes)
	case l.Repeats:
		return int(numSeeds)
	}
	return 0
}

// FillGraph lists the nodes of a batch as it was drawn.
func (r *BatchRows) FillGraph(l *CachedTypes, g *sample.Subgraph) {
	r.typeOffsets.Cut(l.types, g)
	r.Fill(l, g.Nodes, &r.typeOffsets)
}

// Fill lists the nodes of a batch that have rows on disk, the seeds of each type first. Seeds may
// repeat, and all nodes where they are in trees. The nodes must be below 2^32.
func (r *BatchRows) Fill(l *CachedTypes, nodes []int64, c *TypeOffsets) {
	r.Rows, r.At, r.Copies = r.Rows[:0], r.At[:0], r.Copies[:0]
	r.Missed.clear()
	if l.held != nil {
		r.fillMissed(l, nodes, c)
		return
	}
	for t, cached := range l.Listed {
		if !cached {
			continue
		}
		from, to := c.Nodes[t], c.Nodes[t+1]
		repeating := int64(l.mayRepeat(nodes[from:to], c.Seeds[t]))
		if len(l.Listed) > 1 || repeating > 0 {
			r.list(l, nodes, from, to, repeating)
			continue
		}
		for _, v := range nodes { // each position is the tensor row
			r.Rows = append(r.Rows, l.RowOf(v))
		}
	}
}

// list adds nodes[from:to], each with its tensor row. The first `repeating` nodes may repeat.
func (r *BatchRows) list(l *CachedTypes, nodes []int64, from, to, repeating int64) {
	r.nodeIndex.begin(int(repeating))
	for i := from; i < to; i++ {
		v, at := nodes[i], int32(i)
		if i-from < repeating {
			if of, found := r.nodeIndex.add(v, at); found {
				r.Copies = append(r.Copies, repeat{at, of})
				continue
			}
		}
		r.Rows, r.At = append(r.Rows, l.RowOf(v)), append(r.At, at)
	}
}

// DropPruned drops the rows that pruning has taken out of the batch, after TakeOut.
func (r *BatchRows) DropPruned() {
	if len(r.At) == 0 {
		return
	}
	n := 0
	for pos, row := range r.Rows {
		if to := r.At[pos]; to >= 0 {
			r.Rows[n], r.At[n] = row, to
			n++
		}
	}
	r.Rows, r.At = r.Rows[:n], r.At[:n]
}

// TakeOut takes out of the listed rows the rows that pruning leaves unread: places has the place of each drawn node in
// the batch of c, or -1. Positions stay, and have no tensor row where their row is unread.
func (r *BatchRows) TakeOut(places []int32, c *TypeOffsets) {
	if r.Missed.on() {
		r.Missed.takeOut(places, r.typeOffsets.Nodes, c)
		places = r.Missed.moved
	}
	r.MoveTo(places)
}

// NodeOf returns the node of a position, by its place among the nodes that were listed.
func (r *BatchRows) NodeOf(pos int32) int32 {
	if r.Missed.on() {
		return r.Missed.nodes[r.At[pos]]
	}
	return r.TensorRow(pos)
}

// MoveTo says of each position where its row goes, or -1, by the row that it has.
func (r *BatchRows) MoveTo(at []int32) {
	if len(r.At) == 0 {
		for node := range r.Rows {
			r.At = append(r.At, int32(node))
		}
	}
	for pos, node := range r.At {
		r.At[pos] = at[node]
	}
	for i, c := range r.Copies {
		r.Copies[i] = repeat{at[c.Row], at[c.Of]} // seeds, which are all there
	}
}

// CutToPlan reduces the batch rows to the rows that are planned or used: of the current positions, the planned ones
// (nil: all). It returns the new place of each planned position, in the memory of own; whether positions differ from
// the plan's; the number of used rows; and the number of rows that are used and not planned, or planned and not used.
func (r *BatchRows) CutToPlan(planned bitset.Set, own []int32) (now []int32, moved bool, needed, wrong int64) {
	whole := len(r.At) == 0
	now = own[:0]
	n := 0
	for pos, row := range r.Rows {
		is, goes := planned == nil || planned.Has(int64(pos)), whole || r.At[pos] >= 0
		if is != goes {
			wrong++
		}
		if goes {
			needed++
		}
		if !is && !goes {
			continue
		}
		if is {
			moved = moved || len(now) != n
			now = append(now, int32(n))
		}
		r.Rows[n] = row
		if !whole {
			r.At[n] = r.At[pos]
		}
		n++
	}
	r.Rows = r.Rows[:n]
	if !whole {
		r.At = r.At[:n]
	}
	return now, moved || len(now) != n, needed, wrong
}

// Keep keeps the rows at some positions, for callers that need only the rows.
func (r *BatchRows) Keep(set bitset.Set) {
	n := 0
	for pos := range set.Within(0, int64(len(r.Rows))) {
		r.Rows[n] = r.Rows[pos]
		n++
	}
	r.Rows, r.At = r.Rows[:n], r.At[:0]
}

// TensorRow returns the row of the batch's tensors for a position; -1: none.
func (r *BatchRows) TensorRow(pos int32) int32 {
	if len(r.At) == 0 {
		return pos
	}
	return r.At[pos]
}

// RowOf returns the row number of a node on disk, counted over all types.
func (l *CachedTypes) RowOf(node int64) uint32 {
	if l.Order == nil {
		return uint32(node)
	}
	return l.Order[node]
}

// repeats reports whether an id occurs twice. It costs a bit per node.
func repeats(ids []int64, numNodes int64) bool {
	seen := bitset.New(numNodes)
	for _, v := range ids {
		if !seen.Put(v) {
			return true
		}
	}
	return false
}
