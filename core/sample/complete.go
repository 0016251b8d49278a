package sample

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"freshgo/core/mem"
)

// SubgraphType selects the edges that a batch has among its nodes, like PyG's subgraph_type. Nodes, their order and the
// counts by hop are equal for all three.
type SubgraphType uint8

const (
	// Directional: the drawn edges.
	Directional SubgraphType = iota
	// Bidirectional: the drawn edges and the reverses of the drawn edges of the reverse relation (Config.Reverse), once
	// for each pair of source and target. Edges are sorted by target, then by source. Pos is the position of the drawn
	// edge, of the first one if it was drawn repeatedly; otherwise the position of the first edge that it reverses, if
	// that edge belongs to the same relation, else -1: the relation need not have such an edge.
	Bidirectional
	// Induced: all edges of each relation among the nodes, with repeated ones, by target and in the order of the lists. A
	// node that occurs several times among the seeds is a source at its first position and a target at every position.
	Induced
)

// bothWays holds the memory for bidirectional edges of a batch.
type bothWays struct {
	keys     buffer[uint64]
	ptr, pos buffer[int64]
}

// checkReverse validates Reverse against the subgraph type.
func (c *Config) checkReverse(g *Graph) error {
	if c.Subgraph != Bidirectional {
		if c.Reverse != nil {
			return fmt.Errorf("sample: reverse relations, expected none of a subgraph that is not bidirectional: %w",
				ErrConfig)
		}
		return nil
	}
	if len(c.Reverse) != len(g.Relations) {
		return fmt.Errorf("sample: reverses of %d relations, expected %d as there are: %w",
			len(c.Reverse), len(g.Relations), ErrConfig)
	}
	for i, j := range c.Reverse {
		if j == -1 {
			continue
		}
		if j < -1 || j >= len(g.Relations) ||
			g.Relations[j].Source != g.Relations[i].Target || g.Relations[j].Target != g.Relations[i].Source {
			return fmt.Errorf("sample: relation %d as the reverse of relation %d, expected one from its target's type to its "+
				"source's, or -1: %w", j, i, ErrConfig)
		}
	}
	return nil
}

// subgraphBytes returns the additional memory of a Worker for batches that are not Directional.
func (r *relation) subgraphBytes(d size) int64 {
	switch {
	case r.subgraph == Bidirectional:
		return 16*d.edges + 8*d.edges + 2*8*(d.nodes+1) + 4*minBuffer
	case r.subgraph == Induced && r.Adjacency != nil:
		return 8*(d.nodes+2) + 16*FetchedEdges + 3*minBuffer
	case r.subgraph == Induced:
		return minBuffer
	}
	return 0
}

// complete adds the edges of the batch's subgraph type to all relations.
func (w *Worker) complete(ctx context.Context) error {
	batches := make([]batch, len(w.edges))
	for i, e := range w.edges {
		e.threads = e.scratch
		batches[i] = batch{edgeSet: e, ctx: ctx, source: w.nodes[e.relation.Source], target: w.nodes[e.relation.Target]}
		e.edges = e.drawn(batches[i].target.first) // nodes of the last hop are not expanded
	}
	switch w.sampler.subgraph {
	case Bidirectional:
		return w.addReverse(batches)
	case Induced:
		for i := range batches { // after all nodes are numbered
			if err := batches[i].induce(); err != nil {
				return w.sampler.in(i, err)
			}
		}
	}
	return nil
}

// addReverse reads the edges of all relations before it changes any.
func (w *Worker) addReverse(batches []batch) error {
	nothing := &edgeArrays{ptr: []int64{0}}
	for i := range batches {
		against := nothing // drawn edges are sorted in any case
		if j := w.sampler.reverse[i]; j >= 0 {
			against = &w.edges[j].edges
		}
		if err := w.edges[i].both.collect(&batches[i], against); err != nil {
			return w.sampler.in(i, err)
		}
	}
	for i := range batches {
		if err := w.edges[i].both.merge(&batches[i], w.sampler.reverse[i] == i); err != nil {
			return w.sampler.in(i, err)
		}
	}
	return nil
}

// A key sorts the edges of a target by source, and edges with equal sources in this order: drawn edges before reverses,
// and by position in their lists.
const keyBits = 33 // number of the edge, below the local id of its source

// collect sorts drawn edges, and the reverses of the edges of a relation, which may be the same, by target (counting
// sort).
func (w *bothWays) collect(b *batch, against *edgeArrays) error {
	sub, n := &b.edges, b.target.n
	for _, of := range []*edgeArrays{sub, against} {
		if drawn := int64(len(of.row)); drawn > 1<<(keyBits-1) {
			return fmt.Errorf("sample: %d edges drawn, expected at most %d to add those against them: %w",
				drawn, int64(1)<<(keyBits-1), ErrTooLarge)
		}
	}
	err := reserve(b.budget, room{&w.keys, int64(len(sub.row) + len(against.row)), 0}, room{&w.ptr, int64(n) + 1, 0})
	if err != nil {
		return err
	}
	return w.placeKeys(b, against, w.ptr.data[:n+1])
}

// merge builds the merged edges: it sorts each list and removes duplicates. own says that reverses have positions,
// which they lack if they are of another relation.
func (w *bothWays) merge(b *batch, own bool) error {
	sub, n := &b.edges, b.target.n
	drawn := int64(len(sub.row))
	if err := b.counts.grow(b.budget, mem.Trace, int64(n), 0); err != nil {
		return err
	}
	keys, ptr, counts := w.keys.data, w.ptr.data[:n+1], b.counts.data[:n]
	var taken atomic.Int64
	err := b.share(&taken, (n+pieceTargets-1)/pieceTargets, func(*thread) error {
		for {
			at := int(taken.Add(1)-1) * pieceTargets
			if at >= n {
				return nil
			}
			if err := b.ctx.Err(); err != nil {
				return fmt.Errorf("sample: %w", err)
			}
			for t := at; t < min(at+pieceTargets, n); t++ {
				list := keys[ptr[t]:ptr[t+1]]
				slices.Sort(list)
				list = slices.CompactFunc(list, func(a, b uint64) bool { return a>>keyBits == b>>keyBits })
				counts[t] = int64(len(list))
			}
		}
	})
	if err != nil {
		return err
	}
	var total int64
	for _, count := range counts {
		total += count
	}
	// The keys contain everything that row had.
	if err := reserve(b.budget, room{&w.pos, total, 0}, room{&b.row, total, 0}); err != nil {
		return err
	}
	row, pos, at := b.row.data, w.pos.data, int64(0)
	begin := int64(0)
	for t, count := range counts {
		for _, key := range keys[begin : begin+count] {
			e := int64(key & (1<<keyBits - 1))
			row[at], pos[at] = uint32(key>>keyBits), -1
			switch {
			case e < drawn:
				pos[at] = sub.pos[e]
			case own:
				pos[at] = sub.pos[e-drawn]
			}
			at++
		}
		begin = ptr[t+1]
		ptr[t+1] = at
	}
	sub.ptr, sub.row, sub.pos = ptr, row[:total], pos[:total]
	b.room = max(b.room, total)
	return nil
}

// placeKeys writes the keys of drawn edges and of reverses by target, and the first key of each target.
func (w *bothWays) placeKeys(b *batch, against *edgeArrays, ptr []int64) error {
	sub, keys := &b.edges, w.keys.data
	clear(ptr)
	starts := ptr[1:] // of the lists while they are filled; afterwards the end of each list is the start of the next
	for t := range len(sub.ptr) - 1 {
		starts[t] = sub.ptr[t+1] - sub.ptr[t]
	}
	startLists(against.row, starts)
	drawn, e, itself := uint64(len(sub.row)), uint64(0), sub == against
	for t := range len(sub.ptr) - 1 {
		if err := checkContext(b.ctx, t); err != nil {
			return err
		}
		for _, s := range sub.row[sub.ptr[t]:sub.ptr[t+1]] {
			keys[starts[t]] = uint64(s)<<keyBits | e
			starts[t]++
			if itself { // in one pass, which takes 0.8 times as long
				keys[starts[s]] = uint64(t)<<keyBits | (drawn + e)
				starts[s]++
			}
			e++
		}
	}
	if itself {
		return nil
	}
	for t := range len(against.ptr) - 1 {
		if err := checkContext(b.ctx, t); err != nil {
			return err
		}
		for _, s := range against.row[against.ptr[t]:against.ptr[t+1]] {
			keys[starts[s]] = uint64(t)<<keyBits | e
			starts[s]++
			e++
		}
	}
	return nil
}
