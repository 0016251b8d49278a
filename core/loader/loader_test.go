package loader

import (
	"context"
	"io"
	"math"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/internal/guard"
	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

func requireSame(t *testing.T, want, got []*seen) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i], "batch %d", i)
	}
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
	for name, change := range map[string]func(o *draw.Options){
		"defaults":  func(*draw.Options) {},
		"checksums": func(o *draw.Options) { o.Checksums = true },
		"caches":    func(o *draw.Options) { o.Cache, o.FeatureCache, o.NeighborCache = "degree", 1<<18, 20000*4 },
		"no lead":   func(o *draw.Options) { o.Prefetch = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Fanouts, o.BatchSize, o.Memory = []int64{5, 5, 5}, 256, 1000
			change(&o)
			_, err := Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
			var tooSmall *mem.BudgetError
			require.ErrorAs(t, err, &tooSmall)
			require.Contains(t, err.Error(), "memory=1000 is too small: these options need at least ")
			o.Memory = tooSmall.Need - 1
			_, err = Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
			require.ErrorIs(t, err, mem.ErrBudget)
			o.Memory = tooSmall.Need
			l := open(t, draw.OpenStore(s), o)
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
	o.Memory = leastMemory(t, draw.OpenStore(s), o)
	l := open(t, draw.OpenStore(s), o)
	require.Len(t, epochOf(t, l, 0), 120)
	require.EqualValues(t, 1, l.Stats().Edges)
}

func TestBatchLargerThanTheEpoch(t *testing.T) {
	d := newDataset(100, 500)
	s := d.store(t, ssd.OS)
	for _, change := range []func(o *draw.Options){
		func(*draw.Options) {},
		func(o *draw.Options) {
			o.Links = &links.Options{Sources: d.sources[:9], Targets: d.targets[:9], Negatives: 1000, Triplets: true}
		},
	} {
		for _, size := range []int64{101, 1 << 40, math.MaxInt64} {
			o := plain()
			o.BatchSize, o.Memory = size, 64<<20
			change(&o)
			require.Len(t, epochOf(t, open(t, draw.OpenStore(s), o), 0), 1)
			o.DropLast = true
			require.Empty(t, epochOf(t, open(t, draw.OpenStore(s), o), 0))
		}
	}
}

func TestWrongOptions(t *testing.T) {
	d := newDataset(100, 500)
	g := d.graph(t)
	for name, c := range map[string]struct {
		change func(o *draw.Options)
		want   error
	}{
		"batch size":     {func(o *draw.Options) { o.BatchSize = 0 }, draw.ErrOption},
		"workers":        {func(o *draw.Options) { o.Workers = -1 }, draw.ErrOption},
		"prefetch":       {func(o *draw.Options) { o.Prefetch = -2 }, draw.ErrOption},
		"memory":         {func(o *draw.Options) { o.Memory = -1 }, draw.ErrOption},
		"feature cache":  {func(o *draw.Options) { o.FeatureCache = -2 }, draw.ErrOption},
		"neighbor cache": {func(o *draw.Options) { o.NeighborCache = -2 }, draw.ErrOption},
		"cache":          {func(o *draw.Options) { o.Cache = "hot" }, draw.ErrOption},
		"no seeds":       {func(o *draw.Options) { o.Seeds = []int64{} }, draw.ErrOption},
		"seed too large": {func(o *draw.Options) { o.Seeds = []int64{1, 100} }, sample.ErrSeed},
		"negative seed":  {func(o *draw.Options) { o.Seeds = []int64{-1} }, sample.ErrSeed},
		"fanout":         {func(o *draw.Options) { o.Fanouts = []int64{3, -2} }, sample.ErrFanout},
		"short held":     {func(o *draw.Options) { o.Held = make([]int32, 99) }, draw.ErrOption},
		"no row held":    {func(o *draw.Options) { o.Held = append(make([]int32, 99), -2) }, draw.ErrOption},
		"holds":          {func(o *draw.Options) { o.Holds = -1 }, draw.ErrOption},
		"no subgraph":    {func(o *draw.Options) { o.Subgraph = sample.Induced + 1 }, draw.ErrOption},
		"labor induced": {
			func(o *draw.Options) { o.Subgraph, o.Sampler = sample.Induced, &sample.Labor{BatchDependency: 1} }, draw.ErrOption,
		},
		"walks induced": {
			func(o *draw.Options) { o.Subgraph, o.Walks = sample.Induced, make([]sample.Walk, len(o.Fanouts)) }, draw.ErrOption,
		},
		"history induced": {
			func(o *draw.Options) { o.Subgraph, o.History = sample.Induced, new(draw.HistoryOptions) }, draw.ErrOption,
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

func TestWrongOptionsOfTypes(t *testing.T) {
	d := severalTypes()
	g := d.graph(t)
	for _, tt := range []struct {
		change  func(o *draw.Options)
		target  error
		message string
	}{
		{func(o *draw.Options) { o.History = &draw.HistoryOptions{} }, draw.ErrOption, "histor"},
		{func(o *draw.Options) { o.Walks = []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}} }, draw.ErrOption,
			"random walks"},
		{func(o *draw.Options) { o.RelationFanouts = o.RelationFanouts[1:] }, sample.ErrFanout,
			"6 edge types, expected 7"},
		{func(o *draw.Options) { o.RelationFanouts[2] = []int64{1} }, sample.ErrFanout, "1 fanouts of relation 2"},
		{func(o *draw.Options) { o.Seeds = append(o.Seeds, 905) }, draw.ErrOption, `a node of type "item"`},
		{func(o *draw.Options) { o.Seeds = append(o.Seeds, 3500) }, sample.ErrSeed, "[0, 3500)"},
		{func(o *draw.Options) { o.WeightAttr = "weight" }, draw.ErrOption, "(user, r0, item).attr"},
		{func(o *draw.Options) { o.WeightAttr = "attr" }, draw.ErrOption, "expected one number"},
	} {
		o := d.options()
		tt.change(&o)
		_, err := Open(context.Background(), g, o, mem.NewAllocator())
		require.ErrorIs(t, err, tt.target)
		require.ErrorContains(t, err, tt.message)
	}
	bad := severalTypes()
	bad.edges[2].Tensors[1].Rows[3] |= 0x80 // a sign
	o := bad.options()
	o.WeightAttr = "w"
	for _, source := range []draw.Source{bad.graph(t), draw.OpenStore(bad.store(t, ssd.OS))} {
		_, err := Open(context.Background(), source, o, mem.NewAllocator())
		require.ErrorIs(t, err, draw.ErrOption)
		require.ErrorContains(t, err, `edge type (user, r2, user): `)
	}
	o = plain()
	o.RelationFanouts = [][]int64{{1}}
	_, err := Open(context.Background(), newDataset(10, 10).graph(t), o, mem.NewAllocator())
	require.ErrorIs(t, err, sample.ErrFanout)
}

func TestReadErrorEndsTheEpochAndNamesTheFile(t *testing.T) {
	d := newDataset(3000, 40000)
	fs := faultfs.New(ssd.OS)
	s := d.store(t, fs)
	o := plain()
	o.IO = ssd.Pread
	l := open(t, draw.OpenStore(s), o)
	want := epochOf(t, l, 0)
	require.NoError(t, l.Start(0, 0, Train))
	first, err := l.Next(context.Background())
	require.NoError(t, err)
	first.Release()
	fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO})
	for err == nil {
		var b *batch.Batch
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
	l.rows.Tables[0].Memory = nil // breaks the invariant that the gather checks
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
	l := open(t, draw.OpenStore(d.store(t, ssd.OS)), o)
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
