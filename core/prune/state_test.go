package prune

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/internal/explore"
)

// TestARestoredRunGoesOnAsTheSavedOne holds that a run that is restored in mid-epoch prunes the rest of its batches,
// also the batches that had been pruned ahead, as the saved run does.
func TestARestoredRunGoesOnAsTheSavedOne(t *testing.T) {
	for seed := range uint64(8) {
		rng := explore.Rand(t, seed, 6)
		w := newWorld(t, rng, 1+rng.IntN(2), 1+rng.IntN(3), 3, 3, 8)
		c := w.config([]string{history.Performance, history.Gradient, history.All}[seed%3], w.roomy()/3)
		c.History.Lag, c.ProbeEvery = rng.Int64N(4), []int64{0, 3}[seed%2]
		r, resumed := newTrainer(t, w, c), newTrainer(t, w, c)
		r.epoch(0, never)
		resumed.epoch(2, never) // its state is replaced
		gone := 1 + rng.Int64N(6)
		r.begin(0, 8)
		var all []*outcome
		goOn := func(from, end int64) {
			for k := from; k < end; k++ {
				for next := int64(len(all)); next <= min(k+c.History.Lag, 7); next++ {
					all = append(all, r.prune(1, next))
				}
				r.step(r.begun+k, never)
			}
		}
		goOn(0, gone)
		state, err := r.h.Save()
		require.NoError(t, err)
		saved, err := r.h.Stats()
		require.NoError(t, err)
		buffer, kept := maps.Clone(r.buffer), maps.Clone(r.kept)
		goOn(gone, 8)

		stopped := 0
		damaged := [][]byte{nil, state[:3], state[:len(state)/2], append(slices.Clone(state), 0)}
		for range 60 {
			flipped := slices.Clone(state)
			flipped[rng.IntN(len(state))] ^= 1 << rng.IntN(8)
			damaged = append(damaged, flipped)
		}
		for _, wrong := range damaged {
			before, err := resumed.h.Save()
			require.NoError(t, err)
			require.ErrorIs(t, resumed.h.Restore(wrong, func() { stopped++ }), history.ErrState)
			after, err := resumed.h.Save()
			require.NoError(t, err)
			require.Equal(t, before, after)
		}
		for range 2 {
			require.NoError(t, resumed.h.Restore(state, func() { stopped++ }))
			restored, err := resumed.h.Stats()
			require.NoError(t, err)
			require.Equal(t, saved.Stats, restored.Stats)
		}
		require.Equal(t, len(damaged)+2, stopped)
		again, err := resumed.h.Save()
		require.NoError(t, err)
		require.Equal(t, state, again)
		cut, ctx := resumed.h.Lend(), context.Background()
		resumed.begin(gone, 8)
		resumed.buffer, resumed.kept = buffer, kept
		var rest []*outcome
		pruned := int64(0)
		for k := gone; k < 8; k++ {
			for ; gone+pruned <= min(k+r.c.History.Lag, 7); pruned++ {
				// Of those that were ahead, the rows that were found need not be entries any more.
				index := gone + pruned
				require.NoError(t, cut.Prune(ctx, index, w.epochs[1][index], w.seeds[1][index], func() {}))
				o, err := resumed.build(cut, w.epochs[1][index])
				require.NoError(t, err)
				i := resumed.begun + index
				resumed.ahead[i], resumed.levels[i] = o, o.left.Levels
				for slot := range o.relied {
					o.relied[slot] = resumed.buffer[slot]
				}
				rest = append(rest, o)
			}
			resumed.step(resumed.begun+k, never)
		}
		resumed.h.TakeBack(cut)
		for k, o := range rest {
			require.Equal(t, all[int(gone)+k].left, o.left)
			require.Equal(t, all[int(gone)+k].probes, o.probes)
			require.Equal(t, all[int(gone)+k].relied, o.relied)
		}
		want, err := r.h.Stats()
		require.NoError(t, err)
		got, err := resumed.h.Stats()
		require.NoError(t, err)
		require.Equal(t, want, got)
		state, err = r.h.Save()
		require.NoError(t, err)
		again, err = resumed.h.Save()
		require.NoError(t, err)
		require.Equal(t, state, again)
		require.Positive(t, r.hits)
	}
}
