package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// moves returns the bytes that an epoch after the first reads of the table, and writes to packs and reads back, with a
// division and by the plans that the loader would make.
func (s *shape) moves(t *testing.T, trace []plan.Batch, transfer string, by *Split) float64 {
	c := s.config(by, transfer)
	c.PackFile = by.PackFile()
	window := by.window(newDivision(s.request(0), s.graph(), s.costs()))
	return s.laterEpochs(t, trace, window, c, func(of *plan.Superplan) float64 {
		bytes := of.Choice.BytesRead
		for _, pack := range of.Packs {
			bytes += 2 * int64(pack.Rows) * int64(s.width)
		}
		return float64(bytes)
	})
}

// TestATransferIsPredictedAsItIsGiven: where the caller says how cold rows are read, a division predicts that way, and
// gives memory and scratch space to packs only if it has any.
func TestATransferIsPredictedAsItIsGiven(t *testing.T) {
	narrow, wide := shapes()["rows of 128 bytes"], &shape{rows: 60_000, width: 4096, batches: 64, nodes: 2500, skew: 1,
		memory: []int64{90 << 20}}
	for name, s := range map[string]*shape{"narrow": narrow, "wide": wide} {
		t.Run(name, func(t *testing.T) { predictsTransfers(t, s) })
	}
}

func predictsTransfers(t *testing.T, s *shape) {
	trace, by := s.trace(), map[string]*Split{}
	for _, transfer := range []string{"random", "forward", "pack+forward", "pack+forward+ahead"} {
		r := s.request(s.memory[0])
		r.Transfer = transfer
		of, err := Divide(r, s.graph(), s.costs())
		require.NoError(t, err)
		by[transfer] = of
		moves := s.moves(t, trace, transfer, of)
		t.Logf("%s: %d rows, windows of %d, predicted %d MB, moves %.0f", transfer, of.CacheRows, of.Superbatch,
			of.EpochBytes>>20, moves/(1<<20))
		require.InEpsilon(t, moves, float64(of.EpochBytes), 0.25, transfer)
	}
	require.Greater(t, by["random"].CacheRows, by["pack+forward"].CacheRows)
	require.Less(t, by["random"].Packs, by["pack+forward"].Packs)
	require.Zero(t, by["random"].PackFile())
	fills := s.width >= ssd.PageBytes // and needs no scan
	require.Equal(t, fills, by["forward"].EpochBytes < by["pack+forward"].EpochBytes)

	for given, means := range map[string]string{"page-once": "random", "page-once+forward": "forward", "pack": "pack"} {
		r := s.request(s.memory[0])
		if r.Transfer = given; !fills {
			means = given
		}
		m := newDivision(r, s.graph(), s.costs()).movement(by["random"])
		require.Equal(t, means, m.transfer, "only rows that share pages are read along")
	}
	if fills {
		return
	}
	r := s.request(s.memory[0])
	r.Transfer = "scan"
	of, err := Divide(r, s.graph(), s.costs())
	require.NoError(t, err)
	require.Greater(t, of.EpochBytes, 2*by["pack+forward"].EpochBytes, "hardly any rows wait in memory")
}
