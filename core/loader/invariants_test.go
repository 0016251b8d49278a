package loader

import (
	"freshgo/core/batch"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/prune"
)

// TestDeliveriesFindRowsThatAreWrittenTwiceOrNever: the tests that run with the tag rely on it.
func TestDeliveriesFindRowsThatAreWrittenTwiceOrNever(t *testing.T) {
	x := &table{Tensor: draw.Tensor{Label: "x"}}
	l := &Loader{rows: features{onDisk: []*table{x}}}
	p := &preparer{loader: l, drawn: batch.Drawn{Parts: &l.draw.Parts, Counters: &l.counters, Cut: new(prune.Cut)}}
	p.drawn.TypeOffsets.Rows = []int64{0, 2}
	for message, rows := range map[string][]int32{
		"": {1, 0}, `loader: row 1 of "x" was written 0 times, not 1`: {0},
		`loader: row 0 of "x" was written 2 times, not 1`: {0, 1, 0},
	} {
		p.deliveries.begin(p)
		for _, row := range rows {
			p.deliveries.add(x, row)
		}
		if message == "" {
			p.deliveries.check(p)
		} else {
			require.PanicsWithValue(t, message, func() { p.deliveries.check(p) })
		}
	}
}
