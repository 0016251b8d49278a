package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/bitset"
	"freshgo/core/ssd"
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
