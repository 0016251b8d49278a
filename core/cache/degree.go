package cache

import (
	"math"
	"unsafe"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// Counted scores rows by what fill counts of each, which begins with zeros. With the edges of a node to others, Count
// of their sources, this is the degree metric of PaGraph (FGNN, section 6.1).
func Counted(budget *mem.Budget, numRows int64, fill func(counts []uint32) error) (*Vector, error) {
	v, err := NewVector(budget, numRows)
	if err != nil {
		return nil, err
	}
	counts := mem.Slice[uint32](v.block)
	clear(counts)
	if err := fill(counts); err != nil {
		v.Close()
		return nil, err
	}
	countsAsHotness(counts)
	return v, nil
}

// Count adds 1 to the count of every element, up to the largest number.
func Count[I int64 | uint32](counts []uint32, rows []I) {
	asm.Prefetch(counts, rows[:min(ahead, len(rows))])
	for lo := 0; lo < len(rows); lo += ahead {
		mid := min(lo+ahead, len(rows))
		asm.Prefetch(counts, rows[mid:min(mid+ahead, len(rows))])
		for _, row := range rows[lo:mid] {
			if c := &counts[row]; *c < math.MaxUint32 {
				*c++
			}
		}
	}
}

// countsAsHotness turns counts into scores in place: both are four bytes wide,
// so the scores share the memory of counts. Counts above 2^24 are rounded.
func countsAsHotness(counts []uint32) {
	// unsafe: elements of four bytes with equal alignment, in equal number
	scores := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(counts))), len(counts))
	for i, c := range counts {
		scores[i] = float32(c)
	}
}
