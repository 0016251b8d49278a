package plan

import (
	"context"
	"fmt"
	"math/bits"

	"freshgo/core/cache"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// sketchBins is the size of a sketch: overlaps are then estimated to within about 0.008 (one standard deviation). Pairs
// of batches of shuffled seeds differ by some 0.03: of the rows that Match saves in the exact order, 256 bins found a
// fifth to three quarters, 4096 found 0.7 to all (bench/papers/fastgl.py).
const (
	sketchBits = 12
	sketchBins = 1 << sketchBits
)

// sketch stands for a set of rows: the smallest hash in each of the bins into which hashes are divided (MinHash by one
// permutation).
type sketch [sketchBins]uint32

func (s *sketch) of(rows Batch) {
	for i := range s {
		s[i] = none
	}
	for _, row := range rows {
		h := mix(row)
		if bin := &s[h>>(32-sketchBits)]; h < *bin {
			*bin = h
		}
	}
}

// matchDegree estimates |a and b| / min(|a|, |b|) (FastGL, section 4.2) for two sets of these sizes.
func matchDegree(a, b *sketch, sizeA, sizeB int) float64 {
	same, either := 0, 0
	for i, x := range a {
		if y := b[i]; x == y {
			if x != none {
				same++
				either++
			}
		} else {
			either++
		}
	}
	if same == 0 {
		return 0
	}
	jaccard := float64(same) / float64(either)
	return min(1, jaccard/(1+jaccard)*float64(sizeA+sizeB)/float64(min(sizeA, sizeB)))
}

// Reorder returns the order in which to run batches so that neighbours share rows (FastGL, section 4.2): the first one
// first, then always the batch that matches the last one best, on ties the earlier. It keeps this order only if the
// cache that c describes, which is initially empty, reads fewer rows than in the given order; else it returns the given
// order. The result is always a permutation, and a pure function of the arguments.
//
// It costs O(batches^2) comparisons of sketches, 12 us each, and two simulations of all batches, in the memory of
// ReorderBytes: sketches of 16 KiB a batch, and then the simulations.
//
// It returns ErrBatch, ErrConfig, mem.ErrBudget, or the error of ctx.
func Reorder(ctx context.Context, budget *mem.Budget, batches []Batch, c Simulation) ([]int32, error) {
	order, err := greedyOrder(ctx, budget, batches)
	if err != nil {
		return nil, err
	}
	if err := c.check(batches); err != nil {
		return nil, err
	}
	rows, err := renumber(budget, batches, &c)
	if err != nil {
		return nil, err
	}
	defer rows.memory.Free()
	given, err := readsOf(ctx, budget, rows.batches, c)
	if err != nil {
		return nil, err
	}
	moved := make([]Batch, len(batches))
	for i, b := range order {
		moved[i] = rows.batches[b]
	}
	reads, err := readsOf(ctx, budget, moved, c)
	if err != nil {
		return nil, err
	}
	if reads >= given {
		for i := range order {
			order[i] = int32(i)
		}
	}
	return order, nil
}

// ReorderBytes returns the memory that Reorder takes for batches with the given number of rows in total, for a cache of
// an online policy.
func ReorderBytes(batches, rows int64, c *Simulation) int64 {
	words, distinct := bitset.Words(c.NumRows), min(rows, c.NumRows)
	return max(batches*size[sketch](), 8*words+4*(words+rows)+cache.PolicyBytes(c.Policy, distinct, c.Capacity))
}

// renumbered holds batches whose rows have consecutive numbers, in the order of their old ones.
type renumbered struct {
	batches []Batch
	memory  *mem.Block
}

// renumber gives the rows of batches consecutive numbers, so that simulations have no tables of the whole graph, and
// sets c.NumRows to their number.
func renumber(budget *mem.Budget, batches []Batch, c *Simulation) (*renumbered, error) {
	total := int64(0)
	for _, rows := range batches {
		total += int64(len(rows))
	}
	words := bitset.Words(c.NumRows)
	memory, err := budget.Alloc(mem.Trace, 8*words+4*(words+total))
	if err != nil {
		return nil, err
	}
	present := bitset.Set(mem.View[uint64](memory.Bytes()[:8*words]))
	numbers := mem.View[uint32](memory.Bytes()[8*words:])
	below, numbers := numbers[:words], numbers[words:] // the number of present rows before each word
	for _, rows := range batches {
		for _, row := range rows {
			present.Add(int64(row))
		}
	}
	count := uint32(0)
	for i, word := range present {
		below[i] = count
		count += uint32(bits.OnesCount64(word))
	}
	r := &renumbered{memory: memory, batches: make([]Batch, len(batches))}
	for b, rows := range batches {
		r.batches[b], numbers = numbers[:len(rows)], numbers[len(rows):]
		for i, row := range rows {
			before := present[row>>6] & (1<<(row&63) - 1)
			r.batches[b][i] = below[row>>6] + uint32(bits.OnesCount64(before))
		}
	}
	c.NumRows = int64(count)
	return r, nil
}

func readsOf(ctx context.Context, budget *mem.Budget, batches []Batch, c Simulation) (reads int64, err error) {
	_, err = Simulate(ctx, budget, batches, c, func(_ int, c Counts) { reads += c.Reads })
	return reads, err
}

func greedyOrder(ctx context.Context, budget *mem.Budget, batches []Batch) ([]int32, error) {
	block, err := budget.Alloc(mem.Trace, int64(len(batches))*size[sketch]())
	if err != nil {
		return nil, err
	}
	defer block.Free()
	sketches := mem.Slice[sketch](block)
	left := make([]int32, 0, len(batches)) // those not placed yet, rising
	for i, b := range batches {
		sketches[i].of(b)
		left = append(left, int32(i))
	}
	order := make([]int32, 0, len(batches))
	for at := 0; len(left) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		last := left[at]
		order = append(order, last)
		left = append(left[:at], left[at+1:]...)
		at = 0
		best := -1.0
		for i, b := range left {
			if m := matchDegree(&sketches[last], &sketches[b], len(batches[last]), len(batches[b])); m > best {
				at, best = i, m
			}
		}
	}
	return order, nil
}
