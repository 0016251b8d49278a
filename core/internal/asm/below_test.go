package asm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBelow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		ids := make([]int32, n+1)[1:] // not aligned
		for i := range ids {
			ids[i] = int32(rng.Uint32()) // negative ones too
		}
		for _, bound := range []uint64{0, 1 << 60, 1 << 61, 1 << 63, math.MaxUint64} {
			key := rng.Uint64()
			var found Found
			number, seen := Below(ids, key, bound, &found)
			if !Lanes {
				require.Zero(t, number+seen)
				continue
			}
			var want Found
			room := 0
			for i, u := range ids[:seen] {
				if x := variate(key, int64(u)); x < bound {
					want.Keys[room], want.Offsets[room] = x, int64(i)
					room++
				}
			}
			require.Equal(t, room, number)
			require.Equal(t, want.Keys[:room], found.Keys[:room])
			require.Equal(t, want.Offsets[:room], found.Offsets[:room])
			if seen < n&^7 {
				require.Greater(t, number+8, ListLimit, "stopped with room")
			} else {
				require.Equal(t, n&^7, seen)
			}
		}
	}
	number, seen := Below([]int64{1, 2, 3, 4, 5, 6, 7, 8}, 1, math.MaxUint64, new(Found))
	require.Zero(t, number+seen)
}
