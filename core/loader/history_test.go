package loader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/prune"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestHistoryDecidesAlike is the metamorphic test of pruning: caches, transfers,
// threads, memory and where the graph lies change nothing of what is pruned.
func TestHistoryDecidesAlike(t *testing.T) {
	d := newDataset(someNodes, 40000)
	d.turnLoops()
	s := d.store(t, ssd.OS)
	rng := explore.Rand(t, 4, 1)
	pick := func(list ...int64) int64 { return list[rng.IntN(len(list))] }
	kinds := []string{"belady", "degree", "belady", "lru", "expected", "belady", "none", "auto", "s3fifo"}
	for _, lag := range []int{0, 3} {
		o := withHistory(plain(), history.Gradient)
		o.History.Lag, o.Prefetch = lag, 5
		reference := train(t, d, open(t, d.graph(t), o))
		var want [][]*seen
		for epoch := range int64(2) {
			want = append(want, reference.epochOf(epoch))
		}
		require.Positive(t, reference.hits)
		for round := range rounds(7) {
			o := o
			o.Cache, o.Transfer = kinds[round%len(kinds)], plan.Transfers()[rng.IntN(len(plan.Transfers()))]
			o.Prefetch, o.Workers = int(pick(3, 4, 6)), int(pick(0, 1, 2, 8))
			o.FeatureCache = pick(1, rowsFor(10), rowsFor(300), rowsFor(1500))
			o.NeighborCache = pick(Auto, 0, 60000)
			o.Superbatch = pick(Auto, 1, 5, 16, 64)
			o.BufferMemory = pick(Auto, 0, 50000)
			o.IO = []ssd.Kind{ssd.IOUring, ssd.Pread, ssd.Buffered}[rng.IntN(3)]
			if pick(0, 1) == 1 {
				o.Scratch = t.TempDir()
			}
			h := *o.History
			h.Features = pick(0, 1) == 1
			o.History = &h
			t.Run(fmt.Sprintf("lag %d round %d %s %s features %v", lag, round, o.Cache, o.Transfer, h.Features),
				func(t *testing.T) {
					r := train(t, d, open(t, OpenStore(s), o))
					for epoch := range want {
						got := r.epochOf(int64(epoch))
						for k, b := range got { // lists that were not read named nodes that nobody counts
							counts, exact := mem.View[int64](b.arrays["history_counts"]), want[epoch][k].int64s("history_counts")
							for _, at := range []int{2, 5} { // of the batch, and of its one node type
								require.LessOrEqual(t, counts[at], exact[at])
								require.True(t, r.l.sparesLists || counts[at] == exact[at])
								counts[at] = exact[at]
							}
						}
						requireSame(t, want[epoch], got)
					}
					st := r.l.Stats()
					require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses, "%+v", st)
					require.Zero(t, st.PackErrors)
				})
		}
	}
}

// TestPrunedBatchesArePartsOfPlainOnes holds that history never makes a loader read
// what it would not have read, and that it saves something.
func TestPrunedBatchesArePartsOfPlainOnes(t *testing.T) {
	d := newDataset(someNodes, 40000)
	g := d.graph(t)
	o := withHistory(plain(), history.Performance)
	pruned := train(t, d, open(t, g, o))
	o.History = nil
	whole := open(t, g, o)
	var rows, before int64
	for epoch := range int64(3) {
		batches := epochOf(t, whole, epoch)
		for i, b := range pruned.epochOf(epoch) {
			counts := b.int64s("history_counts")
			rows, before = rows+counts[1], before+counts[2]
			require.EqualValues(t, len(batches[i].int64s("n_id")), counts[2])
			require.EqualValues(t, len(batches[i].int64s("e_id")), counts[3])
			requirePart(t, batches[i].int64s("n_id"), b.int64s("n_id"))
			requirePart(t, batches[i].int64s("e_id"), b.int64s("e_id"))
			require.Equal(t, batches[i].arrays["input_id"], b.arrays["input_id"])
		}
	}
	require.Less(t, rows, before*9/10)
}

// requirePart holds that all ids of a part are among those of the whole. require.Subset looks at all of them for each.
func requirePart(t *testing.T, whole, part []int64) {
	t.Helper()
	among := make(map[int64]bool, len(whole))
	for _, v := range whole {
		among[v] = true
	}
	for i, v := range part {
		if !among[v] {
			t.Fatalf("id %d at %d is not among the %d of the plain batch", v, i, len(whole))
		}
	}
}

// TestHistoryThatDoesNothing holds that the batches are the plain ones to the last
// byte where nothing is ever kept, and in plain epochs.
func TestHistoryThatDoesNothing(t *testing.T) {
	d := newDataset(someNodes, 40000)
	s := d.store(t, ssd.OS)
	for _, kind := range []string{"none", "degree", "belady", "lru"} {
		t.Run(kind, func(t *testing.T) {
			o := withHistory(belady(), history.Gradient)
			o.Cache, o.FeatureCache = kind, rowsFor(500)
			h := o.History
			o.History = nil
			want := [][]*seen{}
			for epoch := range int64(3) {
				want = append(want, epochOf(t, open(t, d.graph(t), o), epoch))
			}
			late := *h
			late.Start = Span{Count: 1, Epochs: true}
			o.History = &late
			r := train(t, d, open(t, OpenStore(s), o))
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

// TestHistoryLeavesFeaturesAlone holds the two ends of the buffer apart while
// embeddings come and go.
func TestHistoryLeavesFeaturesAlone(t *testing.T) {
	d := newDataset(someNodes, 40000)
	s := d.store(t, ssd.OS)
	for _, policy := range []string{history.Gradient, history.Performance, history.All} {
		t.Run(policy, func(t *testing.T) {
			o := withHistory(plain(), policy)
			o.Cache, o.FeatureCache, o.Prefetch = "expected", 8*someNodes, 4
			o.History.Memory, o.History.Stale = 200<<10, Span{Count: 9}
			l := open(t, OpenStore(s), o)
			r := train(t, d, l)
			full := l.hot.Held()
			require.Positive(t, full)
			require.Equal(t, full, l.Stats().CachedRows)
			least := full
			for epoch := range int64(3) {
				require.NoError(t, l.Start(epoch, 0, Train))
				for b := r.next(); b != nil; b = r.next() {
					r.update(b)
					least = min(least, l.Stats().CachedRows)
				}
			}
			require.Less(t, least, full, "embeddings displaced no feature")
			stats, err := l.HistoryStats()
			require.NoError(t, err)
			require.Equal(t, stats.Features, l.Stats().CachedRows)
			require.LessOrEqual(t, stats.EmbeddingBytes+stats.FeatureBytes, stats.Bytes)
			if policy != history.All {
				for range int64(12) { // everything grows old: batches that are not updated
					if r.next() == nil {
						require.NoError(t, l.Start(7, 0, Train))
					}
				}
				r.epochOf(8)
				require.Positive(t, l.Stats().CachedRows)
			}
		})
	}
}

// TestHistoryResumes holds that a run which was saved in the middle of an epoch
// goes on with the same batches, those included that are left whole, and that a
// run which was restored and has not gone on is the one that was saved.
func TestHistoryResumes(t *testing.T) {
	d := newDataset(someNodes, 40000)
	g := d.graph(t)
	for _, lag := range []int{0, 2} {
		for _, policy := range []string{history.Gradient, history.Performance, history.All} {
			o := withHistory(plain(), policy)
			o.History.Lag, o.History.ProbeEvery = lag, 2
			r := train(t, d, open(t, g, o))
			r.epochOf(0)
			require.NoError(t, r.l.Start(1, 0, Train))
			var state []byte
			for range 11 {
				r.update(r.next())
				var err error
				state, err = r.l.SaveHistory() // while batches are prepared
				require.NoError(t, err)
			}
			rows := slices.Clone(r.l.embeddings.Bytes())
			want := r.epoch()

			resumed := train(t, d, open(t, g, o))
			resumed.epochOf(5) // what it holds is replaced
			for _, bad := range [][]byte{nil, state[:8], state[:len(state)/2],
				append([]byte{255, 255, 255, 255, 255, 255, 255, 255}, state[8:]...)} {
				require.ErrorIs(t, resumed.l.RestoreHistory(bad), history.ErrState)
			}
			require.NoError(t, resumed.l.RestoreHistory(state))
			require.Error(t, resumed.l.RestoreHistory(state[:8]))
			again, err := resumed.l.SaveHistory()
			require.NoError(t, err)
			require.Equal(t, state, again)
			copy(resumed.l.embeddings.Bytes(), rows)
			require.NoError(t, resumed.l.Start(1, 11, Train))
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

// TestUpdatesThatDoNotCome holds that a batch without update is one with nothing
// kept, in any order of calls.
func TestUpdatesThatDoNotCome(t *testing.T) {
	d := newDataset(someNodes, 40000)
	g := d.graph(t)
	r := train(t, d, open(t, g, withHistory(plain(), history.Gradient)))
	rng := rand.New(rand.NewPCG(3, 3))
	skipped := int64(0)
	for epoch := range int64(5) {
		require.NoError(t, r.l.Start(epoch, 0, Train))
		for range rng.Int64N(r.l.NumBatches()) + 1 {
			b := r.next()
			switch rng.IntN(4) {
			case 0:
				skipped++
			case 1:
				require.NoError(t, r.l.SkipHistory(context.Background(), b.int64s("history_counts")[0]))
				skipped++
			default:
				r.update(b)
				_, err := r.l.UpdateHistory(context.Background(), b.int64s("history_counts")[0], embedding, nil)
				require.ErrorIs(t, err, prune.ErrCall, "a second time")
			}
		}
	}
	require.Positive(t, r.hits)
	require.NoError(t, r.l.Start(9, 0, Train)) // the last one counts now
	stats, err := r.l.HistoryStats()
	require.NoError(t, err)
	require.Equal(t, skipped, stats.Skipped)
}

// TestListsThatAreNotRead holds that pruned lists on disk are left alone, unless the
// graph has edges from nodes to themselves.
func TestListsThatAreNotRead(t *testing.T) {
	for _, loops := range []bool{false, true} {
		d := newDataset(someNodes, 40000)
		d.turnLoops()
		if loops {
			d.sources[777] = d.targets[777]
		}
		s := d.store(t, ssd.OS)
		o := withHistory(plain(), history.Gradient)
		o.NeighborCache, o.History.Memory = 0, 1<<20
		r := train(t, d, open(t, OpenStore(s), o))
		for epoch := range int64(3) {
			r.epochOf(epoch)
		}
		require.Equal(t, !loops, r.l.sparesLists)
		with := r.l.Stats()
		o.History = nil
		l := open(t, OpenStore(s), o)
		for epoch := range int64(3) {
			epochOf(t, l, epoch)
		}
		without := l.Stats()
		fetched := func(st Stats) int64 { return st.NeighborHits + st.NeighborMisses }
		if loops {
			require.Equal(t, fetched(without), fetched(with))
		} else {
			require.Less(t, fetched(with), fetched(without)*9/10)
		}
	}
}

// TestLayersBySource holds that each layer brings its own edges grouped by source.
func TestLayersBySource(t *testing.T) {
	d := newDataset(someNodes, 40000)
	o := withHistory(plain(), history.Gradient)
	o.Transpose = true
	r := train(t, d, open(t, d.graph(t), o))
	r.epochOf(0)
	b := r.epochOf(1)[5]
	require.NotContains(t, b.arrays, "source_ptr")
	for layer := 1; layer <= len(o.Fanouts); layer++ {
		name := func(what string) string { return fmt.Sprintf("history_%s_%d", what, layer) }
		edges := b.int64s(name("edge_index"))
		sources, targets := edges[:len(edges)/2], edges[len(edges)/2:]
		ptr := b.int64s(name("source_ptr"))
		target, edge := mem.View[int32](b.arrays[name("source_target")]), mem.View[int32](b.arrays[name("source_edge")])
		require.Len(t, ptr, len(b.int64s(fmt.Sprint("history_nodes_", layer-1)))+1)
		require.EqualValues(t, len(sources), ptr[len(ptr)-1])
		for s := range len(ptr) - 1 {
			for at := ptr[s]; at < ptr[s+1]; at++ {
				require.EqualValues(t, s, sources[edge[at]])
				require.EqualValues(t, targets[edge[at]], target[at])
			}
		}
	}
}

func TestHistoryWithRepeatedSeeds(t *testing.T) {
	d := newDataset(500, 6000)
	seeds := make([]int64, 300)
	rng := rand.New(rand.NewPCG(1, 9))
	for i := range seeds {
		seeds[i] = rng.Int64N(100)
	}
	s := d.store(t, ssd.OS)
	for _, kind := range []string{"belady", "lru", "degree", "none"} {
		o := withHistory(belady(), history.Performance)
		o.Seeds, o.BatchSize, o.Cache, o.FeatureCache = seeds, 32, kind, 2000+200*nodeBytes+64<<10
		r := train(t, d, open(t, OpenStore(s), o))
		for epoch := range int64(3) {
			r.epochOf(epoch)
		}
		require.Positive(t, r.hits)
	}
}

// TestProbes holds that a batch which compares is whole and names what the cache
// holds of it.
func TestProbes(t *testing.T) {
	d := newDataset(someNodes, 40000)
	o := withHistory(plain(), history.Gradient)
	o.History.ProbeEvery = 5
	r := train(t, d, open(t, d.graph(t), o))
	compared := 0
	for epoch := range int64(2) {
		for _, b := range r.epochOf(epoch) {
			counts := b.int64s("history_counts")
			rows, probing := b.arrays["history_probe_1"]
			require.Equal(t, counts[0]%5 == 4, probing)
			if probing {
				require.Equal(t, counts[1], counts[2])
				compared += len(rows) / 8
				for _, age := range b.int64s("history_probe_age_1") {
					require.True(t, 1 <= age && age <= 20, age)
				}
			}
		}
	}
	require.Positive(t, compared)
}

// TestHistoryWithinItsMemory holds that every budget from the smallest on works and
// is kept.
func TestHistoryWithinItsMemory(t *testing.T) {
	d := newDataset(4000, 20000)
	s, g := OpenStore(d.store(t, ssd.OS)), d.graph(t)
	for _, kind := range []string{"belady", "expected", "auto", "in memory"} {
		o, source := withHistory(plain(), history.Performance), s
		o.BatchSize, o.Cache, o.Scratch, o.Memory = 256, kind, t.TempDir(), 1000
		if kind == "in memory" {
			source, o.Cache = Source(g), "auto"
		}
		_, err := Open(context.Background(), source, o, mem.NewAllocator())
		var small *mem.BudgetError
		require.ErrorAs(t, err, &small)
		for _, more := range []int64{0, 100 << 10, 4 << 20} {
			o.Memory = small.Need + more
			l := open(t, source, o)
			train(t, d, l).epochOf(0)
			train(t, d, l).epochOf(1)
			require.LessOrEqual(t, l.budget.Peak(), o.Memory)
		}
	}
}

// TestHistoryFailsWithItsLoader holds that a read error ends the epoch and no
// update waits for batches that will not come.
func TestHistoryFailsWithItsLoader(t *testing.T) {
	d := newDataset(someNodes, 40000)
	for _, kind := range []string{"none", "belady", "degree"} {
		fs := faultfs.New(ssd.OS)
		s := d.store(t, fs)
		o := withHistory(plain(), history.Gradient)
		o.Cache, o.FeatureCache, o.IO = kind, rowsFor(300), ssd.Pread
		r := train(t, d, open(t, OpenStore(s), o))
		require.NoError(t, r.l.Start(0, 0, Train))
		failed := errors.New("nothing failed")
		for n := range int64(someBatchs) {
			b, err := r.l.Next(context.Background())
			if err != nil {
				failed = err
				break
			}
			batch := look(b)
			b.Release()
			if n == 5 {
				fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO})
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			require.NoError(t, r.l.SkipHistory(ctx, batch.int64s("history_counts")[0]))
			cancel()
		}
		var broken *ssd.PathError
		require.ErrorAs(t, failed, &broken)
		require.NoError(t, r.l.Close())
	}
}

func TestHistoryOptions(t *testing.T) {
	d := newDataset(300, 1000)
	g := d.graph(t)
	for name, change := range map[string]func(*Options){
		"p_grad":  func(o *Options) { o.History.GradFraction = 1.5 },
		"p_grad ": func(o *Options) { o.History.GradFraction = math.NaN() },
		"t_stale": func(o *Options) { o.History.Stale.Count = -1 },
		"start":   func(o *Options) { o.History.Start.Count = math.NaN() },
		"memory":  func(o *Options) { o.History.Memory = 0 },
		"lag":     func(o *Options) { o.History.Lag = -1 },
		"probed":  func(o *Options) { o.History.ProbeEvery = -1 },
		"layers":  func(o *Options) { o.Fanouts = []int64{3} },
	} {
		o := withHistory(plain(), history.Gradient)
		change(&o)
		_, err := Open(context.Background(), g, o, mem.NewAllocator())
		require.ErrorIs(t, err, ErrOption, name)
	}
	o := withHistory(plain(), "newest")
	_, err := Open(context.Background(), g, o, mem.NewAllocator())
	require.ErrorIs(t, err, history.ErrConfig)
	l := open(t, g, plain())
	_, err = l.UpdateHistory(context.Background(), 0, 8, nil)
	require.ErrorIs(t, err, prune.ErrCall)

	r := train(t, d, open(t, g, withHistory(plain(), history.Gradient)))
	require.NoError(t, r.l.Start(0, 0, Train))
	i := r.next().int64s("history_counts")[0]
	for _, norms := range [][]prune.Norms{{}, {{}, {}}, {{Computed: make([]float32, 3)}, {}}} {
		_, err = r.l.UpdateHistory(context.Background(), i, embedding, norms)
		require.ErrorIs(t, err, prune.ErrCall)
	}
	_, err = r.l.UpdateHistory(context.Background(), i+1, embedding, nil)
	require.ErrorIs(t, err, prune.ErrCall)
}
