package sample

import (
	"context"
	"fmt"
	"math"
	"slices"

	"freshgo/core/mem"
)

// nodeSet is the nodes of one type in a batch, and the id map that numbers them.
type nodeSet struct {
	budget   *mem.Budget
	numNodes int64 // of the graph
	disjoint bool  // nodes are words and have a forest, see disjoint.go
	moved    bool  // nodes may move while others are expanded from them: front has those that are
	n        int   // nodes numbered

	ids    idMap
	nodes  buffer[int64]
	forest forest

	first, end int           // the nodes that the current hop expands
	front      buffer[int64] // their global ids
	perHop     []int64
}

func (s *nodeSet) free() {
	s.ids.free()
	freeAll(s.rooms(nodesRoom{}))
}

// initIDs makes an id map of nodes, or of words.
func (s *nodeSet) initIDs(stamp bool) error {
	if s.disjoint {
		return s.ids.init(s.budget, math.MaxInt64, false)
	}
	return s.ids.init(s.budget, s.numNodes, stamp)
}

// begin checks the seeds and numbers them. In a disjoint batch firstTree is the tree of the first.
func (s *nodeSet) begin(ctx context.Context, seeds []int64, firstTree, hops int) error {
	for i, v := range seeds {
		if v < 0 || v >= s.numNodes {
			return badSeed(v, i, s.numNodes)
		}
	}
	s.n = 0
	s.ids.begin()
	if err := s.ids.reserve(nil, len(seeds)); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if err := s.nodes.grow(s.budget, mem.Trace, int64(len(seeds)), 0); err != nil {
		return err
	}
	copy(s.nodes.data, seeds)
	if s.disjoint {
		s.packSeeds(seeds, firstTree)
	}
	for part := range slices.Chunk(s.nodes.data[:len(seeds)], ahead) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		prefetchIDs(&s.ids, part)
		s.ids.insert(s.nodes.data, s.n, s.n+len(part))
		s.n += len(part)
	}
	s.first, s.end = 0, s.n
	s.perHop = append(make([]int64, 0, hops+1), int64(s.n))
	if s.disjoint {
		return s.unpackTrees()
	}
	return nil
}

func badSeed(v int64, at int, numNodes int64) error {
	return fmt.Errorf("sample: seed %d at index %d, expected a node in [0, %d): %w", v, at, numNodes, ErrSeed)
}

// beginHop makes the targets of a hop ready to be expanded.
func (s *nodeSet) beginHop() error {
	if !s.moved || s.disjoint { // the ids of trees are in the forest, which does not change in a hop
		return nil
	}
	targets := s.nodes.data[s.first:s.end]
	if err := s.front.grow(s.budget, mem.Trace, int64(len(targets)), 0); err != nil {
		return err
	}
	copy(s.front.data, targets)
	return nil
}

// endHop counts what a hop has reached, the targets of the next.
func (s *nodeSet) endHop() error {
	s.perHop = append(s.perHop, int64(s.n-s.end))
	s.first, s.end = s.end, s.n
	if s.disjoint {
		return s.unpackTrees()
	}
	return nil
}

// targets is the global ids of nodes that the hop expands, by local ids.
func (s *nodeSet) targets(first, end int) []int64 {
	switch {
	case s.disjoint:
		return s.forest.ids.data[first:end]
	case s.moved:
		return s.front.data[first-s.first : end-s.first]
	}
	return s.nodes.data[first:end]
}

// before is the global ids of the nodes that were numbered before the hop, which once all have ended are all nodes.
func (s *nodeSet) before() []int64 {
	if s.disjoint {
		return s.forest.ids.data[:s.end]
	}
	return s.nodes.data[:s.end]
}

// newNodes returns the number of a type's nodes that the edges can reach at most.
func newNodes(edges, numNodes int64, disjoint bool) int64 {
	if disjoint {
		return edges
	}
	return min(edges, numNodes)
}
