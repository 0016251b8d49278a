package fetch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/prune"
)

// TestDeliveriesFindRowsThatAreWrittenTwiceOrNever: the tests that run with the tag rely on it.
func TestDeliveriesFindRowsThatAreWrittenTwiceOrNever(t *testing.T) {
	x := &Table{Tensor: draw.Tensor{Label: "x"}}
	f := &Filler{Features: &Features{OnDisk: []*Table{x}}, Drawn: &batch.Drawn{Cut: new(prune.Cut)}}
	f.Drawn.TypeOffsets.Rows = []int64{0, 2}
	for message, rows := range map[string][]int32{
		"": {1, 0}, `loader: row 1 of "x" was written 0 times, not 1`: {0},
		`loader: row 0 of "x" was written 2 times, not 1`: {0, 1, 0},
	} {
		f.deliveries.begin(f)
		for _, row := range rows {
			f.deliveries.add(x, row)
		}
		if message == "" {
			f.deliveries.check(f)
		} else {
			require.PanicsWithValue(t, message, func() { f.deliveries.check(f) })
		}
	}
}
