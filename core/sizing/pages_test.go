package sizing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
)

// TestPagesOfRows: what a batch is predicted to read on demand is the pages on which its rows lie, whether rows share
// pages, fill them or straddle two or more. It is up to a fifth more where the pages of a row lie side by side, which
// leaves fewer holes than as many pages anywhere.
func TestPagesOfRows(t *testing.T) {
	const rows, wanted = 40_000, 400
	rng := rand.New(rand.NewPCG(1, 2)) // constant: a sample of this size is some hundredths off
	for _, l := range []ssd.Layout{
		{RowBytes: 512, RowsPerPage: 8}, {RowBytes: 1200, RowsPerPage: 3}, {RowBytes: 4000, RowsPerPage: 1},
		{RowBytes: 1536}, {RowBytes: 2800}, {RowBytes: 3072}, {RowBytes: 4096}, {RowBytes: 6000}, {RowBytes: 8192},
	} {
		l.NumRows = rows
		drawn := rng.Perm(rows)[:wanted]
		slices.Sort(drawn)
		pages, next := int64(0), int64(-ssd.PageBytes)
		for _, row := range drawn {
			begin := l.Offset(int64(row))
			first, end := begin/ssd.PageBytes, (begin+int64(l.RowBytes)-1)/ssd.PageBytes+1
			if first <= next+ssd.DefaultHole {
				first = next // the pages between are read along
			}
			pages, next = pages+max(0, end-first), max(next, end)
		}
		tensor := Tensor{Width: l.RowBytes, Rows: rows, Span: int(l.SpanBytes())}
		predicted := readBytes(wanted, &tensor, 1) / ssd.PageBytes
		require.GreaterOrEqual(t, predicted, 0.95*float64(pages), "rows of %d bytes", l.RowBytes)
		require.LessOrEqual(t, predicted, 1.2*float64(pages), "rows of %d bytes", l.RowBytes)
	}
}
