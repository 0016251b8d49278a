package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// TestLargeBatchesAreEstimated: batches that do not fit into the memory are measured by parts, and the error names a
// memory that works.
func TestLargeBatchesAreEstimated(t *testing.T) {
	explore.Figures(t)
	d := newDataset(3000, 60_000)
	for name, src := range map[string]draw.Source{"disk": draw.OpenStore(d.store(t, ssd.OS)), "memory": d.graph(t)} {
		for way, change := range map[string]func(o *draw.Options){
			"replace":  func(o *draw.Options) { o.Replace, o.Fanouts = true, []int64{300, 3000} },
			"disjoint": func(o *draw.Options) { o.Disjoint, o.Fanouts, o.BatchSize = true, []int64{-1, -1, -1}, 60 },
			"links": func(o *draw.Options) {
				o.Replace, o.Fanouts = true, []int64{100, 900}
				o.Links = &links.Options{Sources: d.sources[:300], Targets: d.targets[:300]}
			},
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				o := plain()
				o.Memory, o.Workers, o.Prefetch = 1, 1, 1
				change(&o)
				_, err := Open(context.Background(), src, o, mem.NewAllocator())
				var tooSmall *mem.BudgetError
				require.ErrorAs(t, err, &tooSmall)
				require.ErrorContains(t, err, "need about")
				o.Memory = tooSmall.Need
				l := open(t, src, o)
				require.LessOrEqual(t, l.Stats().MemorySmallest, o.Memory)
				require.NoError(t, l.Start(0, 0, Train))
				b, err := l.Next(context.Background())
				require.NoError(t, err)
				b.Release()
				require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
			})
		}
	}
}

// TestHugeFanoutsAreRefused: nothing of that size is allocated.
func TestHugeFanoutsAreRefused(t *testing.T) {
	explore.Figures(t)
	d := newDataset(4, 12)
	for _, src := range []draw.Source{draw.OpenStore(d.store(t, ssd.OS)), d.graph(t)} {
		for _, fanouts := range [][]int64{{1e9}, {1e9, 1e9, 1e9}} {
			o := plain()
			o.Replace, o.Fanouts, o.Memory = true, fanouts, 64<<20
			least := leastMemory(t, src, o)
			require.Greater(t, least, int64(1e9))
		}
	}
}

// TestNoBatchExceedsTheBound compares what batches of many kinds need with what is the most by arithmetic.
func TestNoBatchExceedsTheBound(t *testing.T) {
	explore.Figures(t)
	rng := explore.Rand(t, 1, 2)
	homogeneous := newDataset(300, 2000)
	g := homogeneous.graph(t)
	for range explore.Rounds(60) {
		o := plain()
		o.Fanouts = nil
		for range 1 + rng.IntN(3) {
			o.Fanouts = append(o.Fanouts, []int64{-1, 1, 3, 20}[rng.IntN(4)])
		}
		o.BatchSize, o.Replace, o.Memory = 1+rng.Int64N(100), rng.IntN(2) == 0, 1<<30
		switch rng.IntN(5) {
		case 0:
			o.Disjoint = true
		case 1:
			o.Subgraph = sample.Induced
		case 2:
			o.Subgraph = sample.Bidirectional
		case 3:
			o.Links = &links.Options{Negatives: float64(rng.IntN(3))}
		}
		l := open(t, g, o)
		most := draw.MaxDemand(&l.draw)
		o.Complete(&most)
		sizes := draw.SizesOf(&l.draw)
		asked := draw.RequestOf(&l.draw, &sizes)
		of, err := draw.Measure(context.Background(), &l.draw, &asked, &sizes)
		require.NoError(t, err)
		require.False(t, of.Estimated)
		requireNoMore(t, of.Demand, most)
	}
}

func requireNoMore(t *testing.T, d, most sizing.Demand) {
	t.Helper()
	require.LessOrEqual(t, d.Nodes, most.Nodes)
	require.LessOrEqual(t, d.Rows, most.Rows)
	require.LessOrEqual(t, d.Edges, most.Edges)
	require.LessOrEqual(t, d.HopEdges, most.HopEdges)
	for _, pair := range [][2][]int64{
		{d.NodesPerHop, most.NodesPerHop}, {d.EdgesPerHop, most.EdgesPerHop}, {d.Rooms, most.Rooms},
	} {
		for i, n := range pair[0] {
			require.LessOrEqual(t, n, pair[1][i])
		}
	}
}
