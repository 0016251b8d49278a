package draw

import (
	"math/bits"
	"slices"

	"freshgo/core/internal/bitset"
	"freshgo/core/internal/reuse"
	"freshgo/core/sample"
)

// BatchRows holds the rows of a batch as policies and plans see them: numbers of
// rows on disk, each once. A position is an index into this list; where no seed
// repeats it is also the row of the batch's tensors.
type BatchRows struct {
	Rows      []uint32
	At        []int32   // the tensor row of each position; nil: the position itself
	Copies    []repeat  // tensor rows that repeat another
	nodeIndex NodeIndex // of the nodes that may repeat: scratch

	typeOffsets TypeOffsets // of a batch as it was drawn: scratch

	// Where the consumer holds rows:
	Place []int32 // of every node, see PlaceName
	Held  int64   // nodes that it holds
	ids   []int64 // the nodes that it does not hold, within their types
	bases []int64 // the first of each type among these, and the end
}

type repeat struct{ Row, Of int32 }

// CachedTypes selects the rows that batches need: the rows of some node types.
type CachedTypes struct {
	types   *Schema
	Listed  []bool   // node types whose rows are needed
	Order   []uint32 // as of sampling
	held    []int32  // as Options.Held
	trees   bool     // a node may be in several
	Repeats bool     // a seed may be there twice
}

// NewCachedTypes returns the cachedTypes of the listed node types.
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
	r.Place, r.Held, r.ids, r.bases = r.Place[:0], 0, r.ids[:0], r.bases[:0]
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
	r.nodeIndex.Begin(int(repeating))
	for i := from; i < to; i++ {
		v, at := nodes[i], int32(i)
		if i-from < repeating {
			if of, found := r.nodeIndex.Add(v, at); found {
				r.Copies = append(r.Copies, repeat{at, of})
				continue
			}
		}
		r.Rows, r.At = append(r.Rows, l.RowOf(v)), append(r.At, at)
	}
}

// fillMissed lists the nodes that the consumer does not hold, type after type, and says of every node where it is.
func (r *BatchRows) fillMissed(l *CachedTypes, nodes []int64, c *TypeOffsets) {
	first := l.types.First
	r.bases = append(r.bases, 0)
	for t, cached := range l.Listed {
		mine, base := nodes[c.Nodes[t]:c.Nodes[t+1]], r.bases[t]
		repeating := l.mayRepeat(mine, c.Seeds[t])
		r.nodeIndex.Begin(repeating)
		for i, v := range mine {
			at := l.held[v]
			if at >= 0 {
				r.Held++
				r.Place = append(r.Place, at)
				continue
			}
			of, found := int32(int64(len(r.ids))-base), false
			if i < repeating {
				of, found = r.nodeIndex.Add(v, of)
			}
			r.Place = append(r.Place, ^of)
			if found {
				continue
			}
			if cached {
				r.Rows, r.At = append(r.Rows, l.RowOf(v)), append(r.At, int32(len(r.ids)))
			}
			r.ids = append(r.ids, v-first[t])
		}
		r.bases = append(r.bases, int64(len(r.ids)))
	}
	c.Rows = r.bases
}

// Delivered returns the nodes of a type whose rows a batch delivers, of all its nodes: those that the consumer does not
// hold.
func (r *BatchRows) Delivered(typ int, nodes []int64) []int64 {
	if len(r.bases) == 0 {
		return nodes
	}
	return r.ids[r.bases[typ]:r.bases[typ+1]]
}

// Cut reduces the batch rows to the nodes that pruning has left: at[node] is the tensor row of a node, or -1.
func (r *BatchRows) Cut(at []int32) {
	r.MoveTo(at)
	n := 0
	for pos, row := range r.Rows {
		if to := r.At[pos]; to >= 0 {
			r.Rows[n], r.At[n] = row, to
			n++
		}
	}
	r.Rows, r.At = r.Rows[:n], r.At[:n]
}

// MoveTo says of each position where its row goes, or -1, by node.
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

// CutToPlan reduces the batch rows to the rows that are planned or go anywhere: of the positions so far, those in
// planned are (nil: all). It returns where each planned position is now, in the memory of own; whether the positions
// are others than those of the plan; how many rows go anywhere; and how many do so and are not planned, or the other
// way round.
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

// Keep leaves the rows at some positions. It is for who wants the rows alone.
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

// NodeIndex maps each node of a batch to the index of its first occurrence. A batch of trees may repeat most of its
// nodes, so the memory is one table of 8 bytes a slot, cleared from batch to batch.
type NodeIndex struct {
	slots []uint64 // node above index + 1, with linear probing, at most half full; 0: empty
	shift int      // a slot is the upper 64-shift bits of a product
}

// Begin forgets all nodes and makes room for the given number.
func (f *NodeIndex) Begin(nodes int) {
	if nodes == 0 {
		return
	}
	size := 1 << bits.Len(uint(2*nodes-1))
	f.slots = reuse.Slice(f.slots, size)
	clear(f.slots)
	f.shift = 64 - bits.Len(uint(size-1))
}

// NodeIndexBytes returns the memory of a nodeIndex for a number of nodes.
func NodeIndexBytes(nodes int64) int64 { return 8 << bits.Len64(uint64(2*nodes)) }

// Add returns the index that was given for a node before, or remembers this one. Nodes are below 2^32 and indices below
// 2^31.
func (f *NodeIndex) Add(node int64, index int32) (first int32, found bool) {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	mask := uint64(len(f.slots) - 1)
	for slot := uint64(node) * golden >> f.shift; ; slot = (slot + 1) & mask {
		switch entry := f.slots[slot&mask]; {
		case entry == 0:
			f.slots[slot&mask] = uint64(node)<<32 | uint64(index+1)
			return index, false
		case int64(entry>>32) == node:
			return int32(uint32(entry)) - 1, true
		}
	}
}
