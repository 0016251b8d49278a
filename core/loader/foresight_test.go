package loader

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// foreseeable adds a history whose decisions depend on no gradient, and room in which entries compete.
func (f *form) foreseeable(o Options, policy string) Options {
	o = f.withHistory(o, policy)
	o.History.GradFraction, o.History.Features, o.Cache = 1, false, "belady"
	return o
}

// foreseen is what was foreseen of an epoch.
func (r *trainer) foreseen(epoch int64) Foreseen {
	r.Helper()
	all := r.l.Plan().History
	at := slices.IndexFunc(all, func(of Foreseen) bool { return of.Epoch == epoch })
	require.GreaterOrEqual(r, at, 0, "of epoch %d: %+v", epoch, all)
	return all[at]
}

// requireForeseen holds that plans of an epoch were made for the rows that were read, and for no others, and that these
// are fewer than were drawn.
func (r *trainer) requireForeseen(epoch int64) {
	r.Helper()
	of := r.foreseen(epoch)
	require.Equal(r, r.l.NumBatches(), of.Batches)
	require.Equal(r, of.PlannedRows, of.ReadRows)
	require.Zero(r, of.UnforeseenRows)
	require.Less(r, of.PlannedRows, of.DrawnRows)
}

// TestPlannedIsRead holds that where decisions depend on no gradient, plans are made for the rows that are read, to the
// row, from the first epoch on, and that the batches are those of a loader without plans.
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
				o := f.foreseeable(f.options(), policy)
				o.History.Lag, o.Prefetch, o.History.ProbeEvery = lag, 5, pick(0, 7)
				o.History.Start = Span{Count: float64(pick(0, 0, 3))}
				for range few(f, 0, 1, 2) {
					o := o
					o.Transfer = plan.Transfers()[rng.IntN(len(plan.Transfers()))]
					o.Workers, o.Superbatch = int(pick(0, 1, 2, 8)), pick(Auto, 1, 2, 5, 16)
					o.FeatureCache, o.BufferMemory = pick(f.rooms()...), pick(Auto, 0, 50000)
					if pick(0, 1) == 1 {
						o.Scratch = t.TempDir()
					}
					name := fmt.Sprintf("%s %s lag %d %s windows %d", f, policy, lag, o.Transfer, o.Superbatch)
					t.Run(name, func(t *testing.T) {
						reference := f.train(t, open(t, g, o))
						r := f.train(t, open(t, OpenStore(s), o))
						for epoch := range int64(3) {
							requireSame(t, reference.epochOf(epoch), r.epochOf(epoch))
							r.requireForeseen(epoch)
						}
						require.Positive(t, r.hits)
					})
				}
			}
		}
	}
}

// TestUnforeseenUpdates holds that batches are right where training does not do what was foreseen, and that the next
// epoch is foreseen again.
func TestUnforeseenUpdates(t *testing.T) {
	for _, f := range forms(someDataset()) {
		s, g := f.store(t, ssd.OS), f.graph(t)
		for _, transfer := range some(f, plan.Transfers()...) {
			o := f.foreseeable(f.options(), history.Performance)
			o.Transfer, o.FeatureCache, o.Superbatch, o.Scratch = transfer, f.rooms()[2], 6, t.TempDir()
			r, reference := f.train(t, open(t, OpenStore(s), o)), f.train(t, open(t, g, o))
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
			r.requireForeseen(1)
			both(2, Train, func(batch int) bool { return batch%5 != 4 })
			require.Positive(t, r.foreseen(2).UnforeseenRows)
			both(3, Train, always)
			r.requireForeseen(3)
			both(4, Plain, always)
			both(5, Train, always)
			r.requireForeseen(5)
		}
	}
}

// TestForesightResumes holds that a run which is restored in the middle of an epoch foresees the rest of it.
func TestForesightResumes(t *testing.T) {
	for _, f := range forms(someDataset()) {
		s := f.store(t, ssd.OS)
		o := f.foreseeable(f.options(), history.Performance)
		o.FeatureCache, o.Superbatch = f.rooms()[2], 6
		r := f.train(t, open(t, OpenStore(s), o))
		r.epochOf(0)
		require.NoError(t, r.l.Start(1, 0, Train))
		gone := r.l.NumBatches() / 3
		for range gone {
			r.update(r.next())
		}
		state, err := r.l.SaveHistory()
		require.NoError(t, err)
		rows := append([]byte(nil), r.l.embeddings.Bytes()...)
		want := r.epoch()

		resumed := f.train(t, open(t, OpenStore(s), o))
		resumed.epochOf(0)
		require.NoError(t, resumed.l.RestoreHistory(state))
		copy(resumed.l.embeddings.Bytes(), rows)
		require.NoError(t, resumed.l.Start(1, gone, Train))
		requireSame(t, want, resumed.epoch())
		for _, of := range resumed.l.Plan().History {
			require.Zero(t, of.UnforeseenRows, "%+v", of)
		}
		resumed.epochOf(2)
		resumed.requireForeseen(2)
	}
}
