package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/bitset"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestMeasuredBatchesAreObserved: measuring counts how many rows are in one of the measured batches, in two, and so on,
// where each batch has the seeds with all their in-neighbours.
func TestMeasuredBatchesAreObserved(t *testing.T) {
	const nodes, size = 3000, 100
	d := newDataset(nodes, 9000)
	o := plain()
	o.Fanouts, o.BatchSize, o.Shuffle, o.Seeds, o.Memory = []int64{-1}, size, false, nil, 64<<20
	l := open(t, draw.OpenStore(d.store(t, ssd.OS)), o)
	g := draw.SizesOf(&l.draw)
	r := draw.RequestOf(&l.draw, &g)
	of, err := draw.Measure(context.Background(), &l.draw, &r, &g)
	require.NoError(t, err)

	const step = nodes / size / 8
	times, batches := make([]int64, nodes), 0
	for first := 0; first < nodes; first += step * size {
		drawn := bitset.New(nodes)
		for v := first; v < first+size; v++ {
			drawn.Put(int64(v))
		}
		for i, target := range d.targets {
			if int(target) >= first && int(target) < first+size {
				drawn.Put(d.sources[i])
			}
		}
		for v := range drawn.Within(0, nodes) {
			times[v]++
		}
		batches++
	}
	want := make([]int64, batches)
	for _, n := range times {
		if n > 0 {
			want[n-1]++
		}
	}
	require.EqualValues(t, batches, of.Observed.Batches)
	require.Equal(t, [][]int64{want}, of.Observed.Rows)
	for i, share := range of.Observed.Spread {
		require.Equal(t, !g.Tensors[i].ByEdge, share > 0 && share <= 1, "tensor %d: %v", i, share)
	}
	require.True(t, of.Observed.Lists > 0 && of.Observed.Lists <= 1)
}

// TestMeasuredBatchesShareReads: with neighbours on disk the same is measured as with neighbours in memory, and batches
// read pages together that each would read by itself.
func TestMeasuredBatchesShareReads(t *testing.T) {
	d, fs := newDataset(6000, 400000).bySorted(), faultfs.New(ssd.OS)
	s, o := d.store(t, fs), plain()
	o.Fanouts, o.BatchSize, o.Memory, o.IO = []int64{4, 3}, 100, 64<<20, ssd.Pread
	l := open(t, draw.OpenStore(s), o)
	g := draw.SizesOf(&l.draw)
	r := draw.RequestOf(&l.draw, &g)
	inMemory, err := draw.Measure(context.Background(), &l.draw, &r, &g)
	require.NoError(t, err)
	r.Memory = g.Neighbors
	before := fs.Calls(faultfs.Read)
	onDisk, err := draw.Measure(context.Background(), &l.draw, &r, &g)
	require.NoError(t, err)
	reads := int64(fs.Calls(faultfs.Read) - before)
	require.Equal(t, inMemory.Demand, onDisk.Demand)
	require.Equal(t, inMemory.Observed, onDisk.Observed)
	require.Less(t, reads, g.Neighbors/ssd.PageBytes/4, "each by itself reads more requests than there are pages")
}
