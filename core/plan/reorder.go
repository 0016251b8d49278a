package plan

import (
	"context"
	"fmt"

	"freshgo/core/mem"
)

// sketchBins is the size of a sketch: overlaps are then estimated to within about 0.03 (one standard deviation).
const (
	sketchBits = 8
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
// first, then always the batch that matches the last one best, on ties the earlier. It keeps this order only if a cache
// of the given capacity, initially empty and planned over the whole of it, reads fewer rows than in the given order;
// else it returns the given order. The result is always a permutation, and a pure function of the arguments.
//
// It costs O(batches^2) comparisons of sketches, 0.1 us each, a kilobyte a batch, and two plans of all batches.
//
// It returns ErrBatch, ErrConfig, mem.ErrBudget, or the error of ctx.
func Reorder(ctx context.Context, budget *mem.Budget, batches []Batch, numRows, capacity int64) ([]int32, error) {
	order, err := greedyOrder(ctx, budget, batches)
	if err != nil {
		return nil, err
	}
	given, err := readsOf(ctx, budget, batches, numRows, capacity)
	if err != nil {
		return nil, err
	}
	moved := make([]Batch, len(batches))
	for i, b := range order {
		moved[i] = batches[b]
	}
	reads, err := readsOf(ctx, budget, moved, numRows, capacity)
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

func readsOf(
	ctx context.Context, budget *mem.Budget, batches []Batch, numRows, capacity int64,
) (reads int64, err error) {
	s := Simulation{NumRows: numRows, Capacity: capacity, Policy: "belady", CarryOver: true}
	_, err = Simulate(ctx, budget, batches, s, func(_ int, c Counts) { reads += c.Reads })
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
