package cache

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/internal/guard"
)

// CountScan counts what Count does, whoever counts a row, and returns the error of the scan, or a panic.
func TestCountScan(t *testing.T) {
	rng := explore.Rand(t, 1, 32)
	rows := make([]int64, 5*countedAtOnce+17)
	for _, numRows := range []int{1, countShare, 3*countShare + 5} {
		for i := range rows {
			rows[i] = int64(rng.IntN(numRows))
		}
		want := make([]uint32, numRows)
		want[numRows/2] = math.MaxUint32 - 1
		start := slices.Clone(want)
		Count(want, rows)
		for threads := 1; threads <= 4; threads++ {
			got, failed := slices.Clone(start), error(nil)
			err := countScan(threads, got, func(count func([]int64)) error {
				for part := range slices.Chunk(rows, 1000) {
					piece := slices.Clone(part)
					count(piece)
					clear(piece) // a scan uses its memory again
				}
				return failed
			})
			require.NoError(t, err)
			require.Equal(t, want, got, "%d rows, %d threads", numRows, threads)
			failed = context.Canceled
			require.ErrorIs(t, countScan(threads, got, func(func([]int64)) error { return failed }), failed)
		}
	}
	var panicked *guard.PanicError
	err := countScan(2, make([]uint32, 2*countShare), func(count func([]int64)) error {
		count(slices.Repeat([]int64{2*countShare + 1}, 9*countedAtOnce))
		return nil
	})
	require.ErrorAs(t, err, &panicked)
}
