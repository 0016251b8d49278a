package loader

import (
	"slices"

	"freshgo/core/internal/bitset"
	"freshgo/core/sample"
)

// batchRows holds the rows of a batch as policies and plans see them: numbers of
// rows on disk, each once. A position is an index into this list; where no seed
// repeats it is also the row of the batch's tensors.
type batchRows struct {
	rows      []uint32
	at        []int32   // the tensor row of each position; nil: the position itself
	copies    []repeat  // tensor rows that repeat another
	nodeIndex nodeIndex // of the nodes that may repeat: scratch

	typeOffsets typeOffsets // of a batch as it was drawn: scratch

	// Where the consumer holds rows:
	place []int32 // of every node, see PlaceName
	held  int64   // nodes that it holds
	ids   []int64 // the nodes that it does not hold, within their types
	bases []int64 // the first of each type among these, and the end
}

type repeat struct{ row, of int32 }

// cachedTypes selects the rows that batches need: the rows of some node types.
type cachedTypes struct {
	types   *schema
	listed  []bool   // node types whose rows are needed
	order   []uint32 // as of sampling
	held    []int32  // as Options.Held
	trees   bool     // a node may be in several
	repeats bool     // a seed may be there twice
}

// newCachedTypes returns the cachedTypes of the listed node types.
func (m *sampling) newCachedTypes(listed []bool) cachedTypes {
	o := &m.options
	return cachedTypes{
		types: m.parts.types, listed: listed, held: o.Held, trees: o.disjoint(),
		repeats: slices.Contains(listed, true) && m.mayRepeat(),
	}
}

// mayRepeat reports whether a seed may be in a batch twice.
func (m *sampling) mayRepeat() bool {
	o := &m.options
	return o.Links == nil && o.SeedWeights != nil || o.Seeds != nil && repeats(o.Seeds, m.parts.numNodes)
}

// mayRepeat returns the number of leading nodes of a batch that may repeat: its seeds,
// or all where they are in trees.
func (l *cachedTypes) mayRepeat(nodes []int64, numSeeds int64) int {
	switch {
	case l.trees:
		return len(nodes)
	case l.repeats:
		return int(numSeeds)
	}
	return 0
}

// fillGraph lists the nodes of a batch as it was drawn.
func (r *batchRows) fillGraph(l *cachedTypes, g *sample.Subgraph) {
	r.typeOffsets.cut(l.types, g)
	r.fill(l, g.Nodes, &r.typeOffsets)
}

// fill lists the nodes of a batch that have rows on disk, the seeds of each type first. Seeds may
// repeat, and all nodes where they are in trees. The nodes must be below 2^32.
func (r *batchRows) fill(l *cachedTypes, nodes []int64, c *typeOffsets) {
	r.rows, r.at, r.copies = r.rows[:0], r.at[:0], r.copies[:0]
	r.place, r.held, r.ids, r.bases = r.place[:0], 0, r.ids[:0], r.bases[:0]
	if l.held != nil {
		r.fillMissed(l, nodes, c)
		return
	}
	for t, cached := range l.listed {
		if !cached {
			continue
		}
		from, to := c.nodes[t], c.nodes[t+1]
		repeating := int64(l.mayRepeat(nodes[from:to], c.seeds[t]))
		if len(l.listed) > 1 || repeating > 0 {
			r.list(l, nodes, from, to, repeating)
			continue
		}
		for _, v := range nodes { // each position is the tensor row
			r.rows = append(r.rows, l.rowOf(v))
		}
	}
}

// list adds nodes[from:to], each with its tensor row. The first `repeating` nodes may repeat.
func (r *batchRows) list(l *cachedTypes, nodes []int64, from, to, repeating int64) {
	r.nodeIndex.begin(int(repeating))
	for i := from; i < to; i++ {
		v, at := nodes[i], int32(i)
		if i-from < repeating {
			if of, found := r.nodeIndex.add(v, at); found {
				r.copies = append(r.copies, repeat{at, of})
				continue
			}
		}
		r.rows, r.at = append(r.rows, l.rowOf(v)), append(r.at, at)
	}
}

// fillMissed lists the nodes that the consumer does not hold, type after type, and says of every node where it is.
func (r *batchRows) fillMissed(l *cachedTypes, nodes []int64, c *typeOffsets) {
	first := l.types.first
	r.bases = append(r.bases, 0)
	for t, cached := range l.listed {
		mine, base := nodes[c.nodes[t]:c.nodes[t+1]], r.bases[t]
		repeating := l.mayRepeat(mine, c.seeds[t])
		r.nodeIndex.begin(repeating)
		for i, v := range mine {
			at := l.held[v]
			if at >= 0 {
				r.held++
				r.place = append(r.place, at)
				continue
			}
			of, found := int32(int64(len(r.ids))-base), false
			if i < repeating {
				of, found = r.nodeIndex.add(v, of)
			}
			r.place = append(r.place, ^of)
			if found {
				continue
			}
			if cached {
				r.rows, r.at = append(r.rows, l.rowOf(v)), append(r.at, int32(len(r.ids)))
			}
			r.ids = append(r.ids, v-first[t])
		}
		r.bases = append(r.bases, int64(len(r.ids)))
	}
	c.rows = r.bases
}

// delivered returns the nodes of a type whose rows a batch delivers, of all its nodes: those that the consumer does not
// hold.
func (r *batchRows) delivered(typ int, nodes []int64) []int64 {
	if len(r.bases) == 0 {
		return nodes
	}
	return r.ids[r.bases[typ]:r.bases[typ+1]]
}

// cut reduces the batch rows to the nodes that pruning has left: at[node] is the tensor row of a node, or -1.
func (r *batchRows) cut(at []int32) {
	r.moveTo(at)
	n := 0
	for pos, row := range r.rows {
		if to := r.at[pos]; to >= 0 {
			r.rows[n], r.at[n] = row, to
			n++
		}
	}
	r.rows, r.at = r.rows[:n], r.at[:n]
}

// moveTo says of each position where its row goes, or -1, by node.
func (r *batchRows) moveTo(at []int32) {
	if len(r.at) == 0 {
		for node := range r.rows {
			r.at = append(r.at, int32(node))
		}
	}
	for pos, node := range r.at {
		r.at[pos] = at[node]
	}
	for i, c := range r.copies {
		r.copies[i] = repeat{at[c.row], at[c.of]} // seeds, which are all there
	}
}

// cutToPlan reduces the batch rows to the rows that are planned or go anywhere: of the positions so far, those in
// planned are (nil: all). It returns where each planned position is now, in the memory of own; whether the positions
// are others than those of the plan; how many rows go anywhere; and how many do so and are not planned, or the other
// way round.
func (r *batchRows) cutToPlan(planned bitset.Set, own []int32) (now []int32, moved bool, needed, wrong int64) {
	whole := len(r.at) == 0
	now = own[:0]
	n := 0
	for pos, row := range r.rows {
		is, goes := planned == nil || planned.Has(int64(pos)), whole || r.at[pos] >= 0
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
		r.rows[n] = row
		if !whole {
			r.at[n] = r.at[pos]
		}
		n++
	}
	r.rows = r.rows[:n]
	if !whole {
		r.at = r.at[:n]
	}
	return now, moved || len(now) != n, needed, wrong
}

// tensorRow returns the row of the batch's tensors for a position; -1: none.
func (r *batchRows) tensorRow(pos int32) int32 {
	if len(r.at) == 0 {
		return pos
	}
	return r.at[pos]
}

// rowOf returns the row number of a node on disk, counted over all types.
func (l *cachedTypes) rowOf(node int64) uint32 {
	if l.order == nil {
		return uint32(node)
	}
	return l.order[node]
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
