package bitset

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// A set answers as a map does.
func TestSetIsASet(t *testing.T) {
	rng := explore.Rand(t, 1, 1)
	for _, n := range []int64{1, 63, 64, 65, 300} {
		s, want := New(n), map[int64]bool{}
		require.EqualValues(t, Bytes(n), 8*len(s))
		for range 2000 {
			switch i := rng.Int64N(n); rng.IntN(4) {
			case 0:
				s.Add(i)
				want[i] = true
			case 1:
				require.Equal(t, !want[i], s.Put(i))
				want[i] = true
			default:
				s.Remove(i)
				delete(want, i)
			}
			i := rng.Int64N(n)
			require.Equal(t, want[i], s.Has(i))
			require.Equal(t, want[i], s.Bit(i) == 1)
			next := i
			for next < n && !want[next] {
				next++
			}
			if next == n {
				next = -1
			}
			require.Equal(t, next, s.Next(i))
		}
		require.EqualValues(t, -1, s.Next(64*Words(n)), "beyond its words")
		for range 50 {
			lo, hi := rng.Int64N(n+1), rng.Int64N(n+1)
			var within []int64
			for i := lo; i < hi; i++ {
				if want[i] {
					within = append(within, i)
				}
			}
			require.Equal(t, within, slices.Collect(s.Within(lo, hi)), "from %d to %d of %d", lo, hi, n)
			for i := range s.Within(lo, hi) {
				require.Equal(t, within[0], i, "a caller may stop")
				break
			}
		}
	}
}
