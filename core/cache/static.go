package cache

import (
	"fmt"
	"iter"
	"math"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
)

// addressBytes is the cost of an address table per row: direct addressing, an
// entry for every row and Miss where it is not cached (Ginex, section 4.2).
//
// A hash table was rejected: it costs more than four bytes a row at the cache
// ratios of interest (above 10 %) and a second dependent load per look-up.
const addressBytes = 4

// Static is a cache that is filled once and never changes: the general caching
// scheme of FGNN, section 6.1. Unlike other policies, its Step may be called by
// any number of goroutines at a time.
type Static struct {
	block *mem.Block // nil when nothing is cached
	slots []int32    // by row
	held  int64
}

// NewStatic assigns the slots 0, 1, 2 and so on to these rows, in order: Hotness.Top ascends. The caller then fills the
// slots (see Rows).
//
// It returns ErrCapacity for more than MaxRows rows, or mem.ErrBudget.
func NewStatic(budget *mem.Budget, numRows int64, rows iter.Seq[uint32]) (*Static, error) {
	if numRows < 0 || numRows > MaxRows {
		return nil, fmt.Errorf("cache: a policy needs a number of rows within [0, %d], got %d: %w",
			int64(MaxRows), numRows, ErrCapacity)
	}
	s := &Static{}
	for row := range rows {
		if s.block == nil {
			block, err := budget.Alloc(mem.FeatureCache, numRows*addressBytes)
			if err != nil {
				return nil, err
			}
			s.block, s.slots = block, mem.Slice[int32](block)
			for i := range s.slots {
				s.slots[i] = Miss
			}
		}
		if s.held == math.MaxInt32 {
			s.Close()
			return nil, fmt.Errorf("cache: capacity must be within [0, %d] rows, got more: %w", math.MaxInt32, ErrCapacity)
		}
		s.slots[row] = int32(s.held)
		s.held++
	}
	return s, nil
}

// Len returns the number of cached rows.
func (s *Static) Len() int64 { return s.held }

// Rows yields the cached rows with their slots; the rows rise.
func (s *Static) Rows() iter.Seq2[int32, uint32] {
	return func(yield func(slot int32, row uint32) bool) {
		for row, slot := range s.slots {
			if slot >= 0 && !yield(slot, uint32(row)) {
				return
			}
		}
	}
}

// Step implements Policy; nothing ever enters.
func (s *Static) Step(rows []uint32, step *Step) {
	step.In = step.In[:0]
	step.Slots = reuse.Slice(step.Slots, len(rows))
	lookUp(s.slots, rows, step.Slots)
}

// Close implements Policy.
func (s *Static) Close() {
	if s.block != nil {
		s.block.Free()
	}
	s.block, s.slots, s.held = nil, nil, 0
}

// ahead is the number of rows that a step prefetches before it handles them: two
// groups of lines take 16 of the 32 KiB and more of a first-level cache. Arbitrary
// below.
const ahead = 128

// lookUp writes the entries of these rows; without a table all are misses.
func lookUp(addresses []int32, rows []uint32, out []int32) {
	if len(addresses) == 0 {
		for i := range out {
			out[i] = Miss
		}
		return
	}
	asm.Prefetch(addresses, rows[:min(ahead, len(rows))])
	for lo := 0; lo < len(rows); lo += ahead {
		mid := min(lo+ahead, len(rows))
		asm.Prefetch(addresses, rows[mid:min(mid+ahead, len(rows))])
		part := out[lo:mid]
		for i, row := range rows[lo:mid] {
			part[i] = addresses[row]
		}
	}
}
