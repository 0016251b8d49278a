package loader

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/packed"
	"freshgo/core/sample"
	"freshgo/core/ssd"
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

// TestListsOfSeedsOnly: the lists, of a graph in memory and of a store, have its edges; what is no list, or beyond its
// end, is refused.
func TestListsOfSeedsOnly(t *testing.T) {
	d := newDataset(500, 3000)
	f := d.form("")
	f.edges[0].Tensors = nil
	for name, of := range map[string]struct {
		src        draw.Source
		lists      int64 // bytes for them
		source, id int   // bits
	}{
		"memory":         {f.graph(t), draw.Auto, 32, 32},
		"store":          {draw.OpenStore(f.store(t, ssd.OS)), draw.Auto, 32, 12},
		"store, limited": {draw.OpenStore(f.store(t, ssd.OS)), 1 << 20, 9, 12},
	} {
		t.Run(name, func(t *testing.T) {
			o := drawnElsewhere()
			o.NeighborCache = of.lists
			l := openLocking(t, of.src, o, newLocker(1<<40))
			checkLists(t, l, d, of.source, of.id)
		})
	}
}

func checkLists(t *testing.T, l *Loader, d *dataset, sourceBits, idBits int) {
	t.Helper()
	r := &l.draw.Parts.Schema.Relations[0]
	var ptr []int64
	for first := int64(0); first < 501; first += 100 {
		part := make([]int64, min(100, 501-first))
		there, err := ReadList(l, 0, draw.ListPtr, first, part)
		require.NoError(t, err)
		require.True(t, there)
		ptr = append(ptr, part...)
	}
	ids := func(list draw.StoredList, want int) (out []int64) {
		require.Equal(t, want, list.Bits)
		for e := range int64(3000) {
			id := int64(0)
			for b := range int64(list.Bits) {
				at := e*int64(list.Bits) + b
				id |= int64(list.Data[at/8]>>(at%8)&1) << b
			}
			out = append(out, id)
		}
		return out
	}
	lists, err := ListsOf(l, 0)
	require.NoError(t, err)
	sources, edges := ids(lists.Source, sourceBits), ids(lists.Edge, idBits)
	for v := range int64(500) {
		begin, end := r.Indptr.Range(v)
		require.Equal(t, []int64{begin, end}, ptr[v:v+2])
		for e := begin; e < end; e++ {
			require.Equal(t, []int64{sources[e], v}, []int64{d.sources[edges[e]], d.targets[edges[e]]})
		}
	}
	require.Zero(t, lists.Weight)
	require.Zero(t, lists.Sum)
	for _, of := range [][2]int{{0, -1}, {0, 2}, {-1, draw.ListPtr}, {1, draw.ListPtr}} {
		_, err := ReadList(l, of[0], of[1], 0, make([]int64, 1))
		require.ErrorIs(t, err, draw.ErrOption)
	}
	_, err = ReadList(l, 0, draw.ListPtr, 501, make([]int64, 1))
	require.ErrorIs(t, err, draw.ErrOption)
	for _, relation := range []int{-1, 1} {
		_, err := ListsOf(l, relation)
		require.ErrorIs(t, err, draw.ErrOption)
	}
}

// TestWeightsOfSeedsOnly: the weights of a store are in memory, by position, with their sums, or there is an error:
// also where the memory has room for the neighbour lists alone.
func TestWeightsOfSeedsOnly(t *testing.T) {
	d := newDataset(500, 30_000)
	f := d.form("")
	weights := make([]float64, 30_000)
	for e := range weights {
		weights[e] = float64(e%7) + 0.1
	}
	f.nodes[0] = nil
	f.edges[0].Tensors = []draw.GraphTensor{{Name: "w", DType: manifest.DType_FLOAT64, Rows: mem.Bytes(weights)}}
	src := draw.OpenStore(f.store(t, ssd.OS))
	o := drawnElsewhere()
	o.RowsByID, o.WeightAttr, o.Memory, o.Prefetch, o.Workers = true, "w", 1000, 1, 1
	least := leastMemory(t, src, o)
	said := map[string]bool{}
	for o.Memory = least; ; o.Memory += least / 50 {
		l, err := Open(context.Background(), src, o, newLocker(1<<40))
		if err != nil {
			require.ErrorIs(t, err, draw.ErrOption)
			for _, what := range []string{"neighbour lists", "weights"} {
				said[what] = said[what] || strings.Contains(err.Error(), "needs all "+what)
			}
			continue
		}
		lists, err := ListsOf(l, 0)
		require.NoError(t, err)
		require.Equal(t, 64, lists.Weight.Bits)
		numbers := make([]int64, 30_000)
		packed.Of(lists.Edge.Data, 30_000, packed.Width(30_000)).Unpack(0, numbers)
		for p, w := range mem.View[float64](lists.Weight.Data) {
			require.InDelta(t, weights[numbers[p]], w, 0)
		}
		require.Equal(t, []int{64, 30_000 / 16 * 8}, []int{lists.Sum.Bits, len(lists.Sum.Data)})
		require.NoError(t, l.Close())
		break
	}
	require.Equal(t, map[string]bool{"neighbour lists": true, "weights": true}, said)
}

// TestLockedLists: lists are locked until the loader is closed, which openLocking checks, and not one where the system
// refuses another.
func TestLockedLists(t *testing.T) {
	d := newDataset(500, 3000)
	g := withoutEdgeRows(t, d)
	for _, refused := range []bool{false, true} {
		alloc := newLocker(1 << 40)
		l := openLocking(t, g, drawnElsewhere(), alloc)
		before := alloc.now
		if refused {
			alloc.most = before + 3000*4 // of two lists of that size one
		}
		locked, err := LockLists(l)
		require.NoError(t, err)
		require.Equal(t, !refused, locked)
		want := before
		if locked {
			want += 2 * 3000 * 4
		}
		require.Equal(t, want, alloc.now)
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
