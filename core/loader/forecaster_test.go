package loader

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/plan"
	"freshgo/core/ssd"
	"freshgo/core/window"
)

// forecastable adds a history whose decisions depend on no gradient, and room in which entries compete.
func (f *form) forecastable(o draw.Options, policy string) draw.Options {
	o = f.withHistory(o, policy)
	o.History.GradFraction, o.Cache = 1, "belady"
	return o
}

// forecast returns the prediction for an epoch.
func (r *trainer) forecastRows(epoch int64) window.EpochForecast {
	r.Helper()
	all := r.l.Plan().History
	at := slices.IndexFunc(all, func(of window.EpochForecast) bool { return of.Epoch == epoch })
	require.GreaterOrEqual(r, at, 0, "of epoch %d: %+v", epoch, all)
	return all[at]
}

// requireForecast holds that the plans of an epoch were made for exactly the rows that were read, and that these are
// fewer than were drawn.
func (r *trainer) requireForecast(epoch int64) {
	r.Helper()
	of := r.forecastRows(epoch)
	require.Equal(r, r.l.NumBatches(), of.Batches)
	require.Equal(r, of.PlannedRows, of.ReadRows)
	require.Zero(r, of.UnforeseenRows)
	require.Less(r, of.PlannedRows, of.DrawnRows)
}

// TestPlannedIsRead holds that where decisions depend on no gradient, plans are made for exactly the rows that are
// read, from the first epoch on, and that the batches equal the batches of a loader without plans.
func TestPlannedIsRead(t *testing.T) {
	d := someDataset()
	d.turnLoops()
	for _, f := range forms(d) {
		s, g := f.store(t, ssd.OS), f.graph(t)
		policies := few(f, history.Performance, history.Gradient, history.All)
		for _, policy := range explore.Part(t, f.String(), policies) {
			for _, lag := range []int{0, 3} {
				rng := explore.Rand(t, 6, uint64(lag))
				pick := func(list ...int64) int64 { return list[rng.IntN(len(list))] }
				o := f.forecastable(f.options(), policy)
				o.History.Lag, o.Prefetch, o.History.ProbeEvery = lag, 5, pick(0, 7)
				o.History.Start = draw.Span{Count: float64(pick(0, 0, 3))}
				for range few(f, 0, 1, 2) {
					o := o
					o.Transfer = plan.Transfers()[rng.IntN(len(plan.Transfers()))]
					o.Workers, o.Superbatch = int(pick(0, 1, 2, 8)), pick(draw.Auto, 1, 2, 5, 16)
					o.FeatureCache, o.BufferMemory = pick(f.rooms()...), pick(draw.Auto, 0, 50000)
					if pick(0, 1) == 1 {
						o.Scratch = t.TempDir()
					}
					name := fmt.Sprintf("%s %s lag %d %s windows %d", f, policy, lag, o.Transfer, o.Superbatch)
					t.Run(name, func(t *testing.T) {
						reference := f.train(t, open(t, g, o))
						r := f.train(t, open(t, draw.OpenStore(s), o))
						for epoch := range int64(3) {
							requireSame(t, reference.epochOf(epoch), r.epochOf(epoch))
							r.requireForecast(epoch)
						}
						require.Positive(t, r.hits)
					})
				}
			}
		}
	}
}

// TestUnforeseenUpdates holds that batches are right where training departs from the prediction, and that the next
// epoch is predicted again.
func TestUnforeseenUpdates(t *testing.T) {
	for _, f := range forms(someDataset()) {
		s, g := f.store(t, ssd.OS), f.graph(t)
		for _, transfer := range some(f, plan.Transfers()...) {
			o := f.forecastable(f.options(), history.Performance)
			o.Transfer, o.FeatureCache, o.Superbatch, o.Scratch = transfer, f.rooms()[2], 6, t.TempDir()
			r, reference := f.train(t, open(t, draw.OpenStore(s), o)), f.train(t, open(t, g, o))
			both := func(epoch int64, mode Mode, updates func(batch int) bool) {
				var all [2][]*seen
				for i, one := range []*trainer{r, reference} {
					require.NoError(t, one.l.Start(epoch, 0, mode))
					for b := one.next(); b != nil; b = one.next() {
						if updates(len(all[i])) {
							one.update(b)
						}
						all[i] = append(all[i], b)
					}
				}
				requireSame(t, all[1], all[0])
			}
			always := func(int) bool { return true }
			both(0, Train, func(batch int) bool { return batch > 0 }) // nothing is known after the first
			both(1, Train, always)
			r.requireForecast(1)
			both(2, Train, func(batch int) bool { return batch%5 != 4 })
			require.Positive(t, r.forecastRows(2).UnforeseenRows)
			both(3, Train, always)
			r.requireForecast(3)
			both(4, Plain, always)
			both(5, Train, always)
			r.requireForecast(5)
		}
	}
}

// TestForecasterOfALaterStart holds that a history that begins in a later epoch is predicted from there on, by one
// inspector: the width of kept rows is not known before its first update.
func TestForecasterOfALaterStart(t *testing.T) {
	for _, f := range forms(someDataset()) {
		s, g := f.store(t, ssd.OS), f.graph(t)
		o := f.forecastable(f.options(), history.Performance)
		o.FeatureCache, o.Prefetch = f.rooms()[2], 5
		batches := open(t, g, o).draw.NumBatches()
		for _, start := range explore.Part(t, f.String(), []int64{batches - 1, batches, batches + 2, 2*batches + 1}) {
			for _, lag := range []int{0, 3} {
				o, h := o, *o.History
				o.History, h.Start, h.Lag = &h, draw.Span{Count: float64(start)}, lag
				for _, window := range few(f, int64(1), draw.Auto) {
					o.Superbatch = window
					t.Run(fmt.Sprintf("%s start %d lag %d windows %d", f, start, lag, window), func(t *testing.T) {
						reference, r := f.train(t, open(t, g, o)), f.train(t, open(t, draw.OpenStore(s), o))
						for epoch := range int64(4) {
							requireSame(t, reference.epochOf(epoch), r.epochOf(epoch))
							of := r.forecastRows(epoch)
							require.Equal(t, batches, of.Batches)
							require.Equal(t, of.PlannedRows, of.ReadRows)
							require.Zero(t, of.UnforeseenRows)
							require.Equal(t, 1, streamsOf(r.l), "a new inspector for epoch %d", epoch)
							r.l.Stop() // which does not end what the inspector waits for
							time.Sleep(time.Millisecond)
						}
						require.Positive(t, r.hits)
					})
				}
			}
		}
	}
}

// TestForecasterResumes holds that a run that is restored in mid-epoch predicts the rest of the epoch.
func TestForecasterResumes(t *testing.T) {
	for _, f := range forms(someDataset()) {
		s := f.store(t, ssd.OS)
		o := f.forecastable(f.options(), history.Performance)
		o.FeatureCache, o.Superbatch = f.rooms()[2], 6
		r := f.train(t, open(t, draw.OpenStore(s), o))
		r.epochOf(0)
		require.NoError(t, r.l.Start(1, 0, Train))
		gone := r.l.NumBatches() / 3
		for range gone {
			r.update(r.next())
		}
		state, err := r.l.SaveHistory()
		require.NoError(t, err)
		rows := append([]byte(nil), r.l.history.embeddings.Bytes()...)
		want := r.epoch()

		resumed := f.train(t, open(t, draw.OpenStore(s), o))
		resumed.epochOf(0)
		require.NoError(t, resumed.l.RestoreHistory(state))
		copy(resumed.l.history.embeddings.Bytes(), rows)
		require.NoError(t, resumed.l.Start(1, gone, Train))
		requireSame(t, want, resumed.epoch())
		for _, of := range resumed.l.Plan().History {
			require.Zero(t, of.UnforeseenRows, "%+v", of)
		}
		resumed.epochOf(2)
		resumed.requireForecast(2)
	}
}
