package loader

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/mem"
)

// tally counts the batches that were handed over, as the statistics of a history must.
type tally struct {
	hits, misses []int64 // by hidden layer
	ages         []int64
}

// see counts a batch. A batch that is left whole looks nothing up, nor are the seeds of one that renews them looked up.
func (w *tally) see(r *trainer, b *seen) {
	_, probing := b.arrays["history_probe_1"]
	if probing {
		return
	}
	i, nodes := b.int64s("history_counts")[0], b.int64s("n_id")
	for layer := 1; layer < len(r.l.draw.Options.Fanouts); layer++ {
		level := b.int64s(fmt.Sprint("history_nodes_", layer))
		for _, slot := range b.int64s(fmt.Sprint("history_slot_", layer)) {
			w.hits[layer-1]++
			k := bits.Len64(uint64(i-mem.View[int64](r.row(slot))[2])) - 1
			for len(w.ages) <= k {
				w.ages = append(w.ages, 0)
			}
			w.ages[k]++
		}
		for _, at := range b.int64s(fmt.Sprint("history_computed_", layer)) {
			if r.l.draw.Options.History.Policy != history.All || !slices.Contains(nodes[:b.numSeeds], nodes[level[at]]) {
				w.misses[layer-1]++
			}
		}
	}
}

func (w *tally) require(r *trainer) {
	r.Helper()
	stats, err := r.l.HistoryStats()
	require.NoError(r, err)
	for l, s := range stats.Layers {
		require.Equal(r, []int64{w.hits[l], w.misses[l]}, []int64{s.Hits, s.Misses}, "layer %d", l+1)
	}
	require.Equal(r, w.ages, append([]int64(nil), stats.Ages...))
}

// prunedAhead waits until the batches ahead of those handed over have been pruned; next is the first of them.
func (r *trainer) prunedAhead(next int64) {
	o := &r.l.draw.Options
	want := min(int64(o.History.Lag)+1, int64(r.l.draw.Split.Prefetch), r.l.NumBatches()-next)
	require.Eventually(r, func() bool {
		stats, err := r.l.HistoryStats()
		return err == nil && stats.Ahead == want
	}, time.Minute, time.Millisecond)
}

// TestFiguresAreOfBatchesHandedOver: hits, misses and ages count the batches that the consumer got, and not those that
// were pruned for an epoch which it left, here or before the run was restored.
func TestFiguresAreOfBatchesHandedOver(t *testing.T) {
	f := someDataset().form("")
	g := f.graph(t)
	for _, policy := range []string{history.Gradient, history.Performance, history.All} {
		for _, probeEvery := range []int64{0, 4} {
			o := f.withHistory(plain(), policy)
			o.History.ProbeEvery = probeEvery
			r := f.train(t, open(t, g, o))
			want := &tally{hits: make([]int64, 2), misses: make([]int64, 2)}
			part := func(r *trainer, epoch, from, n int64) {
				require.NoError(t, r.l.Start(epoch, from, Train))
				for range n {
					b := r.next()
					want.see(r, b)
					r.update(b)
				}
				r.prunedAhead(from + n)
				want.require(r)
			}
			for epoch, n := range []int64{6, 1, 9, 0, 5} {
				part(r, int64(epoch), 0, n)
			}
			require.Positive(t, want.hits[0])
			state, err := r.l.SaveHistory()
			require.NoError(t, err)
			rows := slices.Clone(r.l.history.embeddings.Bytes())
			r.l.Stop()
			want.require(r)

			resumed := f.train(t, open(t, g, o))
			for _, leave := range []bool{true, false} { // what was ahead is given up, or handed over
				require.NoError(t, resumed.l.RestoreHistory(state))
				copy(resumed.l.history.embeddings.Bytes(), rows)
				want.require(resumed)
				before := tally{slices.Clone(want.hits), slices.Clone(want.misses), slices.Clone(want.ages)}
				part(resumed, 4, 5, 1)
				if leave {
					part(resumed, 4, 6, 0)
					resumed.l.Stop()
					want.require(resumed)
					*want = before
					continue
				}
				part(resumed, 5, 0, 4)
			}
		}
	}
}
