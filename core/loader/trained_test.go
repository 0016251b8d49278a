package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

// tableModel is a table and what training should have made of its rows.
type tableModel struct {
	table *embed.Table
	rows  [][]byte // payloads
}

const trainedWidth = 20

func newTableModel(t *testing.T, fs ssd.FS, nodes int64) *tableModel {
	t.Helper()
	path := filepath.Join(t.TempDir(), "table")
	table, err := embed.Create(fs, path, embed.Options{Rows: nodes, RowBytes: trainedWidth})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, table.Close()) })
	m := &tableModel{table: table}
	payload := make([]byte, nodes*trainedWidth)
	for row := range nodes {
		binary.LittleEndian.PutUint64(payload[row*trainedWidth:], uint64(row))
		m.rows = append(m.rows, payload[row*trainedWidth:][:trainedWidth])
	}
	require.NoError(t, table.Write(0, nodes, payload))
	_, err = table.Save(nil)
	require.NoError(t, err)
	return m
}

// train compares the rows of a batch with the model, and changes some of them in both.
func (m *tableModel) train(t *testing.T, rng *rand.Rand, b *batch.Batch, place int, ids string) {
	t.Helper()
	m.trainLoaded(t, rng, b, place, ids, nil)
}

// trainLoaded is train for a batch that has some rows alone. The others are zeros, and changes of them are dropped.
func (m *tableModel) trainLoaded(
	t *testing.T, rng *rand.Rand, b *batch.Batch, place int, ids string, loaded []bool,
) {
	t.Helper()
	nodes := append([]int64{}, look(b).int64s(ids)...)
	rows := b.Array(draw.TrainedName(place))
	const width = trainedWidth + embed.TrailerBytes
	require.Equal(t, []int64{int64(len(nodes)), width}, rows.Shape)
	data := rows.Buffer.Bytes()
	has := func(i int) bool { return loaded == nil || loaded[i] }
	for i, v := range nodes {
		want := m.rows[v]
		if !has(i) {
			want = make([]byte, trainedWidth)
		}
		require.Equal(t, want, data[i*width:][:trainedWidth], "batch %d, row of node %d", b.Index, v)
	}
	if rng.IntN(4) == 0 {
		return // without a step
	}
	for i, v := range nodes {
		if rng.IntN(3) > 0 {
			own := data[i*width:][:trainedWidth]
			binary.LittleEndian.PutUint32(own[8:], binary.LittleEndian.Uint32(own[8:])+1)
			binary.LittleEndian.PutUint64(own[12:], rng.Uint64())
			if has(i) {
				copy(m.rows[v], own)
			}
		}
	}
}

// eachBatch makes an epoch, and releases each batch after its use.
func eachBatch(t *testing.T, l *Loader, epoch int64, use func(b *batch.Batch)) {
	t.Helper()
	require.NoError(t, l.Start(epoch, 0, Train))
	for {
		b, err := step(context.Background(), l)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		use(b)
		b.Release()
	}
}

// check compares the file of the table with the model.
func (m *tableModel) check(t *testing.T) {
	t.Helper()
	require.NoError(t, m.table.Err())
	var ids []int64
	for v := range m.rows {
		ids = append(ids, int64(v))
	}
	data := make([]byte, len(ids)*trainedWidth)
	require.NoError(t, m.table.Read(ids, data))
	for v := range m.rows {
		require.Equal(t, m.rows[v], data[v*trainedWidth:][:trainedWidth], "row of node %d", v)
	}
}

// TestTrainedRowsAreExact trains a table under random options, histories, memories and interruptions: each batch brings
// the rows that the batches before left, and the file has them when the loader is settled or closed.
func TestTrainedRowsAreExact(t *testing.T) {
	s := someStore(t, ssd.OS)
	rng := explore.Rand(t, 45, 1)
	for round := range explore.Rounds(10) {
		o, stored := randomTrained(t, rng)
		if rng.IntN(2) == 0 {
			o = someHistory(rng, o)
		}
		t.Run(fmt.Sprintf("round %d %s %d %t", round, o.Transfer, stored, o.History != nil), func(t *testing.T) {
			trainTwice(t, s, o, stored, func(l *Loader, m *tableModel) { trainSome(t, l, m, rng) })
		})
	}
}

// trainTwice trains a new table with two loaders, one after the other, and compares its file with the model.
func trainTwice(
	t *testing.T, s *store.Store, o draw.Options, stored int64, train func(l *Loader, m *tableModel),
) {
	t.Helper()
	m := newTableModel(t, ssd.OS, someNodes)
	o.Tables = []draw.Trained{{Table: m.table}}
	for range 2 {
		l := open(t, draw.OpenStore(s), o)
		if stored >= 0 {
			storePlans(t, l, stored)
		}
		train(l, m)
		require.NoError(t, l.Close())
		m.check(t)
	}
}

// randomTrained returns options of a loader that trains a table, and the bytes that store its plans (-1: none).
func randomTrained(t *testing.T, rng *rand.Rand) (o draw.Options, stored int64) {
	t.Helper()
	pick := func(list ...int64) int64 { return list[rng.IntN(len(list))] }
	o = plain()
	o.Seed, o.CarryOver, o.Cache = rng.Uint64(), true, []string{"auto", "belady"}[rng.IntN(2)]
	o.Shuffle = pick(0, 1) == 1
	o.Transfer = "auto"
	if rng.IntN(2) == 0 {
		o.Transfer = plan.Transfers()[rng.IntN(len(plan.Transfers()))]
	}
	o.FeatureCache = pick(0, rowsFor(10), rowsFor(300), rowsFor(1500), rowsFor(4100))
	o.Memory = pick(0, 32<<20) // where it is limited and the cache is small, batches read their rows in turn
	o.Superbatch = pick(draw.Auto, 1, 2, 5, 16, 47, 64, 1000)
	if o.Superbatch == 1000 {
		o.Memory = 0 // the traces of as many batches take 190 MiB where no scratch file has them
	}
	o.Prefetch, o.Workers = int(pick(0, 1, 2, 5)), int(pick(0, 1, 2, 8))
	o.IO = []ssd.Kind{ssd.IOUring, ssd.Pread, ssd.Buffered}[rng.IntN(3)]
	o.Lookahead, o.Checksums = pick(0, 1, 1) == 1, pick(0, 0, 1) == 1
	o.BufferMemory = pick(draw.Auto, 0, 50000)
	if pick(0, 1, 1) == 1 {
		o.Scratch, o.ScratchBytes = t.TempDir(), pick(draw.Auto, 0, 20000, 200000)
	}
	return o, pick(-1, 0, 50_000, 1<<30)
}

// someOf draws the first of an epoch's batches and how many to take: all, the first ones or the last ones.
func someOf(rng *rand.Rand, batches int64) (first, take int64) {
	take = batches
	switch rng.IntN(4) {
	case 0:
		take = rng.Int64N(batches)
	case 1:
		first = rng.Int64N(batches)
	}
	return first, take
}

// trainSome makes random parts of epochs.
func trainSome(t *testing.T, l *Loader, m *tableModel, rng *rand.Rand) {
	t.Helper()
	r, d := trainerOf(t, l), someDataset()
	for epoch := range int64(4) {
		first, take := someOf(rng, someBatchs)
		require.NoError(t, l.Start(epoch, first, Train))
		for range take {
			b, err := step(context.Background(), l)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if rng.IntN(30) == 0 {
				require.NoError(t, Flush(l))
				m.check(t)
			}
			s := r.trainTables(t, rng, b, []*tableModel{m})
			r.writeFeatures(t, d, b, s)
			if rng.IntN(30) == 0 {
				require.NoError(t, Flush(l))
				m.check(t)
			}
			b.Release()
			settle := rng.IntN(60) == 0
			if settle {
				require.NoError(t, l.Settle())
				m.check(t)
			}
			if rng.IntN(8) > 0 {
				r.update(s)
			}
			if settle {
				require.NoError(t, l.Start(epoch, b.Index+1, Train))
			}
		}
		if rng.IntN(3) == 0 {
			require.NoError(t, l.Settle())
			m.check(t)
		}
		if rng.IntN(3) == 0 {
			_, err := m.table.Save(nil)
			require.NoError(t, err)
		}
	}
}

// TestTrainedRowsSurviveErrors lets reads of the store fail: the epoch ends with the error, and all that was trained is
// in the file.
func TestTrainedRowsSurviveErrors(t *testing.T) {
	for i, nth := range []int{1, 7, 40, 1, 7, 40} {
		fs := faultfs.New(ssd.OS)
		s := someStore(t, fs)
		m := newTableModel(t, ssd.OS, someNodes)
		o := belady()
		if i >= 3 {
			o = (&form{}).withHistory(o, history.Gradient)
		}
		o.Tables, o.Scratch, o.Transfer = []draw.Trained{{Table: m.table}}, t.TempDir(), "forward"
		l := open(t, draw.OpenStore(s), o)
		rng, r := explore.Rand(t, 46, uint64(nth)), trainerOf(t, l)
		require.NoError(t, l.Start(0, 0, Train))
		fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO})
		for {
			b, err := step(context.Background(), l)
			if err != nil {
				require.ErrorIs(t, err, syscall.EIO)
				break
			}
			r.update(r.trainTables(t, rng, b, []*tableModel{m}))
			b.Release()
		}
		fs.Clear()
		require.NoError(t, l.Settle())
		m.check(t)
		trainSome(t, l, m, rng)
		require.NoError(t, l.Close())
		m.check(t)
	}
}

// TestTrainedRowsAreLostWithTheScratchFile lets writes to the scratch file fail, where rows wait that are nowhere else:
// the loader and the table say so, and the state saved last can be restored.
func TestTrainedRowsAreLostWithTheScratchFile(t *testing.T) {
	fs := faultfs.New(ssd.OS)
	s := someStore(t, fs)
	m := newTableModel(t, ssd.OS, someNodes)
	token := m.table.Describe().Token
	saved := m.copyRows()
	o := belady()
	o.Tables, o.Scratch, o.Transfer = []draw.Trained{{Table: m.table}}, t.TempDir(), "pack+forward"
	o.FeatureCache, o.BufferMemory, o.ScratchBytes, o.Superbatch = rowsFor(100), 8<<20, 64<<20, 1000
	l := open(t, draw.OpenStore(s), o)
	storePlans(t, l, 1<<30)
	rng := explore.Rand(t, 47, 0)
	full := faultfs.Fault{Op: faultfs.Write, Path: ssd.TempPrefix + "*", Nth: 5, Times: faultfs.Forever}
	full.Errno = syscall.ENOSPC
	fs.Arm(full)
	var failed error
	for epoch := int64(0); epoch < 4 && failed == nil; epoch++ {
		require.NoError(t, l.Start(epoch, 0, Train))
		for failed == nil {
			b, err := step(context.Background(), l)
			if errors.Is(err, io.EOF) {
				break
			}
			if failed = err; err == nil {
				m.train(t, rng, b, 0, "n_id")
				b.Release()
			}
		}
	}
	require.ErrorIs(t, failed, syscall.ENOSPC)
	require.ErrorIs(t, l.Settle(), embed.ErrLost)
	_, err := m.table.Save(nil)
	require.ErrorIs(t, err, embed.ErrLost)
	require.NoError(t, l.Close())
	fs.Clear()
	require.NoError(t, m.table.Restore(token))
	m.rows = saved
	m.check(t)
	l = open(t, draw.OpenStore(s), o)
	trainSome(t, l, m, rng)
	require.NoError(t, l.Close())
	m.check(t)
}

func (m *tableModel) copyRows() (rows [][]byte) {
	for _, row := range m.rows {
		rows = append(rows, append([]byte{}, row...))
	}
	return rows
}

func TestWrongTables(t *testing.T) {
	s := someStore(t, ssd.OS)
	m, small := newTableModel(t, ssd.OS, someNodes), newTableModel(t, ssd.OS, 10)
	wrong := func(change func(o *draw.Options), says string) {
		t.Helper()
		o := plain()
		o.Cache, o.Tables = "auto", []draw.Trained{{Table: m.table}}
		change(&o)
		_, err := Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
		require.ErrorContains(t, err, says)
	}
	wrong(func(o *draw.Options) { o.Cache = "lru" }, `cache "belady"`)
	wrong(func(o *draw.Options) { o.CarryOver = false }, "carry_over")
	wrong(func(o *draw.Options) { o.Tables[0].Type = 1 }, "node type 1 of 1")
	wrong(func(o *draw.Options) { o.Tables[0].Table = small.table },
		"have 10 rows, expected one for each of the 3000 nodes")
	wrong(func(o *draw.Options) { o.Memory = 1 << 20 }, "memory")
	o := plain()
	o.Tables = []draw.Trained{{Table: m.table}}
	_, err := Open(context.Background(), someDataset().graph(t), o, mem.NewAllocator())
	require.ErrorContains(t, err, "need a store")
	o.Cache = "auto"
	l := open(t, draw.OpenStore(s), o)
	_, err = Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
	require.ErrorIs(t, err, embed.ErrInUse)
	require.ErrorContains(t, l.Take(draw.Share{Ranks: 2}), "all ranks")
	require.ErrorContains(t, l.Take(draw.Share{Ranks: 3, Adjacent: 2}), "got world_size = 3 and 2 adjacent")
	require.NoError(t, l.Close())
}

// TestTrainedRowsReadForTheNextWindow has windows of five batches read rows for the next one that come back in between.
func TestTrainedRowsReadForTheNextWindow(t *testing.T) {
	s := someStore(t, ssd.OS)
	for i, transfer := range []string{"page-once", "page-once+forward", "scan", "auto"} {
		for _, rows := range []int64{10, 300} {
			m := newTableModel(t, ssd.OS, someNodes)
			o := belady()
			o.Tables, o.Transfer = []draw.Trained{{Table: m.table}}, transfer
			o.FeatureCache, o.Superbatch, o.Prefetch = rowsFor(rows), 5, 0
			l := open(t, draw.OpenStore(s), o)
			rng := explore.Rand(t, 49, uint64(i))
			for epoch := range int64(2) {
				eachBatch(t, l, epoch, func(b *batch.Batch) { m.train(t, rng, b, 0, "n_id") })
			}
			require.NoError(t, l.Close())
			m.check(t)
		}
	}
}
