package sample

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// Times of any range are sorted as a stable sort does.
func TestTimedSortsStably(t *testing.T) {
	explore.Figures(t)
	rng := newReferenceRNG(7, 3)
	for _, n := range []int{0, 1, 2, insertionTimes, insertionTimes + 1, 1000, 70000} {
		for name, draw := range map[string]func() int64{
			"equal":    func() int64 { return 5 },
			"few":      func() int64 { return rng.below(3) - 1 },
			"a digit":  func() int64 { return rng.below(256) - 300 },
			"two":      func() int64 { return rng.below(257) + 1<<40 },
			"seconds":  func() int64 { return 1_700_000_000 + rng.below(1<<28) },
			"all":      func() int64 { return int64(rng.next()) },
			"extremes": func() int64 { return []int64{math.MinInt64, math.MaxInt64, 0, -1}[rng.below(4)] },
		} {
			want := make([]timedAt, n)
			l := timed{make([]int64, n), make([]uint32, n)}
			for i := range want {
				want[i] = timedAt{draw(), uint32(i)}
				l.times[i] = want[i].time
			}
			slices.SortStableFunc(want, func(a, b timedAt) int {
				switch {
				case a.time < b.time:
					return -1
				case a.time > b.time:
					return 1
				}
				return 0
			})
			l.number()
			l = l.sorted(timed{make([]int64, n), make([]uint32, n)})
			for i, w := range want {
				require.Equal(t, w, timedAt{l.times[i], l.offsets[i]}, "%d %s", n, name)
			}
		}
	}
}

type timedAt struct {
	time   int64
	offset uint32
}
