package prune

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/internal/explore"
)

// TestCutEqualsReference holds that each batch is cut to the rows that a search from its seeds reaches, if it stops at
// the rows that training has kept up to the update of the iteration lag+1 before it. The rows that a batch relies on
// stay in their slots until its update.
func TestCutEqualsReference(t *testing.T) {
	for _, policy := range []string{history.Gradient, history.Performance, history.All} {
		for seed := range uint64(12) {
			rng := explore.Rand(t, seed, 1)
			types, relations := 1+rng.IntN(3), 1+rng.IntN(4)
			if seed%3 == 0 {
				types, relations = 1, 1
			}
			w := newWorld(t, rng, types, relations, 2+rng.IntN(2), 3, 8)
			c := w.config(policy, []int64{w.roomy(), w.roomy() / 5, 6}[seed/3%3])
			c.History.Lag, c.History.Start = rng.Int64N(4), []int64{0, 0, 3}[rng.IntN(3)]
			c.ProbeEvery = []int64{0, 5}[rng.IntN(2)]
			if policy == history.Gradient && seed < 9 {
				c.History.GradFraction = []float64{0.5, 0.9}[rng.IntN(2)]
			}
			explore.Run(t, c.named(types), func(t *testing.T) {
				r := newTrainer(t, w, c)
				r.normed = seed%2 == 0
				for epoch := range w.epochs {
					r.epoch(epoch, func(i int64) bool { return i%7 == 6 })
				}
				require.True(t, r.hits > 0 || c.History.Bytes == 6*rowBytes)
			})
		}
	}
}

// TestPlainEpochsAreWhole holds that a plain epoch is not pruned, waits for no update and changes nothing.
func TestPlainEpochsAreWhole(t *testing.T) {
	w := newWorld(t, explore.Rand(t, 1, 2), 1, 1, 3, 3, 6)
	r := newTrainer(t, w, w.config(history.Gradient, w.roomy()))
	r.epoch(0, never)
	state, err := r.h.Save()
	require.NoError(t, err)
	r.h.Begin(0, 6, true)
	c := r.h.Lend()
	for index := range int64(6) {
		require.Nil(t, r.take(c, 1, index, func() {}).left)
		require.False(t, c.On())
		r.h.HandOver()
		require.NoError(t, r.h.Skip(context.Background()))
		_, err := r.h.Update(context.Background(), r.given(), rowBytes, nil)
		require.ErrorIs(t, err, ErrCall)
	}
	r.h.TakeBack(c)
	after, err := r.h.Save()
	require.NoError(t, err)
	require.Equal(t, state, after)
	r.epoch(2, never)
	require.Positive(t, r.hits)
}

// TestEstimateAsksForTheRowsThatAreRead holds that a policy that weighs rows gets the reads that they would have saved,
// and that the other policies compute nothing.
func TestEstimateAsksForTheRowsThatAreRead(t *testing.T) {
	for _, policy := range []string{history.Gradient, history.Performance, history.All} {
		w := newWorld(t, explore.Rand(t, 2, 2), 2, 3, 3, 1, 1)
		r := newTrainer(t, w, w.config(policy, w.roomy()))
		r.h.Begin(0, 1, false)
		c, g := r.h.Lend(), w.epochs[0][0]
		require.NoError(t, c.Prune(context.Background(), 0, g, w.seeds[0][0], func() {}))
		c.Build(g)
		asked := map[int64]bool{}
		require.NoError(t, c.Estimate(func(node int64) float32 { asked[node] = true; return 1 }))
		want := map[int64]bool{}
		if policy == history.Performance { // nothing was found, so all are read
			for _, node := range g.Nodes {
				want[node] = true
			}
		}
		require.Equal(t, want, asked)
		r.h.Stop()
		if policy == history.Performance {
			require.ErrorIs(t, c.Estimate(cost), ErrStopped)
		}
		r.h.TakeBack(c)
	}
}
