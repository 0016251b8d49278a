package sample

import (
	"fmt"
	"math/bits"
	"slices"

	"freshgo/core/internal/asm"
)

// Disjoint batches (PyG's disjoint=True): every seed has its own tree. A node has a number in each tree that reaches
// it, trees draw independently (the stream of a target absorbs its tree after its node), and nodes are in pyg-lib's
// order: all seeds, then the nodes that the first hop reached, seed by seed, and so on.
//
// Such a node is one word, with its tree above its id, and the id map numbers these words. The map is the hash table,
// as a tree reaches few nodes of a graph. Beyond the work of other batches, one pass writes trees above the sources and
// one takes the words apart, both over memory in the caches.

// forest holds the trees of a disjoint batch, beside the numbered words.
type forest struct {
	ids   buffer[int64]  // of nodes, without their trees
	trees buffer[uint32] // of nodes
}

// treeShift returns the position of the tree in a word, above the ids of the graph.
func treeShift(numNodes int64) uint { return uint(bits.Len64(uint64(max(numNodes, 1) - 1))) }

// checkTrees returns an error if the words of a node type are too short for the number of trees.
func (s *nodeSet) checkTrees(trees int) error {
	if most := uint64(1) << (63 - treeShift(s.numNodes)); uint64(trees) > most {
		return fmt.Errorf("sample: a batch of %d disjoint trees, expected at most %d with %d nodes: %w",
			trees, most, s.numNodes, ErrTooLarge)
	}
	return nil
}

// packSeeds packs the seeds into words, each in its own tree.
func (s *nodeSet) packSeeds(seeds []int64, firstTree int) {
	shift := treeShift(s.numNodes)
	for i, v := range seeds {
		s.nodes.data[i] = int64(firstTree+i)<<shift | v
	}
}

// packTrees writes the trees of the targets of unit u above their sources.
func packTrees[T id](h *hop, u int, ids []T) {
	shift := treeShift(h.relation.numSources)
	t0 := h.first + u*h.perUnit
	t1 := min(t0+h.perUnit, h.first+h.targets)
	for t := t0; t < t1; t++ {
		tree := T(h.target.forest.trees.data[t]) << shift // int64: callers of numberRoom ensure it
		sources := ids[h.ptr.data[t]-h.from : h.ptr.data[t+1]-h.from]
		for i := range sources {
			sources[i] |= tree
		}
	}
}

// unpackTrees takes apart the words of the nodes that the previous hop reached, which become targets.
func (s *nodeSet) unpackTrees() error {
	f := &s.forest
	end, first := int64(s.end), int64(s.first)
	if err := reserve(s.budget, room{&f.ids, end, first}, room{&f.trees, end, first}); err != nil {
		return err
	}
	shift := treeShift(s.numNodes)
	mask := int64(1)<<shift - 1
	ids, trees := f.ids.data[s.first:s.end], f.trees.data[s.first:s.end]
	for i, word := range s.nodes.data[s.first:s.end] {
		ids[i], trees[i] = word&mask, uint32(word>>shift)
	}
	return nil
}

// drawTrees is drawUnit for targets in trees, and for times in memory.
func drawTrees[I int32 | int64](h *hop, u int, t *thread, indices []I) {
	t0 := u * h.perUnit
	spans, ptr := h.spans.data[t0:min(t0+h.perUnit, h.targets)], h.ptr.data[h.first+t0:]
	var times *Times // in their order, draws are places and not positions
	if h.relation.narrowed() && h.relation.temporal.Times.ordered() {
		times = h.relation.temporal.Times
	}
	skipped := h.skipped.from(t0)
	for i, s := range spans {
		out := h.pos[ptr[i]-h.from : ptr[i+1]-h.from]
		draw(h.stream(h.first+t0+i), s, h.k == All, h.relation.replace, &t.set, out)
		skipped = h.skipped.over(skipped, t0+i, out)
		if asked := out[:min(len(out), unitEdges)]; times != nil {
			asm.Prefetch(times.Order32, asked)
			asm.Prefetch(times.Order64, asked)
		} else {
			asm.Prefetch(indices, asked)
		}
	}
	if times == nil {
		return
	}
	e0, e1 := h.edges(u)
	for out := range slices.Chunk(h.pos[e0:e1], group) {
		times.place(out)
		asm.Prefetch(indices, out)
	}
}

// stream returns the random stream of the target with the given local id.
func (h *hop) stream(local int) stream {
	s := absorb(uint64(h.key), uint64(h.expanded(local, local+1)[0]))
	if h.relation.disjoint {
		s = absorb(s, uint64(h.target.forest.trees.data[local]))
	}
	return stream(s)
}
