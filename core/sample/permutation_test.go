package sample

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every number comes once, whatever their number.
func TestPermutationIsOne(t *testing.T) {
	for n := int64(1); n < 70; n++ {
		checkPermutation(t, n)
	}
	for _, n := range []int64{255, 256, 257, 1 << 12, 1<<12 + 1, 1 << 13} {
		checkPermutation(t, n)
	}
}

func checkPermutation(t *testing.T, n int64) {
	t.Helper()
	p, seen := NewPermutation(n, 1, 2), make([]bool, n)
	for i := range n {
		v := p.At(i)
		require.False(t, v < 0 || v >= n || seen[v], "%d of %d is %d", i, n, v)
		seen[v] = true
	}
}

// Each number is as often at each place, over the epochs, and pairs of neighbours as often at each distance.
func TestPermutationIsUniform(t *testing.T) {
	const n, epochs = 7, 20_000
	places, distances := make([]int, n*n), make([]int, n-1)
	for epoch := range uint64(epochs) {
		p := NewPermutation(n, 5, epoch)
		for i := range int64(n) {
			places[i*n+p.At(i)]++
		}
		distances[(p.At(4)-p.At(3)+n)%n-1]++
	}
	require.Less(t, uniformChi(places), chiLimit((n-1)*(n-1)))
	require.Less(t, uniformChi(distances), chiLimit(n-2))
}

// Another seed, epoch or number gives another order, and a number of 2^40 takes no memory.
func TestPermutationsDiffer(t *testing.T) {
	const n = int64(1) << 40
	seen := map[int64]bool{}
	for _, p := range []*Permutation{
		NewPermutation(n, 1, 1), NewPermutation(n, 2, 1), NewPermutation(n, 1, 2), NewPermutation(n+1, 1, 1),
	} {
		seen[p.At(0)] = true
	}
	require.Len(t, seen, 4)
}
