package asm

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVisits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= VisitsLimit+1; n++ {
		for _, nodes := range []int64{1, 2, 5, 40, 1 << VisitBits} {
			for _, ended := range []int{0, 0, 3, n} {
				visits, times := make([]int64, n), map[int64]int64{}
				for i := range visits {
					if visits[i] = rng.Int64N(nodes); nodes > 40 && i%2 == 0 {
						visits[i] = nodes - 1 - visits[i]%3
					}
				}
				for range min(ended, n) {
					visits[rng.IntN(n)] = -1
				}
				var want []int64
				for _, v := range visits {
					if v >= 0 {
						times[v]++
						want = append(want, v)
					}
				}
				slices.SortFunc(want, func(a, b int64) int { return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b)) })
				before := slices.Clone(visits)
				number, ok := Visits(visits)
				require.Equal(t, Lanes && n <= VisitsLimit, ok)
				if !ok {
					require.Equal(t, before, visits)
					continue
				}
				require.Equal(t, len(want), number)
				for i, v := range want {
					node, often := Visited(visits[i])
					require.Equal(t, v, node)
					require.Equal(t, times[v], often)
				}
			}
		}
	}
}
