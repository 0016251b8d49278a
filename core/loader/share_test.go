package loader

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
)

// numbersOf returns the batches of a share from first on, by hand.
func numbersOf(s draw.Share, batches, first int64) (numbers []int64) {
	left := batches - first
	for turn := int64(0); turn*s.Ranks < left; turn++ {
		if s.Uneven == draw.Drop && (turn+1)*s.Ranks > left {
			return numbers
		}
		for rank := s.Rank; rank < s.Rank+max(1, s.Adjacent); rank++ {
			n := first + turn*s.Ranks + rank
			if n >= batches && s.Uneven == draw.Join {
				return numbers
			}
			numbers = append(numbers, n%batches)
		}
	}
	return numbers
}

// TestSharesAreWhatOneLoaderMakes walks over epochs as ranks do: other shares, epochs that go on where other ranks have
// left them, ones left early. Every batch is the batch of its number, under every cache.
func TestSharesAreWhatOneLoaderMakes(t *testing.T) {
	rng := explore.Rand(t, 11, 0)
	s := someStore(t, ssd.OS)
	none, planned, reordered, lru, match := plain(), belady(), belady(), belady(), belady()
	reordered.Reorder, lru.Cache, match.Reorder, match.Cache = 6, "lru", 6, "match"
	for name, o := range map[string]draw.Options{
		"none": none, "planned": planned, "reordered": reordered, "lru": lru, "match reordered": match,
	} {
		t.Run(name, func(t *testing.T) {
			reference := open(t, draw.OpenStore(s), o)
			var want [][]*seen
			for epoch := range int64(3) {
				want = append(want, epochOf(t, reference, epoch))
			}
			l := open(t, draw.OpenStore(s), o)
			for round := range explore.Rounds(40) {
				epoch, first := rng.Int64N(3), int64(0)
				if rng.IntN(2) == 0 {
					first = rng.Int64N(someBatchs + 1)
				}
				share := draw.Share{Ranks: 1 + rng.Int64N(5), Uneven: draw.Uneven(rng.IntN(3))}
				if rng.IntN(10) == 0 {
					share.Ranks = 40 + rng.Int64N(20) // some ranks have one batch or none
				}
				share.Rank = rng.Int64N(share.Ranks)
				share.Adjacent = rng.Int64N(share.Ranks - share.Rank + 1)
				what := fmt.Sprintf("round %d: epoch %d from %d, %+v", round, epoch, first, share)
				require.NoError(t, l.Take(share), what)
				for range 1 + rng.IntN(3) {
					numbers := numbersOf(share, someBatchs, first)
					whole := int64(len(numbersOf(share, someBatchs, 0)))
					count, err := share.Count(someBatchs, first)
					require.NoError(t, err)
					require.EqualValues(t, len(numbers), count, what)
					require.NoError(t, l.Start(epoch, first, Train), what)
					early := rng.IntN(4) == 0
					for i, n := range numbers {
						if early && i == len(numbers)/2 {
							break
						}
						b, err := l.Next(context.Background())
						require.NoError(t, err, what)
						got := look(b)
						b.Release()
						require.EqualValues(t, whole-count+int64(i), got.index, what)
						got.index = want[epoch][n].index
						require.Equal(t, want[epoch][n], got, "%s, batch %d", what, n)
					}
					if !early {
						require.Empty(t, rest(t, l), what)
					}
					epoch, first = (epoch+1)%3, 0
				}
			}
		})
	}
}

// TestStreamOfARankGoesOn holds that batches sampled ahead for the next epoch are used, also where the first epoch
// began in the middle.
func TestStreamOfARankGoesOn(t *testing.T) {
	d := someDataset()
	l := open(t, draw.OpenStore(d.store(t, ssd.OS)), belady())
	require.NoError(t, l.Take(draw.Share{Rank: 1, Ranks: 3}))
	require.NoError(t, l.Start(0, 7, Train))
	require.Len(t, rest(t, l), 14)
	for epoch := range int64(2) {
		require.Len(t, epochOf(t, l, 1+epoch), 16)
		require.Equal(t, 1, streamsOf(l))
	}
	for i, other := range []draw.Share{{Rank: 2, Ranks: 3}, {Rank: 1, Ranks: 3, Uneven: draw.Join}, {Rank: 1, Ranks: 2}} {
		require.NoError(t, l.Take(other))
		epochOf(t, l, 3)
		require.Equal(t, 2+i, streamsOf(l))
	}
}

// TestSharedSpansOfHistory holds that a history counts the epochs of the share.
func TestSharedSpansOfHistory(t *testing.T) {
	d := newDataset(1000, 9000)
	o := plain()
	o.History = &draw.HistoryOptions{
		Policy: "gradient", GradFraction: 1, Stale: draw.Span{Count: 1, Epochs: true}, Start: draw.Span{Count: 2,
			Epochs: true},
		Memory: 1 << 20, Lag: 1,
	}
	l := open(t, d.graph(t), o)
	for ranks, start := range map[int64]int64{1: 32, 2: 16, 3: 12, 5: 8} {
		require.NoError(t, l.Take(draw.Share{Ranks: ranks}))
		st, err := l.history.pruner.Stats()
		require.NoError(t, err)
		require.Equal(t, start, st.Start)
	}
}

func TestWrongShares(t *testing.T) {
	d := newDataset(100, 900)
	l := open(t, d.graph(t), plain())
	for _, s := range []draw.Share{
		{Rank: 1, Ranks: 1}, {Rank: -1, Ranks: 2}, {Ranks: 2, Uneven: 3}, {Ranks: 2, Uneven: -1},
		{Ranks: 3, Adjacent: -1}, {Rank: 1, Ranks: 3, Adjacent: 3}, {Adjacent: 2},
	} {
		require.ErrorIs(t, l.Take(s), draw.ErrOption)
		_, err := s.Count(5, 0)
		require.ErrorIs(t, err, draw.ErrOption)
	}
	for _, first := range []int64{-1, 6} {
		_, err := draw.Share{Ranks: 1}.Count(5, first)
		require.ErrorIs(t, err, draw.ErrOption)
	}
}
