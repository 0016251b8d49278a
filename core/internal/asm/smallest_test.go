package asm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func variate(key uint64, u int64) uint64 {
	z := (key ^ uint64(u)) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// keyOf is the key with which u has the variate z.
func keyOf(z uint64, u int64) uint64 {
	inverse := func(odd uint64) uint64 {
		x := odd
		for range 6 {
			x *= 2 - odd*x
		}
		return x
	}
	z = (z ^ z>>31 ^ z>>62) * inverse(0x94d049bb133111eb)
	z = (z ^ z>>27 ^ z>>54) * inverse(0xbf58476d1ce4e5b9)
	return ((z ^ z>>30 ^ z>>60) - 0x9e3779b97f4a7c15) ^ uint64(u)
}

// byVariate is the places of ids, those of smaller variates first.
func byVariate(ids []int32, key uint64) []int {
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if variate(key, int64(ids[a])) < variate(key, int64(ids[b])) {
			return -1
		}
		return 1
	})
	return order
}

func TestSmallest(t *testing.T) {
	if !Lanes {
		_, ok := Smallest(make([]int32, 4, 8), 1, 2)
		require.False(t, ok)
		t.Skip("no vectors")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	lists := map[string]func() int32{
		"random":   func() int32 { return rng.Int32() },
		"few":      func() int32 { return rng.Int32N(100) },
		"negative": func() int32 { return -rng.Int32() },
	}
	for name, id := range lists {
		answers, asked := 0, 0
		for n := 1; n <= ListLimit; n++ {
			ids := make([]int32, n+1, n+4)[1:] // not aligned
			for i := range ids {
				ids[i] = id()
			}
			key := rng.Uint64()
			order := byVariate(ids, key)
			for k := 1; k < n; k++ {
				asked++
				chosen, ok := Smallest(ids, key, k)
				if last, next := variate(key, int64(ids[order[k-1]])), variate(key, int64(ids[order[k]])); last>>32 == next>>32 {
					require.False(t, ok, "%s: %d of %d", name, k, n)
					continue
				}
				require.True(t, ok, "%s: %d of %d", name, k, n)
				answers++
				want := uint64(0)
				for _, i := range order[:k] {
					want |= 1 << i
				}
				require.Equal(t, want, chosen, "%s: %d of %d", name, k, n)
			}
		}
		require.Greater(t, answers, asked/2, name)
	}
}

// An upper half of all ones is also what stands where a vector has no id.
func TestSmallestOfTheLargest(t *testing.T) {
	if !Lanes {
		t.Skip("no vectors")
	}
	key := keyOf(math.MaxUint64, 5)
	require.Equal(t, uint64(math.MaxUint64), variate(key, 5))
	for n := 2; n <= ListLimit; n++ {
		ids := make([]int32, n, n+3)
		for i := range ids {
			ids[i] = int32(i)
		}
		ids[n-1] = 5
		if n > 6 {
			ids[5] = 100
		}
		chosen, ok := Smallest(ids, key, n-1)
		require.True(t, ok)
		require.Equal(t, uint64(1)<<(n-1)-1, chosen, n)
	}
}

func TestSmallestHasNoAnswer(t *testing.T) {
	for name, f := range map[string]func() bool{
		"equal":         func() bool { _, ok := Smallest(make([]int32, 8, 16), 1, 2); return ok },
		"end of memory": func() bool { _, ok := Smallest([]int32{1, 2, 3, 4, 5}[:5:5], 1, 2); return ok },
		"wide":          func() bool { _, ok := Smallest(make([]int64, 8, 16), 1, 2); return ok },
		"long":          func() bool { _, ok := Smallest(make([]int32, ListLimit+1, 2*ListLimit), 1, 2); return ok },
	} {
		require.False(t, f(), name)
	}
}
