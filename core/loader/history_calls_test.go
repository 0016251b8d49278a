package loader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/prune"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestLayersBySource holds that each layer brings its own edges grouped by source.
func TestLayersBySource(t *testing.T) {
	for _, f := range forms(someDataset()) {
		o := f.withHistory(f.options(), history.Gradient)
		o.Transpose = true
		r := f.train(t, open(t, f.graph(t), o))
		r.epochOf(0)
		b, types := r.epochOf(1)[5], r.l.draw.Parts.Schema
		levels := r.levels(b)
		for layer := 1; layer <= o.Hops(); layer++ {
			for i, of := range types.Relations {
				require.NotContains(t, b.arrays, types.EdgeName(i, "source_ptr"))
				name := func(what string) string { return types.EdgeName(i, fmt.Sprintf("history_%s_%d", what, layer)) }
				edges := b.int64s(name("edge_index"))
				sources, targets := edges[:len(edges)/2], edges[len(edges)/2:]
				ptr := b.int64s(name("source_ptr"))
				target, edge := mem.View[int32](b.arrays[name("source_target")]), mem.View[int32](b.arrays[name("source_edge")])
				require.EqualValues(t, levels.size[layer-1][of.Source]+1, len(ptr))
				require.EqualValues(t, len(sources), ptr[len(ptr)-1])
				for s := range len(ptr) - 1 {
					for at := ptr[s]; at < ptr[s+1]; at++ {
						require.EqualValues(t, s, sources[edge[at]])
						require.EqualValues(t, targets[edge[at]], target[at])
					}
				}
			}
		}
	}
}

// TestUpdatesThatDoNotCome holds that a batch without update is one with nothing
// kept, in any order of calls.
func TestUpdatesThatDoNotCome(t *testing.T) {
	f := someDataset().form("")
	g := f.graph(t)
	r := f.train(t, open(t, g, f.withHistory(plain(), history.Gradient)))
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

// TestBatchesTakenAhead holds that batches do not depend on when they are taken, up to the lag before their steps.
func TestBatchesTakenAhead(t *testing.T) {
	f := someDataset().form("")
	g := f.graph(t)
	var want []*seen
	for ahead := range 3 {
		r := f.train(t, open(t, g, f.withHistory(plain(), history.Gradient)))
		var got []*seen
		for epoch := range int64(2) {
			require.NoError(t, r.l.Start(epoch, 0, Train))
			var taken []*seen
			for n := range int(r.l.NumBatches()) {
				for len(taken) <= ahead && n+len(taken) < int(r.l.NumBatches()) {
					taken = append(taken, r.take())
				}
				require.NoError(t, BeginStep(r.l))
				r.update(taken[0])
				require.NoError(t, EndStep(context.Background(), r.l))
				got, taken = append(got, taken[0]), taken[1:]
			}
			require.Nil(t, r.take())
		}
		require.Positive(t, r.hits)
		if ahead == 0 {
			want = got
		}
		require.Equal(t, want, got, "%d batches ahead", ahead)
	}
}

func TestHistoryWithRepeatedSeeds(t *testing.T) {
	f := newDataset(500, 6000).form("")
	seeds := make([]int64, 300)
	rng := rand.New(rand.NewPCG(1, 9))
	for i := range seeds {
		seeds[i] = rng.Int64N(100)
	}
	s := f.store(t, ssd.OS)
	for _, kind := range []string{"belady", "lru", "degree", "none"} {
		o := f.withHistory(belady(), history.Performance)
		o.Seeds, o.BatchSize, o.Cache, o.FeatureCache = seeds, 32, kind, 2000+200*nodeBytes+64<<10
		r := f.train(t, open(t, draw.OpenStore(s), o))
		for epoch := range int64(3) {
			r.epochOf(epoch)
		}
		require.Positive(t, r.hits)
	}
}

// TestProbes holds that a batch which compares is whole and names what the cache
// holds of it.
func TestProbes(t *testing.T) {
	f := someDataset().form("")
	o := f.withHistory(plain(), history.Gradient)
	o.History.ProbeEvery = 5
	r := f.train(t, open(t, f.graph(t), o))
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

// TestHistoryWithinItsMemory holds that every budget from the smallest on works and is kept.
func TestHistoryWithinItsMemory(t *testing.T) {
	for _, f := range forms(newDataset(4000, 20000)) {
		g, s := f.graph(t), draw.OpenStore(f.store(t, ssd.OS))
		for _, kind := range some(f, "belady", "expected", "auto", "in memory") {
			o, source := f.withHistory(f.options(), history.Performance), s
			o.Cache, o.Scratch, o.Memory, o.Transpose = kind, t.TempDir(), 1000, len(f.names) > 1
			if len(f.names) == 1 {
				o.BatchSize = 256
			}
			if kind == "in memory" {
				source, o.Cache = draw.Source(g), "auto"
			}
			least := leastMemory(t, source, o)
			for _, more := range explore.Part(t, fmt.Sprint(f, kind), []int64{0, 100 << 10, 4 << 20}) {
				o.Memory = least + more
				r := f.train(t, open(t, source, o))
				r.epochOf(0)
				r.epochOf(1)
				require.Positive(t, r.hits)
				require.LessOrEqual(t, r.l.Stats().MemoryPeak, o.Memory)
			}
		}
	}
}

// TestHistoryFailsWithItsLoader holds that a read error ends the epoch and no
// update waits for batches that will not come.
func TestHistoryFailsWithItsLoader(t *testing.T) {
	f := someDataset().form("")
	for _, kind := range []string{"none", "belady", "degree"} {
		fs := faultfs.New(ssd.OS)
		s := f.store(t, fs)
		o := f.withHistory(plain(), history.Gradient)
		o.Cache, o.FeatureCache, o.IO = kind, rowsFor(300), ssd.Pread
		r := f.train(t, open(t, draw.OpenStore(s), o))
		require.NoError(t, r.l.Start(0, 0, Train))
		failed := errors.New("nothing failed")
		for n := range int64(someBatchs) {
			b, err := step(context.Background(), r.l)
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
	f := newDataset(300, 1000).form("")
	g := f.graph(t)
	for name, change := range map[string]func(*draw.Options){
		"p_grad":  func(o *draw.Options) { o.History.GradFraction = 1.5 },
		"p_grad ": func(o *draw.Options) { o.History.GradFraction = math.NaN() },
		"t_stale": func(o *draw.Options) { o.History.Stale.Count = -1 },
		"start":   func(o *draw.Options) { o.History.Start.Count = math.NaN() },
		"memory":  func(o *draw.Options) { o.History.Memory = 0 },
		"lag":     func(o *draw.Options) { o.History.Lag = -1 },
		"probed":  func(o *draw.Options) { o.History.ProbeEvery = -1 },
		"layers":  func(o *draw.Options) { o.Fanouts = []int64{3} },
	} {
		o := f.withHistory(plain(), history.Gradient)
		change(&o)
		_, err := Open(context.Background(), g, o, mem.NewAllocator())
		require.ErrorIs(t, err, draw.ErrOption, name)
	}
	o := f.withHistory(plain(), "newest")
	_, err := Open(context.Background(), g, o, mem.NewAllocator())
	require.ErrorIs(t, err, history.ErrConfig)
	l := open(t, g, plain())
	_, err = l.UpdateHistory(context.Background(), 0, 8, nil)
	require.ErrorIs(t, err, prune.ErrCall)

	r := f.train(t, open(t, g, f.withHistory(plain(), history.Gradient)))
	require.NoError(t, r.l.Start(0, 0, Train))
	i := r.next().int64s("history_counts")[0]
	for _, norms := range [][]prune.Norms{{}, {{Computed: make([]float32, 3)}, {}}} {
		_, err = r.l.UpdateHistory(context.Background(), i, embedding, norms)
		require.ErrorIs(t, err, prune.ErrCall)
	}
	_, err = r.l.UpdateHistory(context.Background(), i+1, embedding, nil)
	require.ErrorIs(t, err, prune.ErrCall)
}
