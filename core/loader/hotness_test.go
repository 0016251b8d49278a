package loader

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
)

func TestHotness(t *testing.T) {
	for _, f := range forms(newDataset(3000, 40000)) {
		g, o := f.graph(t), f.options()
		o.Cache = "degree"
		types := g.parts().types
		scores, want := make([]float32, types.first[types.types()]), make([]float32, types.first[types.types()])
		require.NoError(t, Hotness(context.Background(), OpenStore(f.store(t, ssd.OS)), o, scores))
		for _, e := range g.edges {
			for _, v := range e.csc.Indices32 {
				want[types.first[e.source]+int64(v)]++
			}
		}
		require.True(t, slices.Equal(want, scores))
		o.Cache, o.PreSCEpochs = "presc", 2
		require.NoError(t, Hotness(context.Background(), g, o, scores))
		l := open(t, g, o)
		clear(want)
		for epoch := range int64(2) {
			require.NoError(t, l.Start(epoch, 0, Trace))
			for _, b := range rest(t, l) {
				for typ := range f.names {
					ids := b.int64s(types.nodeName(typ, "n_id"))
					slices.Sort(ids)
					for _, v := range slices.Compact(ids) {
						want[types.first[typ]+v]++
					}
				}
			}
		}
		require.True(t, slices.Equal(want, scores))
	}
}
