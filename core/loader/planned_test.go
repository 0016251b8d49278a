package loader

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

const (
	someNodes  = 3000
	nodeBytes  = width*4 + wideWidth // of the tables that are not held whole
	someBatchs = 47
)

// rowsFor is a feature_cache that has room for this many rows.
func rowsFor(rows int64) int64 { return 8*someNodes + rows*(nodeBytes+64) + 64<<10 }

// storePlans makes the plans of a loader that has just been opened in the scratch file, as large graphs need it.
// Records stay in memory while they take less than held.
func storePlans(t *testing.T, l *Loader, held int64) {
	t.Helper()
	l.draw.Split.Stored, l.draw.Split.TracesHeld = true, held
	require.NoError(t, openCache(context.Background(), l))
}

// streamsOf counts the streams of batches that a planned loader has begun: of each, the first batches are sampled once.
func streamsOf(l *Loader) (begun int) {
	for _, sampled := range l.Plan().Timeline["sampling"] {
		if sampled[0] == 0 {
			begun++
		}
	}
	return begun
}

// TestPolicyTransferEngineThreads is the metamorphic test of the caches: under every
// policy, transfer, engine and number of threads, the batches of several epochs equal
// the batches of a loader without cache.
func TestPolicyTransferEngineThreads(t *testing.T) {
	d := someDataset()
	s := someStore(t, ssd.OS)
	var want [][]*seen
	base := plain()
	base.Seed = explore.Seed(t, 5)
	reference := open(t, d.graph(t), base)
	for epoch := range int64(3) {
		want = append(want, epochOf(t, reference, epoch))
	}
	kinds := append([]string{"belady", "belady", "belady", "auto", "degree", "in-degree", "random", "presc", "expected",
		"oracle", "vector"}, cache.OnlineNames()...)
	rng := explore.Rand(t, 20, 0)
	pick := func(list ...int64) int64 { return list[rng.IntN(len(list))] }
	for round := range explore.Rounds(90) {
		o := base
		o.Cache = kinds[round%len(kinds)]
		o.Transfer = plan.Transfers()[rng.IntN(len(plan.Transfers()))]
		o.FeatureCache = pick(1, rowsFor(10), rowsFor(300), rowsFor(1500), rowsFor(3100))
		o.NeighborCache = pick(draw.Auto, draw.Auto, 0, 60000)
		o.Superbatch = pick(draw.Auto, 1, 2, 5, 16, 47, 64, 1000)
		o.Prefetch, o.Workers = int(pick(0, 1, 2, 5)), int(pick(0, 1, 2, 8))
		o.IO = []ssd.Kind{ssd.IOUring, ssd.Pread, ssd.Buffered}[rng.IntN(3)]
		o.CarryOver, o.Lookahead = pick(0, 1, 1) == 1, pick(0, 1, 1) == 1
		o.Checksums = pick(0, 0, 1) == 1
		o.BufferMemory = pick(draw.Auto, 0, 50000)
		o.HotnessSeed, o.PreSCEpochs = 3, int(pick(1, 2))
		if o.Cache == "vector" {
			o.Hotness = make([]float32, someNodes)
			for i := range o.Hotness {
				o.Hotness[i] = rng.Float32()
			}
		}
		if pick(0, 1, 1) == 1 {
			o.Scratch, o.ScratchBytes = t.TempDir(), pick(draw.Auto, 0, 20000, 200000)
		}
		stored := pick(-1, 0, 50_000, 1<<30)
		t.Run(fmt.Sprintf("round %d %s %s %d", round, o.Cache, o.Transfer, stored), func(t *testing.T) {
			l := open(t, draw.OpenStore(s), o)
			if l.draw.Split.Cache == "belady" && stored >= 0 {
				storePlans(t, l, stored)
			}
			for epoch := range want {
				requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
			}
			st := l.Stats()
			require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses, "%+v", st)
			require.Zero(t, st.PackErrors)
		})
	}
}

func belady() draw.Options {
	o := plain()
	o.Cache, o.FeatureCache, o.Superbatch = "belady", rowsFor(500), 10
	return o
}

// TestPlannedStreamFollowsTheConsumer walks randomly over epochs: whole ones, ones
// left early, resumed ones, traces.
func TestPlannedStreamFollowsTheConsumer(t *testing.T) {
	d := someDataset()
	s := someStore(t, ssd.OS)
	reference := open(t, d.graph(t), plain())
	want := map[int64][]*seen{}
	for epoch := range int64(4) {
		want[epoch] = epochOf(t, reference, epoch)
	}
	for _, kind := range []string{"belady", "lru", "s3fifo"} {
		for _, transfer := range []string{"random", "scan+forward", "page-once+forward", "pack", "pack+forward+ahead"} {
			explore.Run(t, kind+" "+transfer, func(t *testing.T) {
				o := belady()
				o.Cache, o.Transfer, o.Scratch = kind, transfer, t.TempDir()
				l := open(t, draw.OpenStore(s), o)
				if kind == "belady" && transfer != "random" {
					storePlans(t, l, 100_000)
				}
				rng := explore.Rand(t, 8, 8)
				epoch := int64(0)
				for range explore.Rounds(14) {
					first, take := int64(0), int64(someBatchs)
					switch rng.IntN(5) {
					case 0:
						take = rng.Int64N(someBatchs)
					case 1:
						first = rng.Int64N(someBatchs)
						take -= first
					case 2:
						epoch = rng.Int64N(4)
					}
					require.NoError(t, l.Start(epoch, first, Train))
					for i := range take {
						b, err := l.Next(context.Background())
						require.NoError(t, err)
						require.Equal(t, want[epoch][first+i], look(b))
						b.Release()
					}
					if rng.IntN(4) == 0 {
						require.NoError(t, l.Start(2, 0, Trace))
						require.Len(t, rest(t, l), someBatchs)
					}
					epoch = (epoch + 1) % 4
				}
			})
		}
	}
}

func TestPlansWithRepeatedSeeds(t *testing.T) {
	d := newDataset(500, 6000)
	seeds := make([]int64, 300)
	rng := explore.Rand(t, 1, 9)
	for i := range seeds {
		seeds[i] = rng.Int64N(100)
	}
	s := d.store(t, ssd.OS)
	for _, kind := range []string{"belady", "lru", "degree", "none"} {
		o := belady()
		o.Seeds, o.BatchSize, o.Shuffle, o.Cache, o.FeatureCache = seeds, 32, false, kind, 2000+200*nodeBytes+64<<10
		l := open(t, draw.OpenStore(s), o)
		for epoch := range int64(2) {
			for _, b := range epochOf(t, l, epoch) {
				d.form("").requireRight(t, o, b)
			}
		}
	}
}

// TestPlanReadsLess holds that a plan is worth its work: fewer rows are read than
// by any other policy with the same room.
func TestPlanReadsLess(t *testing.T) {
	explore.Figures(t)
	s := someStore(t, ssd.OS)
	reads := map[string]int64{}
	for _, kind := range append([]string{"none", "belady", "degree", "expected"}, cache.OnlineNames()...) {
		o := belady()
		o.Cache, o.Superbatch = kind, draw.Auto
		l := open(t, draw.OpenStore(s), o)
		for epoch := range int64(4) {
			epochOf(t, l, epoch)
		}
		st := l.Stats()
		reads[kind] = st.Misses + st.Filled
	}
	for kind, n := range reads {
		if kind != "belady" {
			require.Less(t, reads["belady"], n, kind)
		}
	}
}

// TestPlannedBudgets holds that every budget from the smallest on works and is
// kept.
func TestPlannedBudgets(t *testing.T) {
	d := newDataset(4000, 20000)
	s := d.store(t, ssd.OS)
	o := plain()
	o.Fanouts, o.BatchSize, o.Cache, o.Scratch, o.Transfer = []int64{5, 5}, 256, "belady", t.TempDir(), "scan+forward"
	o.Memory = 1000
	least := leastMemory(t, draw.OpenStore(s), o)
	want := epochOf(t, open(t, d.graph(t), func() draw.Options {
		p := plain()
		p.Fanouts, p.BatchSize = o.Fanouts, o.BatchSize
		return p
	}()), 1)
	for _, memory := range []int64{least, least + 4096, least * 11 / 10, least * 3 / 2, least * 2, least * 4} {
		o.Memory = memory
		l := open(t, draw.OpenStore(s), o)
		epochOf(t, l, 0)
		requireSame(t, want, epochOf(t, l, 1))
		require.LessOrEqual(t, l.Stats().MemoryPeak, memory)
	}
	o.Cache, o.Memory = "auto", least-1
	l := open(t, draw.OpenStore(s), o)
	requireSame(t, want, epochOf(t, l, 1))
	require.NotEqual(t, "belady", l.Stats().Cache)
	require.NotEmpty(t, l.Stats().CacheWhy)
}

// TestScratchFaults holds that a scratch file that fails costs nothing but time, wherever it fails, and whatever is in
// it.
func TestScratchFaults(t *testing.T) {
	d := someDataset()
	reference := open(t, d.graph(t), plain())
	var want [][]*seen
	for epoch := range int64(3) {
		want = append(want, epochOf(t, reference, epoch))
	}
	const scratchFile = ssd.TempPrefix + "*"
	for name, fault := range map[string]faultfs.Fault{
		"disk full":      {Op: faultfs.Write, Nth: 3, Times: faultfs.Forever, Errno: syscall.ENOSPC},
		"first read":     {Op: faultfs.Read, Path: scratchFile, Nth: 2, Times: faultfs.Forever, Errno: syscall.EIO},
		"a read":         {Op: faultfs.Read, Path: scratchFile, Nth: 10, Times: 1, Errno: syscall.EIO},
		"first write":    {Op: faultfs.Write, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO},
		"one write":      {Op: faultfs.Write, Nth: 2, Times: 1, Errno: syscall.EIO},
		"no more space":  {Op: faultfs.Allocate, Nth: 1, Times: faultfs.Forever, Errno: syscall.ENOSPC},
		"cannot be made": {Op: faultfs.Open, Nth: 1, Times: faultfs.Forever, Errno: syscall.EACCES},
	} {
		for _, stored := range []bool{false, true} {
			explore.Run(t, fmt.Sprintf("%s, stored: %v", name, stored), func(t *testing.T) {
				fs := faultfs.New(ssd.OS)
				s := someStore(t, fs)
				o := belady()
				o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
				o.TraceMemory = 1 << 19 // most traces go to the file
				l := open(t, draw.OpenStore(s), o)
				if stored {
					storePlans(t, l, 0)
				}
				fs.Arm(fault)
				for epoch := range want {
					requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
					if epoch == 1 {
						fs.Clear()
					}
				}
				require.NotEmpty(t, l.Stats().ScratchWhy)
			})
		}
	}
}

// TestPlansWithoutMemoryAreLost: where the disk is full from the start, records stay in memory, which leaves the rest
// of the budget to batches. Where that does for no plan, batches read their rows.
func TestPlansWithoutMemoryAreLost(t *testing.T) {
	d := someDataset()
	reference := open(t, d.graph(t), plain())
	want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
	planLost := map[int64]int{}
	for _, traces := range []int64{0, 2000, 20_000, 1 << 30} {
		fs := faultfs.New(ssd.OS)
		o := belady()
		o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
		l := open(t, draw.OpenStore(someStore(t, fs)), o)
		l.draw.Split.Traces = traces
		storePlans(t, l, 0)
		fs.Arm(faultfs.Fault{Op: faultfs.Allocate, Nth: 1, Times: faultfs.Forever, Errno: syscall.ENOSPC})
		for epoch := range want {
			requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
		}
		require.NotEmpty(t, l.Stats().ScratchWhy)
		planLost[traces] = streamsOf(l) - 1
	}
	require.Positive(t, planLost[0])
	require.Zero(t, planLost[1<<30])
}

// TestLostPlans holds that batches are right when a step of a stored plan cannot be loaded: the scratch file fails at
// one read after the other, so that every part of a plan is lost once, with hits of batches that were loaded before.
func TestLostPlans(t *testing.T) {
	d := someDataset()
	reference := open(t, d.graph(t), plain())
	want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1), epochOf(t, reference, 2)}
	planLost := 0
	for read := 3; read < explore.Rounds(400); read += 1 + read/4 {
		fs := faultfs.New(ssd.OS)
		o := belady()
		o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
		l := open(t, draw.OpenStore(someStore(t, fs)), o)
		storePlans(t, l, 0)
		fs.Arm(faultfs.Fault{Op: faultfs.Read, Path: ssd.TempPrefix + "*", Nth: read, Times: faultfs.Forever,
			Errno: syscall.EIO})
		for epoch := range want {
			requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
		}
		planLost += streamsOf(l) - 1 // after an epoch with a lost plan, the next is planned anew
		st := l.Stats()
		require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses, "%+v", st)
		l.Close()
	}
	require.Positive(t, planLost, "no step was lost")
}

func TestWrongPlanOptions(t *testing.T) {
	d := newDataset(100, 500)
	s := d.store(t, ssd.OS)
	for name, c := range map[string]struct {
		change func(o *draw.Options)
		want   error
	}{
		"no superbatch":       {func(o *draw.Options) { o.Superbatch = 0 }, draw.ErrOption},
		"negative superbatch": {func(o *draw.Options) { o.Superbatch = -2 }, draw.ErrOption},
		"transfer":            {func(o *draw.Options) { o.Transfer = "fast" }, draw.ErrOption},
		"reorder":             {func(o *draw.Options) { o.Reorder = -2 }, draw.ErrOption},
		"reorder of degree":   {func(o *draw.Options) { o.Reorder, o.Cache = 4, "degree" }, draw.ErrOption},
		"reorder of none":     {func(o *draw.Options) { o.Reorder, o.Cache = 4, "none" }, draw.ErrOption},
		"reorder beyond":      {func(o *draw.Options) { o.Reorder, o.Superbatch = 4, 3 }, draw.ErrOption},
		"traces":              {func(o *draw.Options) { o.TraceMemory = -2 }, draw.ErrOption},
		"traces too small":    {func(o *draw.Options) { o.TraceMemory = 10 }, mem.ErrBudget},
		"buffers":             {func(o *draw.Options) { o.BufferMemory = -2 }, draw.ErrOption},
		"scratch":             {func(o *draw.Options) { o.ScratchBytes = -2 }, draw.ErrOption},
		"presc":               {func(o *draw.Options) { o.Cache, o.PreSCEpochs = "presc", 0 }, draw.ErrOption},
		"vector": {func(o *draw.Options) {
			o.Cache, o.Hotness = "vector", make([]float32, 99)
		}, cache.ErrHotness},
		"superbatch that does not fit": {func(o *draw.Options) {
			o.Superbatch, o.Memory, o.FeatureCache = 1<<40, 8<<20, draw.Auto
		}, mem.ErrBudget},
	} {
		t.Run(name, func(t *testing.T) {
			o := belady()
			o.BatchSize, o.FeatureCache = 8, 5000
			c.change(&o)
			l, err := Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
			if err == nil {
				l.Close()
			}
			require.ErrorIs(t, err, c.want)
		})
	}
	require.True(t, slices.Contains(draw.CacheKinds, "auto"))
}

// TestReadsOfCalibrationAreNotCounted: the reads equal the reads of a loader that need not know the device.
func TestReadsOfCalibrationAreNotCounted(t *testing.T) {
	s := newDataset(3000, 40000).store(t, ssd.OS)
	var opened [2]Stats
	for i, transfer := range []string{"random", "auto"} {
		o := plain()
		o.Cache, o.FeatureCache, o.Transfer, o.Calibration = "belady", rowsFor(50), transfer, ""
		l := open(t, draw.OpenStore(s), o)
		opened[i] = l.Stats()
		require.Equal(t, i == 1, l.cache.(plannedRows).cache.Stats().Calibration.Bytes > 0)
	}
	require.Equal(t, opened[0].BytesRead, opened[1].BytesRead)
	require.Equal(t, opened[0].Requests, opened[1].Requests)
}
