package store

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// TestPairsBelow: numbers are found to be below a limit as one by one, wherever one that is not lies.
func TestPairsBelow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, limit := range []int64{1, 2, 1000, 1<<31 - 1, 1 << 31} {
		for _, n := range []int{8, 64} {
			numbers := make([]uint32, n)
			for i := range numbers {
				numbers[i] = uint32(random.Int64N(limit))
			}
			pairs := mem.View[uint64](mem.Bytes(numbers))
			require.True(t, pairsBelow(pairs, limit))
			for i, is := range numbers {
				for _, wrong := range []int64{limit, limit + 1, 1 << 31, 1<<32 - 1} {
					numbers[i] = uint32(min(wrong, 1<<32-1))
					require.False(t, pairsBelow(pairs, limit), "%d at %d of %d, limit %d", wrong, i, n, limit)
				}
				numbers[i] = is
			}
		}
	}
	require.False(t, pairsBelow(make([]uint64, 4), 1<<31+1), "a limit that it does not know")
	require.False(t, pairsBelow(make([]uint64, 3), 10), "a number of words that it does not know")
	require.False(t, pairsBelow(make([]uint64, 4), -1))
}
