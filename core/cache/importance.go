package cache

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"freshgo/core/mem"
)

// Importance turns the out-degree of every node into the importance of caching
// its in-edges, in place: out-degree / in-degree (Ginex, section 3.2, after
// AliGraph). The out-degree is for how many targets the node can be drawn, and
// so how often its own list is wanted; the in-degree is what that list costs. A
// node without in-edges has no list and the importance 0.
func Importance(outDegrees Hotness, indptr []int64) Hotness {
	for v := range outDegrees {
		if degree := indptr[v+1] - indptr[v]; degree > 0 {
			outDegrees[v] /= float32(degree)
		} else {
			outDegrees[v] = 0
		}
	}
	return outDegrees
}

// chooser goes through the lists in the order of their rank and takes those that
// fit. It does not sort all nodes: that takes eight bytes a node and most of the
// time. It finds by histograms the rank down to which all lists fit together,
// takes those in any order, and sorts only what comes after it and is short
// enough for the room that is left.
type chooser struct {
	ctx        context.Context
	neighbors  *Neighbors
	importance Hotness
	room       int64 // in-edges that still fit
	below      int64 // the nodes of this key and higher ones have been gone through
	sorted     []ranked
}

// ranked is a node with its key. Keys order as importance does: bit patterns of
// floats that are not negative order as the floats do.
type ranked struct {
	key  uint32
	node int64
}

const (
	keyBits   = 32
	digitBits = 11 // of a key at a time: the counts stay within the first-level cache

	// sortedShare is the part of the nodes, as a divisor, that is sorted at a time
	// at most: it bounds both the rounds and the scratch. Arbitrary.
	sortedShare = 32
	minSorted   = 1 << 10

	// chooseStep is how many nodes pass between two looks at the context.
	// Arbitrary: a few milliseconds.
	chooseStep = 1 << 18
)

// NeighborScratchBytes is what NewNeighbors needs while it chooses, beside the
// address table.
func NeighborScratchBytes(numNodes int64) int64 {
	return max(minSorted, numNodes/sortedShare) * int64(unsafe.Sizeof(ranked{})) // unsafe: only a size
}

func (c *chooser) choose() error {
	ranks, err := c.neighbors.budget.Alloc(mem.Staging, NeighborScratchBytes(int64(len(c.importance))))
	if err != nil {
		return err
	}
	defer ranks.Free()
	c.sorted = mem.Slice[ranked](ranks)
	c.below = 1 << keyBits
	for sorted := false; c.below > 0 && c.room > 0; sorted = !sorted {
		step := c.takeWhatFits
		if sorted {
			step = c.takeSorted
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// takeWhatFits takes all candidates down to the highest key whose nodes do not
// all fit, and of those what fits.
func (c *chooser) takeWhatFits() error {
	threshold, above, err := c.threshold(c.room, func(degree int64) int64 { return degree })
	if err != nil {
		return err
	}
	err = c.candidates(threshold+1, c.room, func(v, _, _ int64) { c.neighbors.add(v) })
	c.room -= above
	c.below = threshold + 1
	if err != nil || threshold < 0 {
		return err
	}
	return c.takeEqual(threshold)
}

// takeSorted goes through the next candidates, as many as can be sorted.
func (c *chooser) takeSorted() error {
	threshold, _, err := c.threshold(int64(len(c.sorted)), func(int64) int64 { return 1 })
	if err != nil {
		return err
	}
	next := c.sorted[:0]
	err = c.candidates(threshold+1, c.room, func(v, key, _ int64) { next = append(next, ranked{uint32(key), v}) })
	if err != nil {
		return err
	}
	slices.SortFunc(next, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.node, b.node))
	})
	for _, r := range next {
		c.take(r.node)
	}
	c.below = threshold + 1
	if threshold < 0 {
		return nil
	}
	return c.takeEqual(threshold)
}

// takeEqual goes through the candidates of one key, the next: they are as
// important as one another and stand in the order of the nodes already.
func (c *chooser) takeEqual(key int64) error {
	err := c.candidates(key, c.room, func(v, _, _ int64) { c.take(v) })
	c.below = key
	return err
}

// take takes a list if it fits.
func (c *chooser) take(v int64) {
	if degree := c.neighbors.degree(v); degree <= c.room {
		c.neighbors.add(v)
		c.room -= degree
	}
}

// candidates visits, in their order, the nodes with a list of at most longest
// in-edges and a key from lowest up to, but not including, below.
func (c *chooser) candidates(lowest, longest int64, visit func(v, key, degree int64)) error {
	indptr := c.neighbors.indptr
	for lo := 0; lo < len(c.importance); lo += chooseStep {
		if err := c.ctx.Err(); err != nil {
			return fmt.Errorf("cache: choosing neighbour lists: %w", err)
		}
		for v := lo; v < min(lo+chooseStep, len(c.importance)); v++ {
			degree := indptr[v+1] - indptr[v]
			key := int64(math.Float32bits(c.importance[v]))
			if key < c.below && key >= lowest && degree > 0 && degree <= longest {
				visit(int64(v), key, degree)
			}
		}
	}
	return nil
}

// threshold returns the highest key for which the candidates of this and higher
// keys weigh more than limit together, and the weight of those above it. Without
// such a key it returns -1 and the weight of all.
func (c *chooser) threshold(limit int64, weight func(degree int64) int64) (key, above int64, err error) {
	for left := keyBits; left > 0; { // bits of the key that are still unknown
		shift := max(left-digitBits, 0)
		var histogram [1 << digitBits]int64
		err := c.candidates(key<<left, c.room, func(_, k, degree int64) {
			if k>>left == key {
				histogram[k>>shift%(1<<(left-shift))] += weight(degree)
			}
		})
		if err != nil {
			return 0, 0, err
		}
		digit := int64(len(histogram)) - 1
		for ; digit >= 0 && above+histogram[digit] <= limit; digit-- {
			above += histogram[digit]
		}
		if digit < 0 { // only of the first digit: below it, the bucket chosen exceeds limit
			return -1, above, nil
		}
		key = key<<(left-shift) | digit
		left = shift
	}
	return key, above, nil
}
