package loader

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/guard"
	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestBatchesAgree is the metamorphic test of the loader: what is in a batch
// does not depend on anything but the source, what is asked for, and the seed.
func TestBatchesAgree(t *testing.T) {
	d := newDataset(3000, 40000)
	s := d.store(t, ssd.OS)
	want := epochOf(t, open(t, d.graph(t), plain()), 3)
	require.Len(t, want, 47)
	full := int64(3000 * (width*4 + wideWidth + 8))
	for name, change := range map[string]func(o *Options){
		"defaults":               func(*Options) {},
		"one thread":             func(o *Options) { o.Workers = 1 },
		"eight threads":          func(o *Options) { o.Workers, o.Prefetch = 8, 8 },
		"eight threads, no lead": func(o *Options) { o.Workers, o.Prefetch = 8, 0 },
		"deep prefetch":          func(o *Options) { o.Prefetch = 30 },
		"pread":                  func(o *Options) { o.IO = ssd.Pread },
		"buffered":               func(o *Options) { o.IO = ssd.Buffered },
		"checksums":              func(o *Options) { o.Checksums = true },
		"degree, all of it":      func(o *Options) { o.Cache = "degree" },
		"degree, a third":        func(o *Options) { o.Cache, o.FeatureCache = "degree", full/3 },
		"neighbours on disk":     func(o *Options) { o.NeighborCache = 0 },
		"edge numbers on disk":   func(o *Options) { o.NeighborCache = 40000 * 4 },
		"all on disk, checked": func(o *Options) {
			o.NeighborCache, o.FeatureCache, o.Checksums = 0, 0, true
		},
		"2.5 MiB": func(o *Options) { o.Memory, o.Cache = 5<<19, "degree" },
		"4 MiB":   func(o *Options) { o.Memory, o.Cache, o.Prefetch = 4<<20, "degree", 8 },
	} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			change(&o)
			l := open(t, OpenStore(s), o)
			requireSame(t, want, epochOf(t, l, 3))
			if o.Memory > 0 {
				require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
			}
		})
	}
	t.Run("graph in memory", func(t *testing.T) {
		o := plain()
		o.Workers, o.Prefetch = 3, 0
		requireSame(t, want, epochOf(t, open(t, d.graph(t), o), 3))
	})
}

func requireSame(t *testing.T, want, got []*seen) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i], "batch %d", i)
	}
}

// TestBatchesAreRight compares every batch with the user's arrays.
func TestBatchesAreRight(t *testing.T) {
	d := newDataset(500, 6000)
	seeds := []int64{7, 3, 3, 499, 0, 120, 7, 55, 90}
	for _, replace := range []bool{false, true} {
		o := plain()
		o.Seeds, o.BatchSize, o.Replace, o.Shuffle, o.Cache = seeds, 4, replace, false, "degree"
		for _, b := range epochOf(t, open(t, OpenStore(d.store(t, ssd.OS)), o), 0) {
			requireRight(t, d, seeds, o, b)
		}
	}
}

func requireRight(t *testing.T, d *dataset, seeds []int64, o Options, b *seen) {
	t.Helper()
	nID, eID, input := b.int64s("n_id"), b.int64s("e_id"), b.int64s("input_id")
	edgeIndex, ptr := b.int64s("edge_index"), b.int64s("ptr")
	row, col := edgeIndex[:len(eID)], edgeIndex[len(eID):]
	require.Len(t, input, int(b.numSeeds))
	for i, p := range input {
		require.EqualValues(t, b.index*o.BatchSize+int64(i), p)
		require.Equal(t, seeds[p], nID[i])
	}
	for i, e := range eID {
		require.Equal(t, d.sources[e], nID[row[i]])
		require.Equal(t, d.targets[e], nID[col[i]])
		require.Equal(t, []int32{-int32(e), 2 * int32(e)}, mem.View[int32](b.arrays["edge_attr"])[2*i:2*i+2])
	}
	require.True(t, slices.IsSorted(col))
	for target := range len(ptr) - 1 {
		for i := ptr[target]; i < ptr[target+1]; i++ {
			require.EqualValues(t, target, col[i])
		}
	}
	nodesPerHop, edgesPerHop := b.int64s("num_sampled_nodes"), b.int64s("num_sampled_edges")
	require.Equal(t, b.numSeeds, nodesPerHop[0])
	require.EqualValues(t, len(nID), sum(nodesPerHop))
	require.EqualValues(t, len(eID), sum(edgesPerHop))
	x, y := b.float32s("x"), b.int64s("y")
	for i, v := range nID {
		require.Equal(t, d.x[v*width:(v+1)*width], x[i*width:(i+1)*width])
		require.Equal(t, d.y[v], y[i])
		require.Equal(t, d.wide[v*wideWidth:(v+1)*wideWidth], b.arrays["wide"][i*wideWidth:(i+1)*wideWidth])
	}
}

func sum(values []int64) (total int64) {
	for _, v := range values {
		total += v
	}
	return total
}

func TestEpochsCoverTheSeeds(t *testing.T) {
	d := newDataset(300, 1000)
	for _, drop := range []bool{false, true} {
		o := plain()
		o.DropLast = drop
		l := open(t, d.graph(t), o)
		var orders [][]int64
		for epoch := range int64(2) {
			var order []int64
			for _, b := range epochOf(t, l, epoch) {
				order = append(order, b.int64s("input_id")...)
			}
			orders = append(orders, order)
			if drop {
				require.Len(t, order, 256)
			} else {
				require.Len(t, order, 300)
			}
			distinct := slices.Compact(slices.Sorted(slices.Values(order)))
			require.Len(t, distinct, len(order))
		}
		require.NotEqual(t, orders[0], orders[1])
	}
}

func TestStartResumesInTheMiddle(t *testing.T) {
	d := newDataset(1000, 9000)
	l := open(t, OpenStore(d.store(t, ssd.OS)), plain())
	want := epochOf(t, l, 1)
	require.NoError(t, l.Start(1, 5, Train))
	requireSame(t, want[5:], rest(t, l))
	require.NoError(t, l.Start(1, int64(len(want)), Train))
	require.Empty(t, rest(t, l))
	require.ErrorIs(t, l.Start(1, int64(len(want))+1, Train), ErrOption)
	require.ErrorIs(t, l.Start(-1, 0, Train), ErrOption)
}

func TestTraceSamplesOnly(t *testing.T) {
	d := newDataset(1000, 9000)
	o := plain()
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	want := epochOf(t, l, 2)
	before := l.Stats().BytesRead
	require.NoError(t, l.Start(2, 0, Trace))
	for i, b := range rest(t, l) {
		require.Equal(t, want[i].arrays["n_id"], b.arrays["n_id"])
		require.Len(t, b.arrays, 2)
	}
	require.Equal(t, before, l.Stats().BytesRead)
}

func TestNextKeepsTheBatchOnTimeout(t *testing.T) {
	d := newDataset(1000, 9000)
	for _, prefetch := range []int{0, 3} {
		o := plain()
		o.Prefetch = prefetch
		l := open(t, d.graph(t), o)
		want := epochOf(t, l, 0)
		require.NoError(t, l.Start(0, 0, Train))
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		var got []*seen
		for {
			b, err := l.Next(gone)
			if err != nil {
				if b, err = l.Next(context.Background()); err == io.EOF {
					break
				}
				require.NoError(t, err)
			}
			got = append(got, look(b))
			b.Release()
		}
		requireSame(t, want, got)
	}
}

func TestLookingFindsWhatIsThere(t *testing.T) {
	l := open(t, newDataset(1000, 9000).graph(t), plain())
	over, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, l.Start(0, 0, Train))
	for i := range l.NumBatches() {
		slot := l.running.slots[i%int64(len(l.running.slots))]
		require.Eventually(t, func() bool { return len(slot) == 1 }, 10*time.Second, time.Millisecond)
		b, err := l.Next(over)
		require.NoError(t, err)
		require.Equal(t, i, b.Index)
		b.Release()
	}
}

func TestPrefetchBoundsWhatIsPrepared(t *testing.T) {
	d := newDataset(1000, 9000)
	for _, prefetch := range []int{0, 1, 4} {
		o := plain()
		o.Prefetch = prefetch
		alloc := mem.NewAllocator()
		l, err := Open(context.Background(), d.graph(t), o, alloc)
		require.NoError(t, err)
		require.NoError(t, l.Start(0, 0, Train))
		var prepared int64
		require.Eventually(t, func() bool {
			buffers, _ := alloc.Live()
			last := prepared
			prepared = buffers / 11 // arrays in a batch
			return prepared == int64(prefetch) && last == prepared
		}, 5*time.Second, 20*time.Millisecond)
		l.Stop()
		buffers, _ := alloc.Live()
		require.Zero(t, buffers)
		require.NoError(t, l.Close())
	}
}

func TestBudgetNamesTheSmallestThatWorks(t *testing.T) {
	d := newDataset(4000, 20000)
	s := d.store(t, ssd.OS)
	for name, change := range map[string]func(o *Options){
		"defaults":  func(*Options) {},
		"checksums": func(o *Options) { o.Checksums = true },
		"caches":    func(o *Options) { o.Cache, o.FeatureCache, o.NeighborCache = "degree", 1<<18, 20000*4 },
		"no lead":   func(o *Options) { o.Prefetch = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Fanouts, o.BatchSize, o.Memory = []int64{5, 5, 5}, 256, 1000
			change(&o)
			_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
			var tooSmall *mem.BudgetError
			require.ErrorAs(t, err, &tooSmall)
			require.Contains(t, err.Error(), fmt.Sprint(tooSmall.Need))
			o.Memory = tooSmall.Need - 1
			_, err = Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
			require.ErrorIs(t, err, mem.ErrBudget)
			o.Memory = tooSmall.Need
			l := open(t, OpenStore(s), o)
			require.Len(t, epochOf(t, l, 0), 16)
			require.Len(t, epochOf(t, l, 1), 16)
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
		})
	}
}

// TestLargestBatch: any batch size beyond the seeds makes one batch, or none without a last one that is not full.
func TestLargestBatch(t *testing.T) {
	d, o := newDataset(100, 500), plain()
	for _, o.BatchSize = range []int64{100, 101, 1 << 62, math.MaxInt64} {
		o.Memory, o.DropLast = 64<<20, false
		require.Len(t, epochOf(t, open(t, d.graph(t), o), 0), 1)
		o.DropLast = true
		require.Len(t, epochOf(t, open(t, d.graph(t), o), 0), int(100/o.BatchSize))
	}
}

// The measured batches have no edge, another has the only one.
func TestSmallestBudgetWithAnEdgeInOneBatch(t *testing.T) {
	s := newDataset(240, 1).store(t, ssd.OS)
	o := plain()
	o.Fanouts, o.BatchSize, o.Shuffle, o.Memory = []int64{1}, 2, false, 1
	_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
	var tooSmall *mem.BudgetError
	require.ErrorAs(t, err, &tooSmall)
	o.Memory = tooSmall.Need
	l := open(t, OpenStore(s), o)
	require.Len(t, epochOf(t, l, 0), 120)
	require.EqualValues(t, 1, l.Stats().Edges)
}

func TestBatchLargerThanTheEpoch(t *testing.T) {
	d := newDataset(100, 500)
	s := d.store(t, ssd.OS)
	for _, change := range []func(o *Options){
		func(*Options) {},
		func(o *Options) {
			o.Links = &links.Options{Sources: d.sources[:9], Targets: d.targets[:9], Negatives: 1000, Triplets: true}
		},
	} {
		for _, size := range []int64{101, 1 << 40, math.MaxInt64} {
			o := plain()
			o.BatchSize, o.Memory = size, 64<<20
			change(&o)
			require.Len(t, epochOf(t, open(t, OpenStore(s), o), 0), 1)
			o.DropLast = true
			require.Empty(t, epochOf(t, open(t, OpenStore(s), o), 0))
		}
	}
}

func TestWrongOptions(t *testing.T) {
	d := newDataset(100, 500)
	g := d.graph(t)
	for name, c := range map[string]struct {
		change func(o *Options)
		want   error
	}{
		"batch size":     {func(o *Options) { o.BatchSize = 0 }, ErrOption},
		"workers":        {func(o *Options) { o.Workers = -1 }, ErrOption},
		"prefetch":       {func(o *Options) { o.Prefetch = -1 }, ErrOption},
		"memory":         {func(o *Options) { o.Memory = -1 }, ErrOption},
		"feature cache":  {func(o *Options) { o.FeatureCache = -2 }, ErrOption},
		"neighbor cache": {func(o *Options) { o.NeighborCache = -2 }, ErrOption},
		"cache":          {func(o *Options) { o.Cache = "hot" }, ErrOption},
		"no seeds":       {func(o *Options) { o.Seeds = []int64{} }, ErrOption},
		"seed too large": {func(o *Options) { o.Seeds = []int64{1, 100} }, sample.ErrSeed},
		"negative seed":  {func(o *Options) { o.Seeds = []int64{-1} }, sample.ErrSeed},
		"fanout":         {func(o *Options) { o.Fanouts = []int64{3, 0} }, sample.ErrFanout},
		"short held":     {func(o *Options) { o.Held = make([]int32, 99) }, ErrOption},
		"no row held":    {func(o *Options) { o.Held = append(make([]int32, 99), -2) }, ErrOption},
		"holds":          {func(o *Options) { o.Holds = -1 }, ErrOption},
		"no subgraph":    {func(o *Options) { o.Subgraph = sample.Induced + 1 }, ErrOption},
		"labor induced": {
			func(o *Options) { o.Subgraph, o.Labor = sample.Induced, &sample.Labor{BatchDependency: 1} }, ErrOption,
		},
		"walks induced": {
			func(o *Options) { o.Subgraph, o.Walks = sample.Induced, make([]sample.Walk, len(o.Fanouts)) }, ErrOption,
		},
		"history induced": {
			func(o *Options) { o.Subgraph, o.History = sample.Induced, new(HistoryOptions) }, ErrOption,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			c.change(&o)
			_, err := Open(context.Background(), g, o, mem.NewAllocator())
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestReadErrorEndsTheEpochAndNamesTheFile(t *testing.T) {
	d := newDataset(3000, 40000)
	fs := faultfs.New(ssd.OS)
	s := d.store(t, fs)
	o := plain()
	o.IO = ssd.Pread
	l := open(t, OpenStore(s), o)
	want := epochOf(t, l, 0)
	require.NoError(t, l.Start(0, 0, Train))
	first, err := l.Next(context.Background())
	require.NoError(t, err)
	first.Release()
	fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO})
	for err == nil {
		var b *Batch
		if b, err = l.Next(context.Background()); err == nil {
			b.Release()
		}
	}
	var where *ssd.PathError
	require.ErrorAs(t, err, &where)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, s.Path(), filepath.Dir(where.Path))
	_, again := l.Next(context.Background())
	require.Equal(t, err, again)
	fs.Clear()
	requireSame(t, want, epochOf(t, l, 0))
}

func TestPanicFailsTheLoader(t *testing.T) {
	d := newDataset(300, 3000)
	l := open(t, d.graph(t), plain())
	l.tables[0].memory = nil // breaks the invariant that the gather checks
	require.NoError(t, l.Start(0, 0, Train))
	_, err := l.Next(context.Background())
	var broken *guard.PanicError
	require.ErrorAs(t, err, &broken)
	require.ErrorAs(t, l.Start(0, 0, Train), &broken)
}

func TestClosedLoader(t *testing.T) {
	d := newDataset(300, 3000)
	l := open(t, d.graph(t), plain())
	_, err := l.Next(context.Background())
	require.ErrorIs(t, err, ErrNoEpoch)
	require.NoError(t, l.Start(0, 0, Train))
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = l.Next(context.Background())
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, l.Start(0, 0, Train), ErrClosed)
	require.Zero(t, l.Stats().Batches)
}

func TestCountersAddUp(t *testing.T) {
	d := newDataset(3000, 40000)
	o := plain()
	o.Cache, o.FeatureCache = "degree", 3000*(4+8)+1000*(width*4+wideWidth+8+8)
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	var rows, edges int64
	for _, b := range epochOf(t, l, 0) {
		rows += int64(len(b.int64s("n_id")))
		edges += int64(len(b.int64s("e_id")))
	}
	s := l.Stats()
	require.EqualValues(t, 47, s.Batches)
	require.Equal(t, rows, s.Rows)
	require.Equal(t, edges, s.Edges)
	require.Equal(t, rows, s.Hits+s.Misses)
	require.Positive(t, s.CachedRows)
	require.Positive(t, s.Misses)
	// The cached rows are those drawn most often, so they take more than their share.
	require.Greater(t, s.Hits*3000, rows*s.CachedRows)
	require.Positive(t, s.BytesRead)
}
