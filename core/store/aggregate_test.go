package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/narrow"
)

// An aggregate is of the numbers of a tensor, and not only of what its file holds: with other scales in the manifest
// the same bytes are other numbers.
func TestAnAggregateIsOfTheScalesToo(t *testing.T) {
	for _, form := range []narrow.Form{narrow.Float16, narrow.Int8Rows, narrow.Int8Columns} {
		s, _ := narrowed(t, form, 50, 30)
		m := s.Manifest()
		x := m.NodeTypes[0].Tensors[0]
		plain := tensorMark(m.NodeTypes[0].Tensors, "x") == mark(x.Data)
		require.Equal(t, form != narrow.Int8Columns, plain, "%s: aggregates of tensors without scales stay readable", form)
		for _, own := range []int64{0, 30} {
			a := &manifest.Aggregate{Tensor: "x", Reduce: "mean", Hop: 1, OwnColumns: own}
			if own == 0 {
				a.Parts = []*manifest.AggregatePart{{Columns: 30}}
			}
			stamp(m, 0, a)
			require.Empty(t, staleness(m, 0, a))
			if plain {
				continue
			}
			for _, i := range []int{0, 59} { // the first scale and the last offset
				was := x.Narrow.Columns[i]
				x.Narrow.Columns[i] = was + 1
				require.Equal(t, `other rows of "x"`, staleness(m, 0, a))
				x.Narrow.Columns[i] = was
			}
			require.Empty(t, staleness(m, 0, a))
		}
	}
}
