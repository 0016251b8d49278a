package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/sample"
)

// drawnElsewhere are options of a loader whose consumer draws the batches.
func drawnElsewhere() draw.Options {
	o := plain()
	o.SeedsOnly, o.Packed, o.Cache, o.FeatureCache = true, false, "auto", draw.Auto
	return o
}

// withoutEdgeRows is the graph of a dataset, without tensors of edges.
func withoutEdgeRows(t *testing.T, d *dataset) *draw.Graph {
	t.Helper()
	f := d.form("")
	f.edges[0].Tensors = nil
	return f.graph(t)
}

// TestSeedsOnly: batches are the seeds of the batches that are drawn here, and the key that they are drawn by. A trace
// and a batch on demand are drawn here.
func TestSeedsOnly(t *testing.T) {
	d := newDataset(500, 3000)
	g, o := withoutEdgeRows(t, d), drawnElsewhere()
	whole := open(t, g, plain())
	l := openLocking(t, g, o, newLocker(1<<40))
	for epoch := range int64(2) {
		want := epochOf(t, whole, epoch)
		for i, b := range epochOf(t, l, epoch) {
			seeds := b.int64s("input_id")
			require.Equal(t, want[i].int64s("input_id"), seeds)
			require.Equal(t, want[i].int64s("n_id")[:len(seeds)], b.int64s("n_id"))
			require.Empty(t, b.int64s("edge_index"))
			require.Positive(t, readByID(l, b))
			key := l.draw.EpochKey(epoch)
			key.Batch = uint64(i)
			keys := l.draw.Sampler.HopKeys(key)
			require.Len(t, keys, len(o.Fanouts))
			var want []int64
			for _, k := range append(keys, uint64(i)) {
				want = append(want, int64(k))
			}
			require.Equal(t, want, b.int64s(draw.KeyName))
		}
	}
	require.Zero(t, l.Stats().Edges)
	ask := OnDemand{Inputs: []int64{3, 1}}
	b, err := l.Sample(context.Background(), ask)
	require.NoError(t, err)
	other, err := whole.Sample(context.Background(), ask)
	require.NoError(t, err)
	require.Equal(t, other.Array("edge_index").Buffer.Bytes(), b.Array("edge_index").Buffer.Bytes())
	require.Nil(t, b.Array(draw.KeyName))
	b.Release()
	other.Release()
}

// TestListsOfSeedsOnly: the lists, read in pieces, are those of the graph; parts beyond their ends are refused.
func TestListsOfSeedsOnly(t *testing.T) {
	d := newDataset(500, 3000)
	l := openLocking(t, withoutEdgeRows(t, d), drawnElsewhere(), newLocker(1<<40))
	r := &l.draw.Parts.Schema.Relations[0]
	read := func(list int, size int64) (all []int64) {
		for first := int64(0); first < size; first += 700 {
			part := make([]int64, min(700, size-first))
			there, err := ReadList(l, 0, list, first, part)
			require.NoError(t, err)
			require.True(t, there)
			all = append(all, part...)
		}
		_, err := ReadList(l, 0, list, size, make([]int64, 1))
		require.ErrorIs(t, err, draw.ErrOption)
		return all
	}
	ptr, sources, edges := read(draw.ListPtr, 501), read(draw.ListSource, 3000), read(draw.ListEdge, 3000)
	for v := range int64(500) {
		begin, end := r.Indptr.Range(v)
		require.Equal(t, []int64{begin, end}, ptr[v:v+2])
		for e := begin; e < end; e++ {
			require.Equal(t, []int64{sources[e], v}, []int64{d.sources[edges[e]], d.targets[edges[e]]})
		}
	}
	for _, of := range [][2]int{{0, -1}, {0, 6}, {-1, 0}, {1, 0}} {
		_, err := ReadList(l, of[0], of[1], 0, make([]int64, 1))
		require.ErrorIs(t, err, draw.ErrOption)
	}
}

// TestWhatIsNotDrawnElsewhere: options that the consumer does not draw by, and rows that it does not read, are errors
// that name them.
func TestWhatIsNotDrawnElsewhere(t *testing.T) {
	d := newDataset(500, 3000)
	g := withoutEdgeRows(t, d)
	for name, c := range map[string]struct {
		of     *draw.Graph
		change func(o *draw.Options)
		most   int64 // that can be locked
	}{
		"disjoint":     {g, func(o *draw.Options) { o.Disjoint = true }, 1 << 40},
		"device_cache": {g, func(o *draw.Options) { o.Held = make([]int32, 500) }, 1 << 40},
		"links":        {g, func(o *draw.Options) { o.Seeds, o.Links = nil, &links.Options{} }, 1 << 40},
		"induced":      {g, func(o *draw.Options) { o.Subgraph = sample.Induced }, 1 << 40},
		"tensors":      {g, func(*draw.Options) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := drawnElsewhere()
			o.RowsByID = true
			c.change(&o)
			_, err := Open(context.Background(), c.of, o, newLocker(c.most))
			require.ErrorIs(t, err, draw.ErrOption)
			require.ErrorContains(t, err, "sample_on")
			require.ErrorContains(t, err, name)
		})
	}
}
