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

// importance returns the worth of caching a list of degree in-edges: its requests
// by its size (Ginex, section 3.2, after AliGraph: out-degree by in-degree). unit
// is the size of an in-edge, in the greatest common divisor of the sizes of all
// kinds: 1 where there is one kind.
func importance(wanted float32, degree, unit int64) float32 { return wanted / float32(degree*unit) }

// chooser takes lists in the order of their rank while they fit. It does not sort all lists, which would take eight
// bytes a node and most of the time. By histograms it finds the rank down to which all lists fit together, takes these
// in any order, and sorts only the following lists that are short enough for the remaining room.
type chooser struct {
	ctx    context.Context
	kinds  []kind
	room   int64 // bits that are left
	below  int64 // the lists of this key and higher ones have been gone through
	sorted []ranked
}

// kind is the lists of one of the arguments of NewNeighbors.
type kind struct {
	*Lists
	chosen   *Neighbors
	edgeBits int64
	unit     int64 // see importance; set by choose
}

// ranked is a list with its key. Keys order as importance does: bit patterns of
// floats that are not negative order as the floats do.
type ranked struct {
	key  uint32
	kind int32
	node int64
}

const (
	keyBits   = 32
	digitBits = 16 // of a key at a time: two passes, and most keys share few of the higher digits

	// sortedShare is the part of the nodes, as a divisor, that is sorted at a time
	// at most: it bounds both the rounds and the scratch. Arbitrary.
	sortedShare = 32
	minSorted   = 1 << 10

	// chooseStep is the number of nodes between two checks of the context.
	// Arbitrary: a few milliseconds.
	chooseStep = 1 << 18
)

// NeighborScratchBytes returns the memory of NewNeighbors for choosing among numLists lists, in addition to the address
// tables.
func NeighborScratchBytes(numLists int64) int64 {
	return max(minSorted, numLists/sortedShare) * int64(unsafe.Sizeof(ranked{})) // unsafe: only a size
}

func (c *chooser) choose(budget *mem.Budget) error {
	numLists, common := int64(0), int64(0)
	for _, k := range c.kinds {
		numLists += int64(len(k.Wanted))
		common = divisor(k.edgeBits, common)
	}
	for i := range c.kinds {
		c.kinds[i].unit = c.kinds[i].edgeBits / common
	}
	ranks, err := budget.Alloc(mem.Staging, NeighborScratchBytes(numLists))
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

// divisor returns the greatest common divisor.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// takeWhatFits takes all candidates above the highest key whose lists do not all fit, and from that key those that fit.
func (c *chooser) takeWhatFits() error {
	threshold, above, err := c.threshold(c.room, true)
	if err != nil {
		return err
	}
	longest := c.room
	c.room -= above
	err = c.candidates(threshold, longest, func(r ranked) {
		if int64(r.key) > threshold {
			c.kinds[r.kind].chosen.add(r.node)
		} else {
			c.take(r)
		}
	})
	c.below = max(threshold, 0)
	return err
}

// takeSorted takes the next candidates that fit in sorted order, as many as the room for sorting allows.
func (c *chooser) takeSorted() error {
	threshold, _, err := c.threshold(int64(len(c.sorted)), false)
	if err != nil {
		return err
	}
	next := c.sorted[:0]
	err = c.candidates(threshold+1, c.room, func(r ranked) { next = append(next, r) })
	if err != nil {
		return err
	}
	slices.SortFunc(next, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.kind, b.kind), cmp.Compare(a.node, b.node))
	})
	for _, r := range next {
		c.take(r)
	}
	c.below = threshold + 1
	if threshold < 0 {
		return nil
	}
	return c.takeEqual(threshold)
}

// takeEqual goes through the candidates of one key, the next: they are as
// important as one another and stand in the order of kinds and nodes already.
func (c *chooser) takeEqual(key int64) error {
	err := c.candidates(key, c.room, c.take)
	c.below = key
	return err
}

// take takes a list if it fits.
func (c *chooser) take(r ranked) {
	k := &c.kinds[r.kind]
	if size := k.chosen.degree(r.node) * k.edgeBits; size <= c.room {
		k.chosen.add(r.node)
		c.room -= size
	}
}

// listBlock is the lists of some nodes that follow one another, computed at once.
type listBlock struct {
	kind  int32
	first int64    // node
	keys  []uint32 // by node
	bits  []int64  // of its list; 0: it is no candidate
}

// blockNodes is the size of a listBlock, which stays in the first-level cache. Arbitrary beyond.
const blockNodes = 1 << 10

// blocks visits all nodes, in their order. Candidates are lists of at most longest bits, but for
// empty ones, with a key below c.below.
func (c *chooser) blocks(longest int64, visit func(b *listBlock)) error {
	var keys [blockNodes]uint32
	var bits [blockNodes]int64
	for i, k := range c.kinds {
		b := listBlock{kind: int32(i)}
		for lo := 0; lo < len(k.Wanted); lo += blockNodes {
			if lo%chooseStep == 0 && c.ctx.Err() != nil {
				return fmt.Errorf("cache: choosing neighbour lists: %w", c.ctx.Err())
			}
			wanted := k.Wanted[lo:min(lo+blockNodes, len(k.Wanted))]
			b.first, b.keys, b.bits = int64(lo), keys[:len(wanted)], bits[:len(wanted)]
			k.Indptr.Degrees(int64(lo), b.bits)
			for v, degree := range b.bits {
				key, size := math.Float32bits(importance(wanted[v], degree, k.unit)), degree*k.edgeBits
				if size > longest || int64(key) >= c.below {
					size = 0
				}
				b.keys[v], b.bits[v] = key, size
			}
			visit(&b)
		}
	}
	return nil
}

// candidates visits, in their order, the candidates of a key from lowest on.
func (c *chooser) candidates(lowest, longest int64, visit func(r ranked)) error {
	return c.blocks(longest, func(b *listBlock) {
		for v, size := range b.bits {
			if size > 0 && int64(b.keys[v]) >= lowest {
				visit(ranked{b.keys[v], b.kind, b.first + int64(v)})
			}
		}
	})
}

// threshold returns the highest key for which the candidates of this and higher keys together weigh more than limit,
// and the weight of the candidates above it: their bits, or else 1 each. Without such a key it returns -1 and the
// weight of all.
func (c *chooser) threshold(limit int64, bySize bool) (key, above int64, err error) {
	histogram := make([]int64, 1<<digitBits)
	for shift := keyBits - digitBits; shift >= 0; shift -= digitBits {
		clear(histogram)
		prefix := key // of the bits that are known
		err := c.blocks(c.room, func(b *listBlock) {
			for v, weight := range b.bits {
				if k := int64(b.keys[v]) >> shift; weight > 0 && k>>digitBits == prefix {
					if !bySize {
						weight = 1
					}
					histogram[k%(1<<digitBits)] += weight
				}
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
		key = key<<digitBits | digit
	}
	return key, above, nil
}
