package plan

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// A table that is cut in two at a page, each with rows of its own, is planned like the whole: the same rows are read
// for the same batches by the same ways.
func TestTablesOfSomeRowsArePlannedLikeTheWhole(t *testing.T) {
	const numRows, half = 1600, 800
	packed := 0
	for _, name := range []string{"page-once", "page-once+forward", "pack+forward", "forward", "scan"} {
		for seed := range uint64(20) {
			rng := explore.Rand(t, seed, 11)
			trace := makeTrace(rng, 20, 60, numRows, 2)
			c := testConfig(numRows, 100, name)
			c.PackMemory = 1 << 30
			c.Tables, c.RowBytes = []ssd.Layout{{RowBytes: 512, RowsPerPage: 8, NumRows: numRows}}, 512
			cut := c
			cut.Tables = []ssd.Layout{{RowBytes: 512, RowsPerPage: 8, NumRows: half},
				{RowBytes: 512, RowsPerPage: 8, NumRows: half}, {RowBytes: 900, NumRows: 0}}
			cut.First = []int64{0, half, half}
			var plans [2]*wholePlan
			for i, config := range []Config{c, cut} {
				p, err := New(mem.NewBudget(0), config)
				require.NoError(t, err)
				defer p.Close()
				plans[i], err = planned(context.Background(), p, 0, trace[:12], trace[12:])
				require.NoError(t, err)
			}
			whole, parts := plans[0], plans[1]
			require.Equal(t, whole.Steps, parts.Steps, name)
			require.Equal(t, whole.Packs, parts.Packs)
			require.Equal(t, whole.Prologue.Pack, parts.Prologue.Pack)
			require.Equal(t, whole.Prologue.Fill, parts.Prologue.Fill)
			packed += len(whole.Packs)
		}
	}
	require.Positive(t, packed)
}

func TestTablesOfSomeRowsAreChecked(t *testing.T) {
	for _, first := range [][]int64{{0}, {-1, 0}, {0, 41}} {
		c := testConfig(100, 10, "random")
		c.Tables, c.First = []ssd.Layout{{RowBytes: 512, RowsPerPage: 8, NumRows: 60},
			{RowBytes: 512, RowsPerPage: 8, NumRows: 60}}, first
		_, err := New(mem.NewBudget(0), c)
		require.ErrorIs(t, err, ErrConfig)
	}
}
