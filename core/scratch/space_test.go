package scratch

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// Extents never overlap, nothing is lost, and a request is refused only when fewer chunks are free.
func TestSpace(t *testing.T) {
	const total = 64
	for seed := range uint64(300) {
		random := explore.Rand(t, seed, 1)
		s := newSpace(total)
		owner := [total]int{}
		held := map[int][]extent{}
		free := int64(total)
		for id := 1; id < 200; id++ {
			if random.IntN(2) == 0 {
				n := 1 + random.Int64N(20)
				longest := int64(0)
				for _, e := range s.free {
					longest = max(longest, e.count)
				}
				taken := s.take(n)
				require.Equal(t, n > free, taken == nil)
				if taken == nil {
					continue
				}
				require.Equal(t, n, chunks(taken))
				require.Equal(t, n <= longest, len(taken) == 1, "in one piece where it can be")
				require.True(t, slices.IsSortedFunc(taken, func(a, b extent) int { return int(a.first - b.first) }))
				for _, e := range taken {
					for c := e.first; c < e.first+e.count; c++ {
						require.Zero(t, owner[c])
						owner[c] = id
					}
				}
				held[id] = taken
				free -= n
			} else if len(held) > 0 {
				ids := make([]int, 0, len(held))
				for id := range held {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				gone := ids[random.IntN(len(ids))]
				s.give(held[gone])
				free += chunks(held[gone])
				delete(held, gone)
				for c := range owner {
					if owner[c] == gone {
						owner[c] = 0
					}
				}
			}
			require.Equal(t, free, chunks(s.free))
			for i, e := range s.free {
				require.Positive(t, e.count)
				require.True(t, i == 0 || s.free[i-1].first+s.free[i-1].count < e.first, "joined and in order")
			}
		}
	}
	require.Nil(t, (&space{}).take(1))
	require.Equal(t, space{}, newSpace(0))
}

// The smallest extent that is long enough is taken, at its lower end.
func TestSpaceKeepsLongExtentsWhole(t *testing.T) {
	s := newSpace(100)
	a, b, c := s.take(10), s.take(5), s.take(10)
	require.Equal(t, []extent{{0, 10}}, a)
	s.give(a)
	require.Equal(t, []extent{{0, 3}}, s.take(3), "of ten, not of the rest")
	require.Equal(t, []extent{{25, 8}}, s.take(8), "of the rest: seven are left of the ten")
	s.give(b)
	s.give(c)
	require.Equal(t, []extent{{3, 22}, {33, 67}}, s.free)
}

// TestCut: what is cut off is the free end, and comes back by give.
func TestCut(t *testing.T) {
	s := newSpace(10)
	taken := s.take(4)
	require.Equal(t, extent{6, 4}, s.cut(6))
	require.Nil(t, s.take(3))
	require.Equal(t, []extent{{4, 2}}, s.take(2))
	require.Zero(t, s.cut(6))
	s.give(taken)
	require.Zero(t, s.cut(6), "chunks that were taken stay")
	s.give([]extent{{6, 4}})
	require.EqualValues(t, 8, chunks(s.free))
}
