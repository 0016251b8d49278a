package cache

import (
	"fmt"
	"math"

	"freshgo/core/mem"
)

// Vector is a Hotness in memory of a budget.
type Vector struct {
	Hotness
	block *mem.Block
}

// NewVector returns scores of 0. It returns ErrCapacity for more than MaxRows rows, and
// mem.ErrBudget.
func NewVector(budget *mem.Budget, numRows int64) (*Vector, error) {
	if numRows < 0 || numRows > MaxRows {
		return nil, fmt.Errorf("cache: a policy needs a number of rows within [0, %d], got %d: %w",
			int64(MaxRows), numRows, ErrCapacity)
	}
	block, err := budget.Alloc(mem.FeatureCache, numRows*scoreBytes)
	if err != nil {
		return nil, err
	}
	return &Vector{Hotness: mem.Slice[float32](block), block: block}, nil
}

const scoreBytes = 4

// Static makes a cache of the k hottest rows. It turns the scores into the
// address table where they are, so that ranking never takes more memory than the
// policy does; the vector is closed.
func (v *Vector) Static(k int64) *Static {
	s := &Static{block: v.block, slots: mem.Slice[int32](v.block)}
	top := v.ranking(min(k, math.MaxInt32))
	for row, score := range v.Hotness {
		slot := int32(Miss)
		if top.takes(score) {
			slot = int32(s.held)
			s.held++
		}
		s.slots[row] = slot // the score of a row is not looked at again
	}
	v.Hotness, v.block = nil, nil
	if s.held == 0 {
		s.Close()
	}
	return s
}

// Close frees the memory; further calls do nothing.
func (v *Vector) Close() {
	if v.block != nil {
		v.block.Free()
	}
	v.Hotness, v.block = nil, nil
}

// Check checks a user's scores. The error wraps ErrHotness and names the first score that is negative or not finite, or
// the number of scores if that is wrong.
func Check(scores Hotness, numRows int64) error {
	if int64(len(scores)) != numRows {
		return fmt.Errorf("cache: hotness has %d scores, expected one for each of %d nodes: %w",
			len(scores), numRows, ErrHotness)
	}
	for i, s := range scores {
		if !(s >= 0 && s <= math.MaxFloat32) { // NaN fails both
			return fmt.Errorf("cache: hotness of node %d is %v, expected a finite number that is not negative: %w", i, s,
				ErrHotness)
		}
	}
	return nil
}
