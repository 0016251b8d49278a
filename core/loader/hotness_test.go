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
