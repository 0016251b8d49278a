package prune

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/internal/explore"
)

// TestOnlyListsOfComputedRowsAreNeeded holds that a list of the last hop is needed if training has kept no row of layer
// 1 of its node, in the batch's turn, and that all lists are needed where the batch stays whole.
func TestOnlyListsOfComputedRowsAreNeeded(t *testing.T) {
	for seed := range uint64(6) {
		rng := explore.Rand(t, seed, 5)
		w := newWorld(t, rng, 1+rng.IntN(2), 1+rng.IntN(3), 2+rng.IntN(2), 2, 8)
		c := w.config(history.Performance, w.roomy()/2)
		c.ProbeEvery, c.History.Start = 5, 2
		r := newTrainer(t, w, c)
		ctx, spared := context.Background(), 0
		// all is each node of the type to which a relation leads, by its number in that.
		all := func(relation int) (targets []int64, first int64) {
			typ := w.shape.Relations[relation].Target
			for v := range w.shape.First[typ+1] - w.shape.First[typ] {
				targets = append(targets, v)
			}
			return targets, w.shape.First[typ]
		}
		for epoch := range w.epochs {
			r.begin(0, 8)
			cut := r.h.Lend()
			for index := range int64(8) {
				i := r.begun + index
				for relation := range w.shape.Relations {
					targets, first := all(relation)
					want := []int32{-7} // is there before
					for place, v := range targets {
						if _, found := r.entryFor(i, layerNode{1, first + v}); !found || i < 2 || r.probing(i) {
							want = append(want, int32(place))
						} else {
							spared++
						}
					}
					places, err := cut.LastHop(index).Needed(ctx, relation, targets, []int32{-7})
					require.NoError(t, err)
					require.Equal(t, want, places)
				}
				r.prune(epoch, index)
				r.step(i, never)
			}
			r.h.TakeBack(cut)
		}
		require.Positive(t, spared)
		r.h.Begin(0, 8, true)
		targets, _ := all(0)
		cut := r.h.Lend()
		places, err := cut.LastHop(5).Needed(ctx, 0, targets, nil)
		require.NoError(t, err, "a plain epoch waits for nothing")
		require.Len(t, places, len(targets))
		r.h.TakeBack(cut)
	}
}

// TestListsAreNeededInTheBatchesTurn holds that the answer waits for the turn of the batch, which stays its turn.
func TestListsAreNeededInTheBatchesTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lagging(t, 2)
		r.epoch(0, never)
		r.begin(0, 8)
		cut, done := r.h.Lend(), make(chan error, 2)
		ask := func() {
			_, err := cut.LastHop(1).Needed(context.Background(), 0, []int64{0, 1, 2}, nil)
			done <- err
		}
		go ask()
		synctest.Wait()
		require.Empty(t, done)
		all := r.start(context.Background(), 1, []int64{0})
		require.NoError(t, <-done)
		other := r.start(context.Background(), 1, []int64{2})
		require.Empty(t, other.turns)
		go ask()
		require.NoError(t, <-done)
		require.Empty(t, other.turns)
		require.Equal(t, []int64{0}, all.turns)
		r.prune(1, 1)
		synctest.Wait()
		require.Equal(t, []int64{2}, other.turns)
		r.h.TakeBack(cut)
	})
}
