package loader

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

func TestHotness(t *testing.T) {
	for _, f := range forms(newDataset(3000, 40000)) {
		g, o := f.graph(t), f.options()
		o.Cache = "degree"
		types := g.Parts().Schema
		scores, want := make([]float32, types.First[types.NumTypes()]), make([]float32, types.First[types.NumTypes()])
		require.NoError(t, draw.Hotness(context.Background(), draw.OpenStore(f.store(t, ssd.OS)), o, scores))
		for _, e := range g.Edges {
			for _, v := range e.CSC.Indices32 {
				want[types.First[e.Source]+int64(v)]++
			}
		}
		require.True(t, slices.Equal(want, scores))
		o.Cache, o.PreSCEpochs = "presc", 2
		require.NoError(t, draw.Hotness(context.Background(), g, o, scores))
		l := open(t, g, o)
		clear(want)
		for epoch := range int64(2) {
			require.NoError(t, l.Start(epoch, 0, Trace))
			for _, b := range rest(t, l) {
				for typ := range f.names {
					ids := b.int64s(types.NodeName(typ, "n_id"))
					slices.Sort(ids)
					for _, v := range slices.Compact(ids) {
						want[types.First[typ]+v]++
					}
				}
			}
		}
		require.True(t, slices.Equal(want, scores))
	}
}

// TestRankingGivesItsMemoryBack: a cache has as many rows however they are ranked, and ranking stays within the memory.
// Memory that ranks nothing is refused, with the least that does.
func TestRankingGivesItsMemoryBack(t *testing.T) {
	for _, f := range forms(someDataset()) {
		src := draw.OpenStore(f.store(t, ssd.OS))
		o := f.options()
		least, rows := map[string]int64{}, map[int64]int64{}
		for _, o.Cache = range []string{"degree", "random", "oracle", "expected", "presc"} {
			o.Memory, o.FeatureCache = 1, draw.Auto
			least[o.Cache] = leastMemory(t, src, o)
			for _, more := range []int64{300 << 10, 600 << 10} {
				o.Memory, o.FeatureCache = least["degree"]+more, more/2
				l := open(t, src, o)
				epochOf(t, l, 0)
				if had, ok := rows[more]; ok {
					require.Equal(t, had, l.draw.Split.CacheRows, o.Cache)
				}
				rows[more] = l.draw.Split.CacheRows
				require.Positive(t, rows[more])
				require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory, o.Cache)
			}
			o.Memory, o.FeatureCache = least[o.Cache], draw.Auto
			require.LessOrEqual(t, open(t, src, o).Stats().MemoryPeak, o.Memory, o.Cache)
		}
		require.Equal(t, least["degree"], least["oracle"])
		require.Greater(t, least["presc"], least["degree"])
	}
}

// TestRankingSharesReads: rows are ranked alike by neighbour lists in memory and on disk, from which a hop of eight
// batches reads each page at most once.
func TestRankingSharesReads(t *testing.T) {
	d := newDataset(3000, 60_000)
	o := plain()
	o.Cache, o.PreSCEpochs, o.BatchSize, o.Fanouts, o.Seeds = "oracle", 1, 30, []int64{4, 4}, nil
	for v := range 32 * o.BatchSize {
		o.Seeds = append(o.Seeds, v*3)
	}
	src := draw.OpenStore(d.store(t, ssd.OS))
	scores := func(memory int64) (of cache.Hotness, bytes int64) {
		o.Memory, o.NeighborCache, o.FeatureCache = memory, 0, 4000
		if memory == 0 {
			o.NeighborCache = draw.Auto
		}
		l := open(t, src, o)
		require.Equal(t, memory == 0, l.draw.Split.Neighbors)
		rows := l.draw.NewCachedTypes([]bool{true})
		before := l.draw.Engine.Stats().Bytes
		v, err := draw.Rank(context.Background(), &l.draw, "oracle", &rows)
		require.NoError(t, err)
		defer v.Close()
		return slices.Clone(v.Hotness), l.draw.Engine.Stats().Bytes - before
	}
	want, _ := scores(0)
	got, bytes := scores(24 << 20)
	require.Equal(t, want, got)
	const groups, hops, pages = 4, 2, 4*60_000 + ssd.PageBytes
	require.LessOrEqual(t, bytes, int64(groups*hops*pages))
	require.Greater(t, bytes, int64(pages)/2)
}

// TestCountedAhead: what "auto" ranks by holds the batches of two epochs of the training, of one where edges are drawn
// by weights, and of a part of one where these are many rows: it draws no others. It takes no memory but the counts.
func TestCountedAhead(t *testing.T) {
	d := someDataset().weighted(manifest.DType_FLOAT32)
	for _, c := range []struct {
		batches int64
		weight  string
		epochs  int64
		part    bool
	}{
		{1, "", 2, false}, {2, "", 2, false}, {1, "weight", 1, false}, {2, "weight", 1, false},
		{40, "", 1, true}, {40, "weight", 1, true},
	} {
		o := plain()
		o.Cache, o.PreSCEpochs, o.Seeds, o.WeightAttr = "oracle", draw.Auto, nil, c.weight
		if c.part {
			o.Fanouts = []int64{10, 10}
		}
		for v := range c.batches * o.BatchSize {
			o.Seeds = append(o.Seeds, v)
		}
		got, counts := make([]float32, someNodes), make([]float32, someNodes)
		require.NoError(t, draw.Hotness(context.Background(), d.graph(t), o, got))
		l := open(t, d.graph(t), o)
		visits := float32(0)
		for epoch := range c.epochs {
			require.NoError(t, l.Start(epoch, 0, Trace))
			for _, b := range rest(t, l) {
				for _, v := range b.int64s("n_id") {
					counts[v]++
					visits++
				}
			}
		}
		if !c.part {
			require.Equal(t, counts, got)
			continue
		}
		sum := float32(0)
		for v, n := range got {
			require.LessOrEqual(t, n, counts[v])
			sum += n
		}
		require.InDelta(t, 24*someNodes, sum, 0.2*24*someNodes)
		require.Less(t, sum, visits)
	}
}
