package loader

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// hubDataset returns a dataset in which a few nodes have most edges, with weights: lists of many pages, and short ones.
func hubDataset(nodes, edges int, dtype manifest.DType) *dataset {
	d := newDataset(nodes, edges)
	rng := rand.New(rand.NewPCG(4, uint64(dtype)))
	for e := range d.targets {
		switch p := rng.Float64(); {
		case p < .5:
			d.targets[e] = 3
		case p < .8:
			d.targets[e] = int64(nodes - 1)
		}
	}
	return d.weighted(dtype)
}

// byPosition returns the dataset, with weights by position in its stores.
func (d *dataset) byPosition() *dataset {
	d.weightsOf = "weight"
	return d
}

// Batches do not depend on whether the store has weights by position.
func TestWeightsByPositionAgreeEverywhere(t *testing.T) {
	for order, d := range map[string]*dataset{
		"":        hubDataset(500, 50_000, manifest.DType_FLOAT32),
		" sorted": hubDataset(300, 40_000, manifest.DType_INT64).bySorted(),
	} {
		s := d.byPosition().store(t, ssd.OS)
		for name, change := range samplerOptions() {
			base := plain()
			base.Seed = explore.Seed(t, 5)
			base.BatchSize = 128
			if change(&base); base.WeightAttr != "" {
				agreeEverywhere(t, d.form(""), s, name+order, base)
			}
		}
	}
}

// The ranking of nodes by expected visits reads weights in the order of positions.
func TestExpectedVisitsByPosition(t *testing.T) {
	d := hubDataset(500, 50_000, manifest.DType_FLOAT64)
	o := plain()
	o.WeightAttr, o.Cache, o.FeatureCache, o.NeighborCache = "weight", "expected", rowsFor(100), 0
	plain := open(t, draw.OpenStore(d.store(t, ssd.OS)), o)
	want := epochOf(t, plain, 0)
	l := open(t, draw.OpenStore(d.byPosition().store(t, ssd.OS)), o)
	require.Implements(t, (*sample.BlockSource)(nil), l.draw.DrawnBy[0].Source)
	requireSame(t, want, epochOf(t, l, 0))
	require.Equal(t, plain.Stats().Hits, l.Stats().Hits)
}

// A draw of ten from a list of 10^6 reads a few dozen pages, where the list has a thousand.
func TestHubReadsFewPages(t *testing.T) {
	const edges = 1_000_000
	for _, dtype := range []manifest.DType{manifest.DType_FLOAT32, manifest.DType_FLOAT64} {
		d := newDataset(20, edges).weighted(dtype)
		clear(d.targets)
		o := plain()
		o.WeightAttr, o.NeighborCache, o.FeatureCache, o.Fanouts, o.Seeds, o.BatchSize = "weight", 0, 0, []int64{10},
			[]int64{0}, 1
		l := open(t, draw.OpenStore(d.byPosition().store(t, ssd.OS)), o)
		w := l.draw.DrawnBy[0].Source.(sample.BlockSource)
		require.True(t, w.Worth(edges, 10))
		for epoch := range int64(3) {
			before := l.draw.EngineStats()
			require.NotEmpty(t, epochOf(t, l, epoch)[0].int64s("e_id"))
			after := l.draw.EngineStats()
			// 12 points of 2 pages and 3 more that straddle, with what lies between pages that are near; 10 neighbours
			// and 11 rows of three tensors.
			require.Less(t, after.Bytes-before.Bytes, int64(150*ssd.PageBytes), dtype.Label())
			require.Less(t, after.Requests-before.Requests, int64(90))
		}
	}
}

// Points at the ends of lists and pages, against the sums themselves.
func TestLocate(t *testing.T) {
	d := hubDataset(40, 60_000, manifest.DType_FLOAT32)
	o := plain()
	o.WeightAttr, o.NeighborCache = "weight", 0
	l := open(t, draw.OpenStore(d.byPosition().store(t, ssd.OS)), o)
	w := l.draw.DrawnBy[0].Source.(sample.BlockSource)
	whole := make([]float64, len(d.sources))
	require.NoError(t, w.(draw.RangeWeights).FetchFrom(context.Background(), 0, whole))
	sums := make([]float64, sample.SumsLen(int64(len(whole))))
	indptr := l.draw.Parts.Schema.Relations[0].Indptr
	sample.Sum(indptr, whole, sums)
	var points []sample.Point
	for v := range d.nodes {
		start, end := indptr.Range(v)
		if end-start < sample.SumBlock {
			continue
		}
		list := sums[start/16 : start/16+(end-start)/16]
		for i := 0; i < len(list); i += 1 + len(list)/50 {
			for _, below := range []float64{list[i] - .5, list[i], list[i] + .5} {
				points = append(points, sample.Point{Start: start, Deg: end - start, Below: below})
			}
		}
		points = append(points, sample.Point{Start: start, Deg: end - start, Below: -1},
			sample.Point{Start: start, Deg: end - start, Below: 1e300})
	}
	require.NoError(t, w.Locate(context.Background(), points))
	for _, p := range points {
		block, before := int64(0), 0.
		for ; block < p.Deg/16 && !(sums[p.Start/16+block] > p.Below); block++ {
			before = sums[p.Start/16+block]
		}
		require.Equal(t, block, p.Block)
		require.Equal(t, before, p.Before) //nolint:testifylint // exact
		require.Equal(t, whole[p.Start+16*block:][:p.Len()], p.Weights[:p.Len()])
	}
}

// The smallest memory works, with and without room for checksums.
func TestSmallestMemoryWithWeightsByPosition(t *testing.T) {
	d := hubDataset(2000, 200_000, manifest.DType_FLOAT32)
	s := d.byPosition().store(t, ssd.OS)
	for _, checksums := range []bool{false, true} {
		o := plain()
		o.WeightAttr, o.Memory, o.Checksums, o.Workers, o.Prefetch = "weight", 1, checksums, 1, 0
		o.Memory = leastMemory(t, draw.OpenStore(s), o)
		l := open(t, draw.OpenStore(s), o)
		require.False(t, l.draw.Split.Weights)
		require.NotEmpty(t, epochOf(t, l, 0))
		require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
	}
}

// What a page says that does not match its checksum is no weight.
func TestDamagedWeightsByPosition(t *testing.T) {
	for _, name := range []string{"weights.bin", "weight_sums.bin"} {
		for _, memory := range []bool{false, true} {
			if memory && name != "weights.bin" {
				continue // sums in memory are made anew
			}
			s := hubDataset(500, 50_000, manifest.DType_FLOAT32).byPosition().store(t, ssd.OS)
			file := filepath.Join(s.Path(), name)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			for at := 100; at < len(data); at += ssd.PageBytes {
				data[at] ^= 1
			}
			require.NoError(t, os.WriteFile(file, data, 0o600))
			o := plain()
			o.WeightAttr, o.Checksums = "weight", true
			if !memory {
				o.NeighborCache = 0
			}
			l, err := Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
			if err == nil {
				require.NoError(t, l.Start(0, 0, Train))
				_, err = l.Next(context.Background())
				require.NoError(t, l.Close())
			}
			var damage *store.CorruptError
			require.True(t, errors.As(err, &damage), "%s: %v", name, err)
			require.Equal(t, file, damage.Path)
		}
	}
}
