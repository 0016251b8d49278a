package loader

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
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

// TestCountedAhead: what "auto" ranks by holds whole epochs of the training where these are few rows, and a part where
// they are many. It takes no memory but the counts.
func TestCountedAhead(t *testing.T) {
	d := someDataset()
	for batches, want := range map[int64]int64{1: 2, 2: 2, 40: 1} { // epochs
		o := plain()
		o.Cache, o.PreSCEpochs, o.Seeds = "oracle", draw.Auto, nil
		if want == 1 {
			o.Fanouts = []int64{10, 10}
		}
		for v := range batches * o.BatchSize {
			o.Seeds = append(o.Seeds, v)
		}
		got, counts := make([]float32, someNodes), make([]float32, someNodes)
		require.NoError(t, draw.Hotness(context.Background(), d.graph(t), o, got))
		l := open(t, d.graph(t), o)
		visits := float32(0)
		for epoch := range want {
			require.NoError(t, l.Start(epoch, 0, Trace))
			for _, b := range rest(t, l) {
				for _, v := range b.int64s("n_id") {
					counts[v]++
					visits++
				}
			}
		}
		if want > 1 {
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
