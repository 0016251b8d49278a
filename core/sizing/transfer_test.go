package sizing

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// moves returns the bytes that the second epoch reads of the table, and writes to packs and reads back, with a division
// and by the plans that the loader would make.
func (s *shape) moves(t *testing.T, trace []plan.Batch, transfer string, by *Split) (sum float64) {
	c := plan.Config{
		NumRows: s.rows, Capacity: by.CacheRows, CarryOver: true, Transfer: transfer, RowBytes: s.width, Depth: 2,
		Tables:   []ssd.Layout{{RowBytes: s.width, NumRows: s.rows}},
		Device:   ssd.Device{RequestSeconds: 12e-6, PageSeconds: 1.5e-6, ReadBytesPerSecond: 2e9, WriteBytesPerSecond: 2e9},
		PackFile: by.PackFile(), SlotBytes: MinSlot,
	}
	p, err := plan.New(mem.NewBudget(0), c)
	require.NoError(t, err)
	defer p.Close()
	z := newDivision(s.request(0), s.graph(), s.costs())
	window := by.window(z)
	for first := int64(0); first < 2*s.batches; first += window {
		end := min(first+window, int64(len(trace)))
		ahead := trace[end:min(end+window, int64(len(trace)))]
		of, err := p.Plan(context.Background(), first, plan.InMemory(trace[first:end]), plan.InMemory(ahead))
		require.NoError(t, err)
		bytes := of.Choice.BytesRead
		for _, pack := range of.Packs {
			bytes += 2 * int64(pack.Rows) * int64(s.width)
		}
		if part := min(end, 2*s.batches) - max(first, s.batches); part > 0 { // of the second epoch
			sum += float64(bytes) * float64(part) / float64(end-first)
		}
		of.Release()
	}
	return sum
}

// TestATransferIsPredictedAsItIsGiven: where the caller says how cold rows are read, a division predicts that way, and
// gives memory and scratch space to packs only if it has any.
func TestATransferIsPredictedAsItIsGiven(t *testing.T) {
	if testing.Short() {
		t.Skip("plans of epochs")
	}
	narrow, wide := shapes()["rows of 128 bytes"], &shape{rows: 60_000, width: 4096, batches: 64, nodes: 2500, skew: 1,
		memory: []int64{90 << 20}}
	for name, s := range map[string]*shape{"narrow": narrow, "wide": wide} {
		t.Run(name, func(t *testing.T) { predictsTransfers(t, s) })
	}
}

func predictsTransfers(t *testing.T, s *shape) {
	trace, by := s.trace(), map[string]*Split{}
	for _, transfer := range []string{"random", "forward", "pack+forward"} {
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
