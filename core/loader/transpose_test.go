package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/mem"
)

func TestTranspose(t *testing.T) {
	for _, f := range forms(newDataset(500, 6000)) {
		o := f.options()
		o.Transpose = true
		l := open(t, f.graph(t), o)
		for _, b := range epochOf(t, l, 0) {
			for i := range f.edges {
				name := func(of string) string { return l.draw.Parts.Schema.EdgeName(i, of) }
				edges, ptr := b.int64s(name("edge_index")), b.int64s(name(batch.TransposedNames[0]))
				n := len(edges) / 2
				target := mem.View[int32](b.arrays[name(batch.TransposedNames[1])])
				edge := mem.View[int32](b.arrays[name(batch.TransposedNames[2])])
				require.Len(t, edge, n)
				require.EqualValues(t, n, ptr[len(ptr)-1])
				for s := range len(ptr) - 1 {
					for k := ptr[s]; k < ptr[s+1]; k++ {
						require.EqualValues(t, s, edges[edge[k]])
						require.EqualValues(t, edges[n+int(edge[k])], target[k])
					}
				}
			}
		}
	}
}
