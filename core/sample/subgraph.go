package sample

import (
	"fmt"
	"slices"
	"sync/atomic"

	"freshgo/core/mem"
)

// SubgraphType says which edges among its nodes a batch has, as PyG's subgraph_type does. The nodes, their order and the
// numbers of both by hop are the same for all three.
type SubgraphType uint8

const (
	// Directional: those that were drawn.
	Directional SubgraphType = iota
	// Bidirectional: those that were drawn and one against each of them, of any pair of source and target a single one.
	// Edges are sorted by target, then by source. Pos of an edge is its own where it was drawn, the first one where it was
	// drawn several times, and else that of the first edge that it goes against.
	Bidirectional
	// Induced: all edges of the graph, repeated ones included, by target and in the order of its list. A source that is
	// several seeds is the first of them; as a target it has its edges at each of its places.
	Induced
)

// bothWays is memory for a batch of bidirectional edges.
type bothWays struct {
	keys     buffer[uint64]
	ptr, pos buffer[int64]
}

func (w *bothWays) free() {
	w.keys.free()
	w.ptr.free()
	w.pos.free()
}

// checkSubgraph says whether a Config can have edges beside those that it draws.
func (c *Config) checkSubgraph() error {
	switch {
	case c.Subgraph > Induced:
		return fmt.Errorf("sample: subgraph type %d, want %d to %d: %w", c.Subgraph, Directional, Induced, ErrConfig)
	case c.Subgraph != Directional && c.Walks != nil:
		return fmt.Errorf("sample: random walks give no edges of the graph that could be completed: %w", ErrConfig)
	case c.Subgraph == Induced && (c.Disjoint || c.Temporal != nil):
		return fmt.Errorf("sample: an induced subgraph joins what is disjoint, and has edges of any time: %w", ErrConfig)
	}
	return nil
}

// subgraphBytes is what a Worker needs besides for a batch of a type.
func (s *Sampler) subgraphBytes(d Demand) int64 {
	switch {
	case s.subgraph == Bidirectional:
		return 16*d.Edges + 8*d.Edges + 2*8*(d.Nodes+1) + 4*minBuffer
	case s.subgraph == Induced && s.graph.Adjacency != nil:
		return 8*(d.Nodes+2) + 16*FetchedEdges + 3*minBuffer
	case s.subgraph == Induced:
		return minBuffer
	}
	return 0
}

// complete gives a batch the edges of its type.
func (b *batch) complete(sub *Subgraph) error {
	switch b.sampler.subgraph {
	case Bidirectional:
		if err := b.collect(sub, sub, len(sub.Nodes)); err != nil {
			return err
		}
		return b.merge(sub, len(sub.Nodes), true)
	case Induced:
		return b.induce(sub, sub.Nodes, sub.Nodes)
	}
	return nil
}

// A key sorts the edges of a target by source, and equal ones by what comes first: edges that were drawn before edges
// against them, each in the order in which they were drawn.
const keyBits = 33 // below them the number of the edge, above the local id of the source

// collect is a counting sort by target of all edges, and of those of another subgraph the other way round, which may be the same. n is the number of
// nodes of the targets' type.
func (b *batch) collect(sub, against *Subgraph, n int) error {
	for _, of := range []*Subgraph{sub, against} {
		if drawn := int64(len(of.Row)); drawn > 1<<(keyBits-1) {
			return fmt.Errorf("sample: %d edges drawn, want at most %d to add those against them: %w", drawn, int64(1)<<(keyBits-1), ErrTooLarge)
		}
	}
	if err := b.both.keys.grow(b.budget, mem.Trace, int64(len(sub.Row)+len(against.Row)), 0); err != nil {
		return err
	}
	if err := b.both.ptr.grow(b.budget, mem.Trace, int64(n)+1, 0); err != nil {
		return err
	}
	return b.placeKeys(sub, against, b.both.keys.data, b.both.ptr.data[:n+1])
}

// merge makes the edges of what was collected: it sorts each list and removes what is equal. own says that edges which go against others have their
// positions, which else are of another relation.
func (b *batch) merge(sub *Subgraph, n int, own bool) error {
	drawn := int64(len(sub.Row))
	if err := b.counts.grow(b.budget, mem.Trace, int64(n), 0); err != nil {
		return err
	}
	keys, ptr, counts := b.both.keys.data, b.both.ptr.data[:n+1], b.counts.data[:n]
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
	if err := b.both.pos.grow(b.budget, mem.Trace, total, 0); err != nil {
		return err
	}
	if err := b.row.grow(b.budget, mem.Trace, total, 0); err != nil { // all that it held is in the keys
		return err
	}
	row, pos, at := b.row.data, b.both.pos.data, int64(0)
	begin := int64(0)
	for t, count := range counts {
		for _, key := range keys[begin : begin+count] {
			e := int64(key & (1<<keyBits - 1))
			row[at], pos[at] = uint32(key>>keyBits), -1
			switch {
			case e < drawn:
				pos[at] = sub.Pos[e]
			case own:
				pos[at] = sub.Pos[e-drawn]
			}
			at++
		}
		begin = ptr[t+1]
		ptr[t+1] = at
	}
	sub.Ptr, sub.Row, sub.Pos, sub.Room = ptr, row[:total], pos[:total], max(sub.Room, total)
	return nil
}

// placeKeys writes the keys of all edges and of those against others by target, and where those of each target are.
func (b *batch) placeKeys(sub, against *Subgraph, keys []uint64, ptr []int64) error {
	clear(ptr)
	starts := ptr[1:] // of the lists, while they are filled; in the end of each the start of the next
	for t := range len(sub.Ptr) - 1 {
		starts[t] = sub.Ptr[t+1] - sub.Ptr[t]
	}
	against.eachGroup(starts, func(row []uint32) {
		for _, s := range row {
			starts[s]++
		}
	})
	var sum int64
	for t, count := range starts {
		starts[t] = sum
		sum += count
	}
	drawn, e, itself := uint64(len(sub.Row)), uint64(0), sub == against
	for t := range len(sub.Ptr) - 1 {
		if err := checkContext(b.ctx, t); err != nil {
			return err
		}
		for _, s := range sub.Row[sub.Ptr[t]:sub.Ptr[t+1]] {
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
	for t := range len(against.Ptr) - 1 {
		if err := checkContext(b.ctx, t); err != nil {
			return err
		}
		for _, s := range against.Row[against.Ptr[t]:against.Ptr[t+1]] {
			keys[starts[s]] = uint64(t)<<keyBits | e
			starts[s]++
			e++
		}
	}
	return nil
}
