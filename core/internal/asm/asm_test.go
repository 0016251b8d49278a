package asm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Prefetch has no visible result; what can go wrong is a fault or a loop that runs past its array, up to unmapped
// memory.
func TestPrefetchIsHarmless(t *testing.T) {
	table := []uint64{1, 2, 3}
	for n := range 10 {
		wide, narrow, signed := make([]int64, n), make([]uint32, n), make([]int32, n)
		for i := range n {
			wide[i], narrow[i], signed[i] = int64(i)<<60-1, ^uint32(i), int32(-i)
		}
		Prefetch(table, wide)
		Prefetch(table, narrow)
		Prefetch(table, signed)
		Prefetch([]uint32(nil), wide)
		PrefetchRange(unsafe.Pointer(&table[0]), 100*n) // unsafe: only prefetched, also beyond the table
	}
	require.Equal(t, []uint64{1, 2, 3}, table)
}
