package prune

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// forecastable is a trainer whose decisions are known ahead.
func forecastable(t *testing.T, seed uint64, policy string, epochs int) *trainer {
	rng := explore.Rand(t, seed, 4)
	w := newWorld(t, rng, 1+rng.IntN(2), 1+rng.IntN(3), 2+rng.IntN(2), epochs, 7)
	c := w.config(policy, w.roomy()/[]int64{1, 4}[seed%2])
	c.History.Lag, c.ProbeEvery = rng.Int64N(4), []int64{0, 5}[rng.IntN(2)]
	return newTrainer(t, w, c)
}

// next gives the batch of an epoch to a forecaster.
func (r *trainer) next(ctx context.Context, f *Forecaster, epoch int, index int64) ([]int32, error) {
	places, err := f.Next(ctx, r.w.epochs[epoch][index], r.w.seeds[epoch][index], cost)
	return append([]int32(nil), places...), err
}

// placesOf returns the places of a batch; nil if it is not pruned.
func placesOf(o *outcome) []int32 {
	if o.left == nil {
		return nil
	}
	return o.left.Places
}

// sum returns the counts of the batches of an epoch, with the hits and misses that the history has counted since.
func (r *trainer) sum(epoch int, all []*outcome, before, after Stats) (f Forecast) {
	for index, o := range all {
		g := r.w.epochs[epoch][index]
		rows, edges := int64(len(g.Nodes)), int64(len(g.Row))
		f.PlainRows, f.PlainEdges = f.PlainRows+rows, f.PlainEdges+edges
		if o.left != nil {
			rows, edges = 0, int64(len(o.left.Row))
			for _, at := range o.left.Places {
				if at >= 0 {
					rows++
				}
			}
		}
		f.Rows, f.Edges = f.Rows+rows, f.Edges+edges
	}
	for l := range after.Layers {
		f.Hits = append(f.Hits, after.Layers[l].Hits-before.Layers[l].Hits)
		f.Misses = append(f.Misses, after.Layers[l].Misses-before.Layers[l].Misses)
	}
	return f
}

// TestForecastIsWhatTheEpochBecomes holds that a forecast of an epoch prunes each batch as training then does, with the
// same counts, and that it changes nothing.
func TestForecastIsWhatTheEpochBecomes(t *testing.T) {
	for _, policy := range []string{history.Gradient, history.Performance, history.All} {
		for seed := range uint64(6) {
			explore.Run(t, fmt.Sprint(policy, " ", seed), func(t *testing.T) {
				r := forecastable(t, seed, policy, 4)
				r.epoch(0, never)
				for epoch := 1; epoch < 4; epoch++ {
					state, err := r.h.Save()
					require.NoError(t, err)
					used := r.budget.Used()
					f, err := r.h.Forecast(r.budget, 0, 7)
					require.NoError(t, err)
					require.Greater(t, r.budget.Used(), used)
					var forecast [][]int32
					for index := range int64(7) {
						require.EqualValues(t, math.MaxInt64, f.Free())
						places, err := r.next(context.Background(), f, epoch, index)
						require.NoError(t, err)
						forecast = append(forecast, places)
					}
					found := f.Found()
					f.Close()
					require.Equal(t, used, r.budget.Used())
					after, err := r.h.Save()
					require.NoError(t, err)
					require.Equal(t, state, after)

					before, err := r.h.Stats()
					require.NoError(t, err)
					all := r.epoch(epoch, never)
					for index, o := range all {
						require.Equal(t, placesOf(o), forecast[index], "batch %d", index)
					}
					stats, err := r.h.Stats()
					require.NoError(t, err)
					require.Equal(t, r.sum(epoch, all, before, stats), found)
				}
				require.Positive(t, r.hits)
			})
		}
	}
}

// ahead is the progress of a forecaster, and the batches that it has pruned.
type ahead struct {
	f     *Forecaster
	epoch int
	index int64
	found [][][]int32 // by epoch and batch
}

// advance gives it one batch more, of the next epoch where one has ended. It returns whether there was one.
func (r *trainer) advance(ctx context.Context, a *ahead) (more bool, err error) {
	if a.index == int64(len(r.w.epochs[a.epoch])) {
		if a.epoch+1 == len(r.w.epochs) {
			return false, nil
		}
		if err := a.f.NextEpoch(ctx, int64(len(r.w.epochs[a.epoch+1]))); err != nil {
			return false, err
		}
		a.epoch, a.index = a.epoch+1, 0
	}
	places, err := r.next(ctx, a.f, a.epoch, a.index)
	if err != nil {
		return false, err
	}
	for len(a.found) <= a.epoch {
		a.found = append(a.found, nil)
	}
	a.found[a.epoch] = append(a.found[a.epoch], places)
	a.index++
	return true, nil
}

func (a *ahead) batches() (n int64) {
	for _, of := range a.found {
		n += int64(len(of))
	}
	return n
}

// runFree takes all batches that are free. Each that is said to be free is one, or the bubble ends the test: nobody
// trains meanwhile.
func (r *trainer) runFree(a *ahead) {
	r.Helper()
	for n := a.f.Free(); n > 0; n = a.f.Free() {
		for ; n > 0; n-- {
			more, err := r.advance(context.Background(), a)
			require.NoError(r, err)
			if !more {
				return
			}
		}
	}
}

// TestFollowingForecastsEveryEpoch holds that a forecaster that begins before the first batch takes as many batches as
// Free returns without waiting, and not one more, over the ends of epochs; that the first update of training lets it go
// on; and that it prunes each batch, until the last epoch, as training does.
func TestFollowingForecastsEveryEpoch(t *testing.T) {
	for _, start := range []int64{0, 3, 6, 7, 9, 14} {
		for seed := range uint64(4) {
			explore.Run(t, fmt.Sprintf("start %d, %d", start, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { followed(t, seed, start) })
			})
		}
	}
}

func followed(t *testing.T, seed uint64, start int64) {
	r := forecastable(t, seed, []string{history.Performance, history.Gradient, history.All, history.Performance}[seed], 4)
	r.c.History.Start = start
	r.h.SetSpans(r.c.History.Stale, start)
	budget := mem.NewBudget(0)
	r.h.Begin(0, 7, false)
	f, err := r.h.Follow(budget)
	require.NoError(t, err)
	a := &ahead{f: f}
	r.runFree(a)
	// The update of iteration start has to be known for batch start+lag+1, and for the end of its epoch.
	require.Equal(t, min(start+r.c.History.Lag+1, (start/7+1)*7), a.batches())
	ended := false
	go func() {
		for more := true; more; {
			var err error
			if more, err = r.advance(context.Background(), a); err != nil {
				t.Error(err)
				return
			}
		}
		ended = true
	}()
	var all [][]*outcome
	for epoch := range r.w.epochs {
		synctest.Wait()
		require.Equal(t, r.given() > start, ended)
		all = append(all, r.epoch(epoch, never))
	}
	synctest.Wait()
	require.True(t, ended)
	require.EqualValues(t, math.MaxInt64, f.Free())
	for epoch := range all {
		require.Len(t, a.found[epoch], 7)
		for index, o := range all[epoch] {
			require.Equal(t, placesOf(o), a.found[epoch][index], "epoch %d, batch %d", epoch, index)
		}
	}
	require.Positive(t, r.hits)
	require.Positive(t, budget.Used())
	f.Close()
	require.Zero(t, budget.Used())
}

// TestFollowingWhatDoesNotHappen holds that a forecaster that waits for an update ends with its context, and with
// ErrCall where training leaves the update out; once closed, it has no memory.
func TestFollowingWhatDoesNotHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lagging(t, 1)
		r.h.Begin(0, 8, false)
		budget := mem.NewBudget(0)
		f, err := r.h.Follow(budget)
		require.NoError(t, err)
		a := &ahead{f: f}
		r.runFree(a)
		require.EqualValues(t, 3, a.batches())
		ctx, cancel := context.WithCancel(context.Background())
		errs := make(chan error, 1)
		wait := func() { _, err := r.advance(ctx, a); errs <- err }
		go wait()
		synctest.Wait()
		require.Empty(t, errs)
		cancel()
		require.ErrorIs(t, <-errs, context.Canceled)
		f.Close()
		require.Zero(t, budget.Used())

		f, err = r.h.Follow(budget)
		require.NoError(t, err)
		a, ctx = &ahead{f: f}, context.Background()
		r.runFree(a)
		go wait()
		c := r.h.Lend()
		for index := range int64(3) {
			r.take(c, 0, index, func() {})
		}
		r.h.TakeBack(c)
		r.h.HandOver()
		synctest.Wait()
		require.Empty(t, errs)
		require.NoError(t, r.h.SkipUpdate(ctx, 0))
		require.ErrorIs(t, <-errs, ErrCall)
		f.Close()
		require.Zero(t, budget.Used())
		r.h.Stop()
	})
}

// TestAnUpdateThatWaitsHasSaidHowWideRowsAre holds that a forecaster goes on while the update that it waits for waits
// itself, for batches that may be planned by what the forecaster finds.
func TestAnUpdateThatWaitsHasSaidHowWideRowsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lagging(t, 1)
		r.begin(0, 8)
		f, err := r.h.Follow(mem.NewBudget(0))
		require.NoError(t, err)
		defer f.Close()
		a, errs := &ahead{f: f}, make(chan error, 2)
		r.runFree(a)
		o := r.prune(0, 0)
		r.h.HandOver()
		go func() { _, err := r.advance(context.Background(), a); errs <- err }()
		synctest.Wait()
		require.Empty(t, errs)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, err := r.h.Update(ctx, 0, rowBytes, r.normsOf(0, o.left.Levels))
			errs <- err
		}()
		require.NoError(t, <-errs)
		synctest.Wait()
		require.Empty(t, errs, "the update")
		cancel()
		require.ErrorIs(t, <-errs, context.Canceled)
	})
}

// TestNobodyKnowsAhead lists the forecasts that are refused, and holds that they take no memory.
func TestNobodyKnowsAhead(t *testing.T) {
	w := newWorld(t, explore.Rand(t, 4, 4), 1, 1, 3, 2, 8)
	c := w.config(history.Gradient, w.roomy())
	refuses := func(r *trainer, forecast, follow bool) {
		t.Helper()
		used := r.budget.Used()
		f, err := r.h.Forecast(r.budget, 0, 8)
		if require.Equal(t, forecast, err != nil, "%v", err); err == nil {
			f.Close()
		} else {
			require.ErrorIs(t, err, ErrCall)
		}
		f, err = r.h.Follow(r.budget)
		if require.Equal(t, follow, err != nil, "%v", err); err == nil {
			f.Close()
		} else {
			require.ErrorIs(t, err, ErrCall)
		}
		require.Equal(t, !follow, r.h.Follows())
		require.Equal(t, used, r.budget.Used())
	}
	r := newTrainer(t, w, c)
	r.begin(0, 8)
	refuses(r, true, false) // how wide rows are is not known
	r.epoch(0, never)
	refuses(r, false, false)
	r.begin(0, 8)
	r.prune(1, 0)
	refuses(r, true, false) // within an epoch
	r.h.Stop()
	refuses(r, false, false)
	r.h.Begin(0, 8, true)
	refuses(r, false, true) // which is plain

	c.History.GradFraction = 0.5
	r = newTrainer(t, w, c)
	r.epoch(0, never)
	refuses(r, true, true)
	require.ErrorIs(t, r.h.Forecastable(), ErrCall)
}

// TestForecastsWithoutMemory holds that errors are typed, whether tables or a batch have no room, and that their memory
// is given back.
func TestForecastsWithoutMemory(t *testing.T) {
	r := lagging(t, 2)
	r.epoch(0, never)
	tables := history.MetadataBytes(r.c.History)
	for _, limit := range []int64{1, tables / 2, tables - 1} {
		budget := mem.NewBudget(limit)
		for _, begin := range []func() (*Forecaster, error){
			func() (*Forecaster, error) { return r.h.Forecast(budget, 0, 8) },
			func() (*Forecaster, error) { return r.h.Follow(budget) },
		} {
			_, err := begin()
			require.ErrorIs(t, err, mem.ErrBudget)
			var of *mem.BudgetError
			require.ErrorAs(t, err, &of)
			require.Equal(t, mem.History, of.Purpose)
			require.Zero(t, budget.Used())
		}
	}
	budget := mem.NewBudget(tables + 1)
	f, err := r.h.Forecast(budget, 0, 8)
	require.NoError(t, err)
	require.Equal(t, tables, budget.Used(), "as the tables of the history")
	_, err = r.next(context.Background(), f, 1, 0)
	var of *mem.BudgetError
	require.ErrorAs(t, err, &of)
	require.Equal(t, mem.Trace, of.Purpose)
	f.Close()
	require.Zero(t, budget.Used())
	r.epoch(1, never)
}
