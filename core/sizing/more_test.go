package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// TestOffers: what is predicted with another memory is what a division of that memory predicts.
func TestOffers(t *testing.T) {
	rng := explore.Rand(t, 3, 1)
	offered, held := 0, 0
	for range 1000 {
		r, g, c := anyDivision(rng)
		if rng.IntN(4) > 0 {
			r.Cache, r.FeatureCache = "belady", Auto
		}
		least, rows := smallest(t, r, g, c), int64(0)
		for i := range g.Tensors {
			rows += g.Tensors[i].bytes()
		}
		r.Memory = least + rng.Int64N(1+max(least, rows))
		offers := Offers(r, g, c)
		for i, offer := range offers {
			require.Equal(t, r.Memory+r.Memory/10*int64(i), offer.Memory)
			with := r
			with.Memory = offer.Memory
			s, err := Divide(with, g, c)
			require.NoError(t, err)
			require.Equal(t, s.EpochBytes, offer.EpochBytes)
			offered++
			if offer.EpochBytes == 0 {
				require.Equal(t, len(offers)-1, i)
				held++
			}
		}
		r.Memory = 0
		require.Empty(t, Offers(r, g, c))
	}
	require.Greater(t, offered, 100)
	t.Logf("%d offers, %d end with everything in memory", offered, held)
	require.Positive(t, held)
}

// TestMoreMemoryMovesLess: an epoch moves hardly more with more memory, and nothing once all rows are held.
func TestMoreMemoryMovesLess(t *testing.T) {
	for name, s := range shapes() {
		for _, memory := range s.memory {
			offers := Offers(s.request(memory), s.graph(), s.costs())
			require.Greater(t, len(offers), 1, name)
			for i, offer := range offers {
				t.Logf("%s: %d MiB, %d MB", name, offer.Memory>>20, offer.EpochBytes/1e6)
				if i > 0 {
					require.LessOrEqual(t, float64(offer.EpochBytes), hardlyMore*float64(offers[i-1].EpochBytes), name)
				}
			}
		}
		all := Offers(s.request(int64(s.rows*int64(s.width)*33/32)), s.graph(), s.costs())
		require.Zero(t, all[len(all)-1].EpochBytes, name)
		require.Empty(t, Offers(s.request(16<<30), s.graph(), s.costs()), name)
	}
}
