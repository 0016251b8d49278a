package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// nodesOf compares the rows of a batch with the model, and returns its nodes.
func (m *tableModel) nodesOf(t *testing.T, b *batch.Batch, place int, ids string) []int64 {
	t.Helper()
	nodes := slices.Clone(look(b).int64s(ids))
	const width = trainedWidth + embed.TrailerBytes
	data := b.Array(draw.TrainedName(place)).Buffer.Bytes()
	for i, v := range nodes {
		require.Equal(t, m.rows[v], data[i*width:][:trainedWidth], "batch %d, row of node %d", b.Index, v)
	}
	return nodes
}

// put changes some rows of the batches of a step, in the model and by the loader.
func (m *tableModel) put(t *testing.T, rng *rand.Rand, l *Loader, place int, nodes map[int64]bool) {
	t.Helper()
	share := 1 + rng.IntN(4)
	var rows []int64
	var records []byte
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		if rng.IntN(4) >= share {
			continue
		}
		row := m.rows[v]
		binary.LittleEndian.PutUint32(row[8:], binary.LittleEndian.Uint32(row[8:])+1)
		binary.LittleEndian.PutUint64(row[12:], rng.Uint64())
		rows, records = append(rows, v), append(records, row...)
		records = append(records, bytes.Repeat([]byte{0xee}, embed.TrailerBytes)...) // which the loader writes itself
	}
	require.NoError(t, PutRows(l, place, rows, records))
}

// stepModel is tables that are trained by steps of several batches.
type stepModel struct {
	tables []*tableModel
	ids    []string // of the nodes of each
}

// train makes random parts of epochs for a number of ranks.
func (m *stepModel) train(t *testing.T, rng *rand.Rand, l *Loader, ranks int64) {
	t.Helper()
	check := func() {
		require.NoError(t, l.Settle())
		for _, of := range m.tables {
			of.check(t)
		}
	}
	for epoch := range int64(4) {
		share := draw.Share{Ranks: ranks, Adjacent: ranks, Uneven: draw.Uneven(rng.IntN(3))}
		require.NoError(t, l.Take(share))
		first, steps := someOf(rng, l.NumBatches())
		require.NoError(t, l.Start(epoch, first, Train))
		left, err := share.Count(l.NumBatches(), first)
		require.NoError(t, err)
		for range steps {
			made := m.step(t, rng, l, min(ranks, left))
			if made == 0 {
				break
			}
			left -= made
			if first += made; rng.IntN(20) == 0 && left > 0 {
				check()
				require.NoError(t, l.Start(epoch, first, Train))
				left, err = share.Count(l.NumBatches(), first) // padded from there, if the step was left early
				require.NoError(t, err)
			}
		}
		if rng.IntN(3) == 0 {
			check()
		}
	}
}

// step takes the batches of a step, and changes their rows afterwards. Now and then it leaves before the last of them.
func (m *stepModel) step(t *testing.T, rng *rand.Rand, l *Loader, batches int64) int64 {
	t.Helper()
	nodes := make([]map[int64]bool, len(m.tables))
	for place := range nodes {
		nodes[place] = map[int64]bool{}
	}
	if rng.IntN(50) == 0 {
		batches = min(1, batches)
		defer l.Stop()
	}
	for i := range batches {
		b, err := l.Next(context.Background())
		if errors.Is(err, ErrNoEpoch) {
			return 0
		}
		require.NoError(t, err)
		for place, of := range m.tables {
			for _, v := range of.nodesOf(t, b, place, m.ids[place]) {
				nodes[place][v] = true
			}
		}
		if i == 0 || rng.IntN(2) == 0 {
			defer b.Release() // with the step
		} else {
			b.Release()
		}
	}
	if batches == 0 {
		_, err := l.Next(context.Background())
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, ErrNoEpoch), "got %v", err)
		return 0
	}
	for range rng.IntN(3) { // a step without training, and one with two
		if rng.IntN(6) == 0 {
			require.NoError(t, Flush(l))
			for _, of := range m.tables {
				of.check(t)
			}
		}
		for place, of := range m.tables {
			of.put(t, rng, l, place, nodes[place])
		}
	}
	return batches
}

// TestStepsOfRanksAreExact trains a table by steps of several batches under random options, memories and interruptions:
// all batches of a step bring the rows that the step before left, and the file has them when the loader is settled or
// closed.
func TestStepsOfRanksAreExact(t *testing.T) {
	s := someStore(t, ssd.OS)
	rng := explore.Rand(t, 51, 1)
	for round := range explore.Rounds(10) {
		o, stored := randomTrained(t, rng)
		ranks := 2 + rng.Int64N(2)
		t.Run(fmt.Sprintf("round %d %s %d %d", round, o.Transfer, stored, ranks), func(t *testing.T) {
			trainTwice(t, s, o, stored, func(l *Loader, m *tableModel) {
				(&stepModel{[]*tableModel{m}, []string{"n_id"}}).train(t, rng, l, ranks)
			})
		})
	}
}

// TestRowsArePutAfterAFlush flushes the tables in steps before their rows are put. Rows in slots are away then. The
// next window forwards what was put there to packs, and its batches take it from them, not from the file.
func TestRowsArePutAfterAFlush(t *testing.T) {
	s := someStore(t, ssd.OS)
	for _, transfer := range []string{"forward", "scan+forward", "page-once+forward"} {
		m := newTableModel(t, ssd.OS, someNodes)
		o := belady()
		o.Tables, o.Scratch, o.Transfer = []draw.Trained{{Table: m.table}}, t.TempDir(), transfer
		o.FeatureCache, o.BufferMemory, o.ScratchBytes, o.Superbatch = rowsFor(500), 8<<20, 64<<20, 8
		o.Lookahead = false // so that prologues fill slots anew
		l := open(t, draw.OpenStore(s), o)
		rng := explore.Rand(t, 53, 0)
		const ranks = 2
		require.NoError(t, l.Take(draw.Share{Ranks: ranks, Adjacent: ranks}))
		for epoch := range int64(2) {
			require.NoError(t, l.Start(epoch, 0, Train))
			for range l.NumBatches() / ranks {
				nodes := map[int64]bool{}
				for range ranks {
					b, err := l.Next(context.Background())
					require.NoError(t, err)
					for _, v := range m.nodesOf(t, b, 0, "n_id") {
						nodes[v] = true
					}
					b.Release()
				}
				if rng.IntN(2) == 0 { // the next one would write what was put
					require.NoError(t, Flush(l))
				}
				m.put(t, rng, l, 0, nodes)
			}
		}
		require.NoError(t, l.Close())
		m.check(t)
	}
}

// TestStepsOfTypesAreExact trains two tables of one node type and one of another.
func TestStepsOfTypesAreExact(t *testing.T) {
	_, in := heteroInputs()
	path := filepath.Join(t.TempDir(), "graph")
	require.NoError(t, store.Convert(context.Background(), ssd.OS, in, path, store.ConvertOptions{}))
	s := opened(t, ssd.OS, path)
	types := s.NodeTypes()
	m, o := &stepModel{}, plain()
	o.Cache, o.Transfer, o.Fanouts = "auto", "auto", []int64{3, 3}
	o.Seeds, o.BatchSize, o.FeatureCache, o.Scratch = nil, 16, 80_000, t.TempDir()
	for _, typ := range []int{0, 1, 0} {
		of := newTableModel(t, ssd.OS, types[typ].Count)
		m.tables, m.ids = append(m.tables, of), append(m.ids, draw.NodeName(typ, "n_id"))
		o.Tables = append(o.Tables, draw.Trained{Table: of.table, Type: typ})
	}
	l := open(t, draw.OpenStore(s), o)
	m.train(t, explore.Rand(t, 52, 0), l, 3)
	require.NoError(t, l.Close())
	for _, of := range m.tables {
		of.check(t)
	}
}

func TestWrongPuts(t *testing.T) {
	s := someStore(t, ssd.OS)
	m := newTableModel(t, ssd.OS, someNodes)
	o := plain()
	o.Cache, o.Tables = "auto", []draw.Trained{{Table: m.table}}
	l := open(t, draw.OpenStore(s), o)
	record := make([]byte, trainedWidth+embed.TrailerBytes)
	require.ErrorIs(t, PutRows(l, 0, []int64{0}, record), ErrNoEpoch)
	require.NoError(t, l.Take(draw.Share{Ranks: 2, Adjacent: 2}))
	require.NoError(t, l.Start(0, 0, Train))
	require.ErrorIs(t, PutRows(l, 0, []int64{0}, record), ErrNoEpoch, "before the first batch")
	b, err := l.Next(context.Background())
	require.NoError(t, err)
	b.Release()
	two := append(slices.Clone(record), record...)
	for says, err := range map[string]error{
		"must be in [0, 1), got 1":                  PutRows(l, 1, []int64{0}, record),
		"must be in [0, 1), got -1":                 PutRows(l, -1, []int64{0}, record),
		"1 rows of the table have 28 bytes, got 56": PutRows(l, 0, []int64{0}, two),
		"ascend within [0, 3000), got 4 after 4":    PutRows(l, 0, []int64{4, 4}, two),
		"ascend within [0, 3000), got 3000 after 4": PutRows(l, 0, []int64{4, 3000}, two),
		"ascend within [0, 3000), got -1 after -1":  PutRows(l, 0, []int64{-1, 4}, two),
	} {
		require.ErrorIs(t, err, draw.ErrOption)
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, l.Settle())
	require.ErrorIs(t, PutRows(l, 0, []int64{0}, record), ErrNoEpoch)
	require.NoError(t, l.Close())
}
