package loader

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// rooms are feature caches for few to most of the rows of a form.
func (f *form) rooms() []int64 {
	if len(f.names) > 1 {
		return []int64{1, 20 << 10, 60 << 10, 120 << 10}
	}
	return []int64{1, rowsFor(10), rowsFor(300), rowsFor(1500)}
}

// TestHistoryDecidesAlike is the metamorphic test of pruning: caches, transfers, threads, memory and where the graph
// lies change nothing of what is pruned.
func TestHistoryDecidesAlike(t *testing.T) {
	d := someDataset()
	d.turnLoops()
	for _, f := range forms(d) {
		s, g := f.store(t, ssd.OS), f.graph(t)
		for _, lag := range []int{0, 3} {
			rng := explore.Rand(t, 4, uint64(lag))
			pick := func(list ...int64) int64 { return list[rng.IntN(len(list))] }
			o := f.withHistory(f.options(), history.Gradient)
			o.History.Lag, o.Prefetch = lag, 5
			reference := f.train(t, open(t, g, o))
			var want [][]*seen
			for epoch := range int64(2) {
				want = append(want, reference.epochOf(epoch))
			}
			require.Positive(t, reference.hits)
			kinds := []string{"belady", "degree", "presc", "lru", "expected", "belady", "none", "auto", "s3fifo"}
			for _, kind := range some(f, explore.Part(t, fmt.Sprint(f, lag), kinds)...) {
				o := o
				o.Cache, o.Transfer = kind, plan.Transfers()[rng.IntN(len(plan.Transfers()))]
				o.Prefetch, o.Workers = int(pick(3, 4, 6)), int(pick(0, 1, 2, 8))
				o.FeatureCache, o.NeighborCache = pick(f.rooms()...), pick(draw.Auto, 0, 60000)
				o.Superbatch = pick(draw.Auto, 1, 5, 16, 64)
				o.BufferMemory = pick(draw.Auto, 0, 50000)
				o.IO = []ssd.Kind{ssd.IOUring, ssd.Pread, ssd.Buffered}[rng.IntN(3)]
				if pick(0, 1) == 1 {
					o.Scratch = t.TempDir()
				}
				t.Run(fmt.Sprintf("%s lag %d %s %s", f, lag, o.Cache, o.Transfer), func(t *testing.T) {
					r := f.train(t, open(t, draw.OpenStore(s), o))
					r.requireEpochs(want)
					require.Equal(t, reference.hits, r.hits)
					st := r.l.Stats()
					require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses, "%+v", st)
					require.Zero(t, st.PackErrors)
				})
			}
		}
	}
}

// requireEpochs trains epochs from the first one on, and compares their batches.
func (r *trainer) requireEpochs(want [][]*seen) {
	for epoch := range want {
		got := r.epochOf(int64(epoch))
		for k, b := range got {
			r.requirePlainCounts(want[epoch][k], b)
		}
		requireSame(r.T, want[epoch], got)
	}
}

// requirePlainCounts makes of the sizes that a plain batch would have had those that are wanted: lists that were not
// read named nodes that are not counted.
func (r *trainer) requirePlainCounts(want, got *seen) {
	counts, exact := mem.View[int64](got.arrays["history_counts"]), want.int64s("history_counts")
	at := []int{2}
	for typ := range r.l.draw.Parts.Schema.NumTypes() {
		at = append(at, 4+2*typ+1)
	}
	for _, k := range at {
		require.LessOrEqual(r, counts[k], exact[k])
		require.True(r, r.l.history.sparesLists || counts[k] == exact[k])
		counts[k] = exact[k]
	}
}

// TestHistoryThatDoesNothing holds that the batches are the plain ones to the last byte where nothing is ever kept, and
// in plain epochs.
func TestHistoryThatDoesNothing(t *testing.T) {
	for _, f := range forms(someDataset()) {
		g, s := f.graph(t), f.store(t, ssd.OS)
		for _, kind := range explore.Part(t, f.String(), few(f, "belady", "none", "degree", "lru")) {
			explore.Run(t, fmt.Sprint(f, " ", kind), func(t *testing.T) {
				o := f.withHistory(f.options(), history.Gradient)
				o.Cache, o.FeatureCache, o.Superbatch = kind, f.rooms()[2], 10
				h := o.History
				o.History = nil
				want, plain := [][]*seen{}, open(t, g, o)
				for epoch := range int64(3) {
					want = append(want, epochOf(t, plain, epoch))
				}
				late := *h
				late.Start = draw.Span{Count: 1, Epochs: true}
				o.History = &late
				r := f.train(t, open(t, draw.OpenStore(s), o))
				requireSame(t, want[0], r.epochOf(0)) // before it starts
				r.epochOf(1)
				require.Positive(t, r.hits)
				for epoch := range want { // evaluation, in between
					require.NoError(t, r.l.Start(int64(epoch), 0, Plain))
					requireSame(t, want[epoch], rest(t, r.l))
				}
				hits := r.hits
				r.epochOf(2)
				require.Greater(t, r.hits, hits)
				stats, err := r.l.HistoryStats()
				require.NoError(t, err)
				require.EqualValues(t, 3*r.l.NumBatches(), stats.Iterations)
				require.Zero(t, stats.Skipped)
			})
		}
	}
}

// TestHistoryResumes holds that a run which was saved in the middle of an epoch goes on with the same batches, those
// included that are left whole, and that a run which was restored and has not gone on is the one that was saved.
func TestHistoryResumes(t *testing.T) {
	for _, f := range forms(someDataset()) {
		g := f.graph(t)
		for _, lag := range few(f, 2, 0) {
			policies := few(f, history.Gradient, history.Performance, history.All)
			for _, policy := range explore.Part(t, fmt.Sprint(f, lag), policies) {
				o := f.withHistory(f.options(), policy)
				o.History.Lag, o.History.ProbeEvery = lag, 2
				r := f.train(t, open(t, g, o))
				r.epochOf(0)
				require.NoError(t, r.l.Start(1, 0, Train))
				var state []byte
				gone := r.l.NumBatches() / 3
				for range gone {
					r.update(r.next())
					var err error
					state, err = r.l.SaveHistory() // while batches are prepared
					require.NoError(t, err)
				}
				rows := slices.Clone(r.l.history.embeddings.Bytes())
				want := r.epoch()

				resumed := f.train(t, open(t, g, o))
				resumed.epochOf(5) // its state is replaced
				for _, bad := range [][]byte{nil, state[:8], state[:len(state)/2],
					append([]byte{255, 255, 255, 255, 255, 255, 255, 255}, state[8:]...)} {
					require.ErrorIs(t, resumed.l.RestoreHistory(bad), history.ErrState)
				}
				require.NoError(t, resumed.l.RestoreHistory(state))
				require.Error(t, resumed.l.RestoreHistory(state[:8]))
				again, err := resumed.l.SaveHistory()
				require.NoError(t, err)
				require.Equal(t, state, again)
				copy(resumed.l.history.embeddings.Bytes(), rows)
				require.NoError(t, resumed.l.Start(1, gone, Train))
				requireSame(t, want, resumed.epoch())
				require.Positive(t, resumed.hits)
				stats, err := resumed.l.HistoryStats()
				require.NoError(t, err)
				atEnd, err := r.l.HistoryStats()
				require.NoError(t, err)
				require.Equal(t, atEnd, stats)
			}
		}
	}
}

// TestListsThatAreNotRead holds that pruned lists on disk are left alone, unless the graph has one relation and edges
// from nodes to themselves.
func TestListsThatAreNotRead(t *testing.T) {
	explore.Figures(t)
	for _, loops := range []bool{false, true} {
		d := someDataset()
		d.turnLoops()
		if loops {
			d.sources[777] = d.targets[777]
		}
		for _, f := range forms(d) {
			if loops && len(f.names) > 1 { // it has some anyway
				continue
			}
			s := f.store(t, ssd.OS)
			o := f.withHistory(f.options(), history.Gradient)
			o.NeighborCache, o.History.Memory = 0, 1<<20
			r := f.train(t, open(t, draw.OpenStore(s), o))
			o.History = nil
			plain := open(t, draw.OpenStore(s), o)
			for epoch := range int64(3) {
				r.epochOf(epoch)
				epochOf(t, plain, epoch)
			}
			require.Positive(t, r.hits)
			require.Equal(t, !loops, r.l.history.sparesLists)
			fetched := func(l *Loader) int64 { return l.Stats().NeighborHits + l.Stats().NeighborMisses }
			if loops {
				require.Equal(t, fetched(plain), fetched(r.l))
			} else {
				require.Less(t, fetched(r.l), fetched(plain)*9/10)
			}
		}
	}
}
