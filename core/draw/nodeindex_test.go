package draw

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodeIndex(t *testing.T) {
	var f nodeIndex
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, 2, 3, 100, 5000, 7} {
		f.begin(n)
		seen := map[int64]int32{}
		for i := range int32(n) {
			node := rng.Int64N(int64(n)) * (math.MaxUint32 / int64(n))
			want, found := seen[node]
			if !found {
				want, seen[node] = i, i
			}
			first, again := f.add(node, i)
			require.Equal(t, want, first)
			require.Equal(t, found, again)
		}
	}
}
