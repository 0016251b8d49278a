package draw

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/manifest"
	"freshgo/core/store"
)

// star returns a graph of six nodes: 1, 2 and 3 lead to 0, 0 leads to 4, and no edge touches 5.
func star(t *testing.T) *Graph {
	t.Helper()
	ends, err := binary.Append(nil, binary.LittleEndian, []int64{1, 2, 3, 0, 0, 0, 0, 4})
	require.NoError(t, err)
	g, err := NewGraph(context.Background(), GraphInput{
		NodeTypes: []GraphNodes{{NumNodes: 6}},
		EdgeTypes: []GraphEdges{{EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, 4}, ends)}},
	})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// drawsAll returns options of two batches, of the seeds 0 and 4, that draw all neighbours of one hop.
func drawsAll(cache string) Options {
	return Options{
		Fanouts: []int64{-1}, Seeds: []int64{0, 4}, BatchSize: 1, Cache: cache, PreSCEpochs: 3, FeatureCache: Auto,
		NeighborCache: Auto, Superbatch: Auto, TraceMemory: Auto, BufferMemory: Auto, ScratchBytes: Auto,
		ReorderRows: Auto, Transfer: "auto", Workers: 2, Hotness: []float32{5, 4, 3, 2, 1, 0},
	}
}

func TestMetricsOfAStar(t *testing.T) {
	g := star(t)
	visits := []float32{2, 1, 1, 1, 1, 0} // batches that have the node: {0, 1, 2, 3} and {4, 0}
	presc := make([]float32, len(visits))
	for v, n := range visits {
		presc[v] = 3 * n
	}
	for metric, want := range map[string][]float32{
		"degree": {1, 1, 1, 1, 0, 0}, "in-degree": {3, 0, 0, 0, 1, 0}, "oracle": visits, "presc": presc,
	} {
		got := make([]float32, len(want))
		require.NoError(t, Hotness(context.Background(), g, drawsAll(metric), got), metric)
		require.Equal(t, want, got, metric)
	}
	got := make([]float32, len(visits))
	require.NoError(t, Hotness(context.Background(), g, drawsAll("expected"), got))
	for v, n := range got { // by probabilities, which bound the counts here
		require.Equal(t, visits[v] > 0, n > 0, "node %d: %v", v, n)
		require.LessOrEqual(t, n, visits[0], "node %d", v)
	}
	random := drawsAll("random")
	require.NoError(t, Hotness(context.Background(), g, random, got))
	again := make([]float32, len(got))
	require.NoError(t, Hotness(context.Background(), g, random, again))
	require.Equal(t, got, again)
	random.HotnessSeed = 1
	require.NoError(t, Hotness(context.Background(), g, random, again))
	require.NotEqual(t, got, again)
}

// TestHotnessesAreWhole: every row of the table names a cache once, scores, and is a metric unless the caller scores.
func TestHotnessesAreWhole(t *testing.T) {
	g := star(t)
	seen := map[string]bool{}
	for _, h := range hotnesses {
		require.False(t, seen[h.name], h.name)
		seen[h.name] = true
		require.NotNil(t, h.score, h.name)
		require.Contains(t, CacheKinds, h.name)
		o := drawsAll(h.name)
		require.True(t, o.asks(g.Parts().Schema).Has(h.needs), h.name)
		err := Hotness(context.Background(), g, o, make([]float32, 6))
		if h.name == cache.Given {
			require.ErrorContains(t, err, "metric must be one of", h.name)
		} else {
			require.NoError(t, err, h.name)
		}
	}
}

func TestHotnessesThatAreRefused(t *testing.T) {
	g := star(t)
	for _, tt := range []struct {
		cache   string
		change  func(o *Options)
		message string
	}{
		{"presc", func(o *Options) { o.PreSCEpochs = 0 }, "presc must sample at least 1 epoch, got 0"},
		{"vector", func(o *Options) { o.Hotness = o.Hotness[1:] }, "5"},
		{"vector", func(o *Options) { o.Hotness[2] = -1 }, "-1"},
		{"hottest", func(*Options) {}, "cache must be one of"},
	} {
		o := drawsAll(tt.cache)
		tt.change(&o)
		m := New(o, g)
		require.ErrorContains(t, m.Check(), tt.message)
	}
}

// TestEpochsAreCountedWhole: two epochs are counted where rows have few visits, each batch once, those that told the
// number of rows as well.
func TestEpochsAreCountedWhole(t *testing.T) {
	for nodes := int64(1); nodes < 40; nodes++ {
		g, err := NewGraph(context.Background(), GraphInput{
			NodeTypes: []GraphNodes{{NumNodes: nodes}},
			EdgeTypes: []GraphEdges{{EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, 1}, make([]byte, 16))}},
		})
		require.NoError(t, err)
		o := drawsAll("oracle")
		o.Seeds, o.Hotness, o.PreSCEpochs, o.Shuffle = nil, nil, Auto, true
		got := make([]float32, nodes)
		require.NoError(t, Hotness(context.Background(), g, o, got))
		for v, n := range got {
			require.EqualValues(t, 2, n, "node %d of %d", v, nodes)
		}
		g.Close()
	}
}
