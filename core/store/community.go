package store

import (
	"context"
	"math"
	"sync/atomic"

	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/mem"
)

const (
	// drawn is the assumed fanout: usual fanouts are 10 to 25, and the order hardly depends on it.
	drawn = 10
	// targetChunk is the number of targets in a task of the adjacency scan: 64 KiB of offsets.
	targetChunk = 8 << 10
	// sourceChunk is the number of bytes of sources that are read at a time.
	sourceChunk = 256 << 10
)

// community writes the nodes of all types, numbered as firstNodes has it, to order so that rows used together are
// neighbours. Rows are used together where their nodes are drawn for the same target. So every node is given to the one
// of its targets with which it is drawn most often, along whatever relation, which makes a forest, and the forest is
// laid out with the children of a node side by side and those of its children right behind them.
//
// The share of target t in a relation is w(t) * min(1, drawn/deg(t))^2: how often it is a target itself (scores, or 1),
// and the chance that it draws two given neighbours. That is one pass over the adjacency and a walk through the forest.
// Label propagation with bounded communities, breadth-first search and min-hashing of the lists of targets, which all
// cost more, left more pages on every graph measured (see docs/decisions/order.md). It needs communityBytes.
func (s *Store) community(
	ctx context.Context, scores []float32, order []uint32, workers int, budget *mem.Budget, m *meter,
) error {
	block, err := budget.Alloc(mem.Convert, int64(len(order))*8)
	if err != nil {
		return err
	}
	defer block.Free()
	first := s.firstNodes()
	for i := range s.edgeTypes {
		e := &s.edgeTypes[i]
		source, target := s.nodeTypeNumber(e.Source), s.nodeTypeNumber(e.Target)
		c := claims{
			relation: e, meter: m,
			ofSources: mem.Slice[uint64](block)[first[source]:first[source+1]],
			source:    uint32(first[source]), target: uint32(first[target]),
		}
		if scores != nil {
			c.scores = scores[first[target]:first[target+1]]
		}
		if err := c.make(ctx, workers, budget); err != nil {
			return err
		}
	}
	forest := mem.Slice[link](block)
	roots, err := makeForest(ctx, forest, order)
	if err != nil {
		return err
	}
	return layOut(ctx, forest, roots, order)
}

// communityBytes returns the memory of community.
func (s *Store) communityBytes(workers int) int64 {
	most := int64(0)
	for i := range s.edgeTypes {
		t := &s.edgeTypes[i].Topology
		most = max(most, t.Indptr.CRCBytes()+t.Indices.CRCBytes())
	}
	return s.firstNodes()[len(s.nodeTypes)]*8 + most + int64(workers)*claimerBytes()
}

// claimerBytes returns the memory of one claimer.
func claimerBytes() int64 { return rangeBytes((targetChunk+1)*8) + rangeBytes(sourceChunk) }

// claims are made by the targets of a relation on their sources. Each source has the highest so far, of all relations:
// the bits of the claim's weight above the complement of the target, so that of equal weights the lowest target wins.
// It is zero for nodes without targets. The outcome does not depend on the order in which claims are made.
type claims struct {
	relation       *EdgeType
	ofSources      []uint64  // raised by compare and swap only, by all claimers
	source, target uint32    // the numbers of the first source and the first target
	scores         []float32 // of the targets; nil: all alike
	meter          *meter
}

// make makes the claims of all targets.
func (c *claims) make(ctx context.Context, workers int, budget *mem.Budget) error {
	indptr, err := newRangeReader(ctx, c.relation.Indptr, budget)
	if err != nil {
		return err
	}
	defer indptr.close()
	indices, err := newRangeReader(ctx, c.relation.Indices, budget)
	if err != nil {
		return err
	}
	defer indices.close()
	n := c.relation.NumNodes
	chunks := guard.NewPieces((n+targetChunk-1)/targetChunk, 1)
	return guard.Each(ctx, workers, func(ctx context.Context, _ int) error {
		block, err := budget.Alloc(mem.Convert, claimerBytes())
		if err != nil {
			return err
		}
		defer block.Free()
		split := rangeBytes((targetChunk + 1) * 8)
		w := &claimer{
			claims: c, indptr: indptr, indices: indices, offsets: block.Bytes()[:split], sources: block.Bytes()[split:],
		}
		for chunk := range chunks.Each() {
			first := chunk * targetChunk
			if err := w.targets(ctx, first, min(targetChunk, n-first)); err != nil {
				return err
			}
		}
		return nil
	})
}

// claimer makes the claims of chunks of targets. It belongs to one goroutine.
type claimer struct {
	*claims
	indptr, indices  *rangeReader
	offsets, sources []byte // buffers
}

// targets makes the claims of n targets from first on.
func (c *claimer) targets(ctx context.Context, first, n int64) error {
	t := &c.relation.Topology
	data, err := c.indptr.read(ctx, c.offsets, first*8, (first+n+1)*8)
	if err != nil {
		return err
	}
	ends := mem.View[int64](data)
	last := int64(0)
	for i, v := range ends {
		if v < last || v > t.NumEdges {
			return badValue(t.Indptr, first+int64(i), v, last, t.NumEdges)
		}
		last = v
	}
	size := int64(t.Indices.Layout.RowBytes)
	at, end, target := ends[0], ends[n], int64(0)
	for at < end {
		to := min(at+sourceChunk/size, end)
		data, err := c.indices.read(ctx, c.sources, at*size, to*size)
		if err != nil {
			return err
		}
		for at < to {
			for ends[target+1] <= at {
				target++
			}
			upTo := min(ends[target+1], to)
			piece := data[:(upTo-at)*size]
			claim := c.weigh(first+target, ends[target+1]-ends[target])
			// The number that the target has among the sources. One of another type gets a number that no source has.
			self := c.target + uint32(first+target) - c.source
			if t.Indices.DType == manifest.DType_INT32 {
				err = raise(c.claims, mem.View[int32](piece), at, self, claim)
			} else {
				err = raise(c.claims, mem.View[int64](piece), at, self, claim)
			}
			if err != nil {
				return err
			}
			data, at = data[len(piece):], upTo
		}
	}
	c.meter.add(n*8 + (end-ends[0])*size)
	return nil
}

// weigh returns the claim of a target with this many neighbours.
func (c *claims) weigh(target, degree int64) uint64 {
	weight, share := float32(1), min(1, drawn/float32(degree))
	if c.scores != nil {
		weight = c.scores[target]
	}
	// Adding 0 makes a zero positive.
	return uint64(math.Float32bits(weight*share*share+0))<<32 | uint64(^(c.target + uint32(target)))
}

// raise makes the claim of a target on its sources, which begin at a position of the adjacency, but on itself.
func raise[T int32 | int64](c *claims, sources []T, at int64, self uint32, claim uint64) error {
	n := int64(len(c.ofSources))
	for i, source := range sources {
		if uint64(int64(source)) >= uint64(n) {
			return badValue(c.relation.Indices, at+int64(i), int64(source), 0, n-1)
		}
		if uint32(source) == self {
			continue // a loop draws nobody together
		}
		place := &c.ofSources[source]
		// Compare and swap: other claimers raise it at the same time, and the highest claim stays whatever the order.
		for old := atomic.LoadUint64(place); claim > old; old = atomic.LoadUint64(place) {
			if atomic.CompareAndSwapUint64(place, old, claim) {
				break
			}
		}
	}
	return nil
}

// link is a node of the forest, in the place of its claim: next has the low half of it, first the high half, as every
// architecture supported is little-endian. Before makeForest, next is the complement of the parent.
type link struct {
	next  uint32 // the sibling after this node, or where a walk goes on; noRow: none
	first uint32 // the first child; noRow: none
}

// makeForest turns claims into a forest and returns its first root; roots are linked like siblings. Children and roots
// ascend. A cycle of parents is cut above the first of its nodes that a walk from the lowest id meets. visited has a
// place for each node and its contents are lost.
func makeForest(ctx context.Context, forest []link, visited []uint32) (roots uint32, err error) {
	clear(visited)
	for i := range forest {
		forest[i] = link{next: ^forest[i].next, first: noRow} // without a claim the complement of zero, which is noRow
	}
	for i := range forest {
		if i%cancelRows == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		walk := uint32(i) + 1
		at := uint32(i)
		for at != noRow && visited[at] == 0 {
			visited[at] = walk
			at = forest[at].next
		}
		if at != noRow && visited[at] == walk {
			forest[at].next = noRow
		}
	}
	roots = noRow
	for i := len(forest) - 1; i >= 0; i-- {
		if i%cancelRows == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		list := &roots
		if parent := forest[i].next; parent != noRow {
			list = &forest[parent].first
		}
		forest[i].next, *list = *list, uint32(i)
	}
	return roots, nil
}

// layOut writes the nodes of a forest to order: each root, and behind each node that is walked its children, which are
// then walked in turn, each with all its descendants. What is left to walk is a list through next, so that it needs no
// memory. The forest is used up.
func layOut(ctx context.Context, forest []link, roots uint32, order []uint32) error {
	n := 0
	for roots != noRow {
		root := roots
		roots = forest[root].next
		forest[root].next = noRow
		order[n] = root
		n++
		for walk := root; walk != noRow; {
			child := forest[walk].first
			rest := forest[walk].next
			if child == noRow {
				walk = rest
				continue
			}
			walk = child
			for {
				order[n] = child
				if n++; n%cancelRows == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if forest[child].next == noRow {
					forest[child].next = rest
					break
				}
				child = forest[child].next
			}
		}
	}
	if n != len(order) {
		panic("store: a forest without all of the nodes")
	}
	return nil
}
