package loader

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
)

// TestTableFigures counts what a table takes whose loader caches no row. Each row of a batch that an earlier batch had
// is late, and settling writes each row once: with its pages, and their old content in the undo journal.
func TestTableFigures(t *testing.T) {
	s := someStore(t, ssd.OS)
	m := newTableModel(t, ssd.OS, someNodes)
	before := m.table.Moved()
	o := belady()
	o.Tables, o.Transfer, o.FeatureCache = []draw.Trained{{Table: m.table}}, "random", 0
	o.Memory = 32 << 20
	l := open(t, draw.OpenStore(s), o)
	rng := explore.Rand(t, 50, 0)
	seen, rows, late := map[int64]bool{}, int64(0), int64(0)
	eachBatch(t, l, 0, func(b *batch.Batch) {
		own := map[int64]bool{}
		for _, v := range look(b).int64s("n_id") {
			own[v] = true
		}
		for v := range own {
			rows++
			if seen[v] {
				late++
			}
			seen[v] = true
		}
		m.train(t, rng, b, 0, "n_id")
	})
	require.Zero(t, l.Stats().Hits)
	require.Zero(t, m.table.Moved().Minus(before), "rows went by their file between batches")
	require.NoError(t, l.Settle())
	m.check(t)

	pages, layout := map[int64]bool{}, m.table.Layout()
	for v := range seen {
		lo := layout.Offset(v)
		pages[lo/ssd.PageBytes], pages[(lo+int64(layout.RowBytes)-1)/ssd.PageBytes] = true, true
	}
	n := int64(len(pages))
	moved := m.table.Moved().Minus(before)
	const header = 1 // of the journal's block
	require.Equal(t, embed.Moved{
		Read: 2 * n * ssd.PageBytes, Written: (2*n + header) * ssd.PageBytes, Rows: int64(len(seen)),
	}, moved)
	st := l.Stats()
	require.Equal(t, rows, st.TableRows)
	require.Equal(t, late, st.TableRowsLate)
	require.Equal(t, moved.Written, st.TableWritten)
	require.Equal(t, moved.Rows*int64(layout.RowBytes), st.TableReturned)
	_, received := l.rows.Trained[0].Disk.Handle().Moved()
	require.Positive(t, received)
	require.Equal(t, received+moved.Read, st.TableRead)
	of := l.Plan().Tables
	require.InDelta(t, float64(late)/float64(rows), of.LateShare, 1e-9)
	require.InDelta(t, float64(st.TableWritten)/float64(st.TableReturned), of.WriteAmplification, 1e-9)
	require.NoError(t, l.Close())
	require.Equal(t, st.TableWritten, l.Stats().TableWritten)
}

// TestTablesKnowTheWindowAfterTheFirst: the window after the first batch is planned with the next one where training
// changes rows, also where plans are in the scratch file.
func TestTablesKnowTheWindowAfterTheFirst(t *testing.T) {
	for _, trains := range []bool{false, true} {
		m := newTableModel(t, ssd.OS, someNodes)
		o := belady()
		o.Superbatch, o.Scratch, o.Memory = someBatchs, t.TempDir(), 64<<20
		if trains {
			o.Tables = []draw.Trained{{Table: m.table}}
		}
		l := open(t, draw.OpenStore(someStore(t, ssd.OS)), o)
		storePlans(t, l, 0)
		rng := explore.Rand(t, 51, 0)
		eachBatch(t, l, 0, func(b *batch.Batch) {
			if trains {
				m.train(t, rng, b, 0, "n_id")
			}
		})
		spans := l.Plan().Timeline
		planned, sampled := spans["planning"][1], spans["sampling"][2]
		require.EqualValues(t, 1, planned[0])
		require.Equal(t, trains, sampled[2] <= planned[1], "%v", spans)
	}
}

// TestTableFiguresWithoutTables has none of them.
func TestTableFiguresWithoutTables(t *testing.T) {
	l := open(t, draw.OpenStore(someStore(t, ssd.OS)), belady())
	epochOf(t, l, 0)
	require.Nil(t, l.Plan().Tables)
	require.Zero(t, l.Stats().TableRows)
}

// TestTableRowsLeftByEpochs leaves epochs while a batch that nobody takes has rows of the batch before.
func TestTableRowsLeftByEpochs(t *testing.T) {
	s := someStore(t, ssd.OS)
	m := newTableModel(t, ssd.OS, someNodes)
	o := belady()
	o.Tables, o.Transfer, o.FeatureCache, o.Prefetch = []draw.Trained{{Table: m.table}}, "random", 0, 3
	o.Memory = 32 << 20
	l := open(t, draw.OpenStore(s), o)
	rng := explore.Rand(t, 51, 0)
	for taken := range 8 { // batches; further ones are made, and nobody takes them
		require.NoError(t, l.Start(int64(taken), 0, Train))
		for range taken {
			b, err := l.Next(context.Background())
			require.NoError(t, err)
			m.train(t, rng, b, 0, "n_id")
			b.Release()
		}
		made := l.Stats().TableRows
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if b, err := l.Next(gone); err == nil { // it was ready
			m.train(t, rng, b, 0, "n_id")
			b.Release()
		} else {
			require.ErrorIs(t, err, context.Canceled)
			require.Eventually(t, func() bool { return l.Stats().TableRows > made }, time.Minute, time.Millisecond)
		}
		require.NoError(t, l.Settle())
		m.check(t)
	}
	require.NoError(t, l.Close())
}

// TestTableRowsSpillInTurn trains tables that share so little memory for rows on their way back that these are spilled,
// and written back while the loop has a batch.
func TestTableRowsSpillInTurn(t *testing.T) {
	s := someStore(t, ssd.OS)
	o := belady()
	o.Transfer, o.Prefetch, o.Memory = "random", 2, 64<<20
	o.FeatureCache = 512 << 10 // slots for fewer rows than the batches in flight have
	var tables []*tableModel
	for range 40 {
		m := newTableModel(t, ssd.OS, someNodes)
		tables, o.Tables = append(tables, m), append(o.Tables, draw.Trained{Table: m.table})
	}
	before := tables[0].table.Moved()
	l := open(t, draw.OpenStore(s), o)
	rng := explore.Rand(t, 52, 0)
	eachBatch(t, l, 0, func(b *batch.Batch) {
		for place, m := range tables {
			m.train(t, rng, b, place, "n_id")
		}
	})
	require.Positive(t, tables[0].table.Moved().Minus(before).Rows, "no rows were spilled and written back")
	require.NoError(t, l.Close())
	for _, m := range tables {
		m.check(t)
	}
}
