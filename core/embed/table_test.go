package embed_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/embed"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

// model is a table and what its rows should be.
type model struct {
	t     *testing.T
	rand  *rand.Rand
	fs    ssd.FS
	table *embed.Table
	width int
	rows  [][]byte
	saved map[string][][]byte // by token
}

const description = `{"embedding_dim": 3}`

func newModel(t *testing.T, fs ssd.FS, path string, rows, width int, seed uint64) *model {
	m := &model{t: t, rand: rand.New(rand.NewPCG(seed, 0)), fs: fs, width: width, saved: map[string][][]byte{}}
	var err error
	m.table, err = embed.Create(fs, path, embed.Options{Rows: int64(rows), RowBytes: width, Description: description})
	require.NoError(t, err)
	for range rows {
		m.rows = append(m.rows, make([]byte, width))
	}
	return m
}

func clone(rows [][]byte) (to [][]byte) {
	for _, row := range rows {
		to = append(to, bytes.Clone(row))
	}
	return to
}

// change returns random records to the table in a random order, in memory and in runs, and flushes them.
func (m *model) change(count int, room embed.Room) error {
	budget := mem.NewBudget(0)
	back, err := embed.NewReturned(m.table, budget, room)
	require.NoError(m.t, err)
	defer back.Close()
	for _, i := range m.rand.Perm(len(m.rows))[:min(count, len(m.rows))] {
		record := make([]byte, m.width+embed.TrailerBytes)
		for at := range m.width / 4 {
			binary.LittleEndian.PutUint32(record[4*at:], m.rand.Uint32())
		}
		if err := back.Add(uint32(i), record); err != nil {
			return err
		}
		m.rows[i] = bytes.Clone(record[:m.width])
	}
	return back.Settle(false)
}

func (m *model) save() error {
	token, err := m.table.Save(nil)
	if err == nil {
		m.saved[token] = clone(m.rows)
	}
	return err
}

// check compares all rows, read in a random order.
func (m *model) check(want [][]byte) {
	m.t.Helper()
	order := m.rand.Perm(len(want))
	var ids []int64
	for _, i := range order {
		ids = append(ids, int64(i))
	}
	got := make([]byte, len(ids)*m.width)
	require.NoError(m.t, m.table.Read(ids, got))
	for k, i := range order {
		require.Equal(m.t, want[i], got[k*m.width:][:m.width], "row %d", i)
	}
}

// shapes are rows that share pages, fill one, and straddle several.
var shapes = []struct{ rows, width int }{{5000, 8}, {700, 520}, {300, 4088}, {200, 1544}, {60, 9000}, {1, 4}}

func TestTableKeepsItsStates(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		path := filepath.Join(t.TempDir(), "table")
		m := newModel(t, ssd.OS, path, shape.rows, shape.width, 1)
		m.check(m.rows)
		require.NoError(t, m.save())
		for round := range 6 {
			room := embed.RoomIn(int64(1 << (10 + 3*round)))
			require.NoError(t, m.change(shape.rows/3+1, room))
			m.check(m.rows)
			require.True(t, m.table.Describe().Changed)
			if round%2 == 0 {
				require.NoError(t, m.save())
				require.False(t, m.table.Describe().Changed)
			}
		}
		d := m.table.Describe()
		require.Equal(t, description, d.Description)
		require.Positive(t, d.JournalBytes)

		// Changes after the last save are undone by Restore, and so is the save before.
		m.rows = clone(m.saved[d.Token])
		require.NoError(t, m.table.Restore(d.Token))
		m.check(m.rows)
		require.NoError(t, m.table.Restore(d.Previous))
		m.check(m.saved[d.Previous])
		require.ErrorIs(t, m.table.Restore(d.Token), embed.ErrToken)
		m.rows = clone(m.saved[d.Previous])
		require.NoError(t, m.change(shape.rows, embed.RoomIn(1<<14)))

		// A table that is opened again is in the state saved last.
		require.NoError(t, m.table.Close())
		var err error
		m.table, err = embed.Open(ssd.OS, path)
		require.NoError(t, err)
		m.check(m.saved[d.Previous])
		require.NoError(t, m.table.Close())
		require.ErrorIs(t, m.table.Close(), nil)
		_, err = m.table.Save(nil)
		require.ErrorIs(t, err, embed.ErrClosed)
	}
}

// lossy is a saved table that is changed, saved and restored, until a call to the file system fails.
type lossy struct {
	*model
	path   string
	saving [][]byte // the rows of a save that may have been published before it failed
	token  string   // of the state that the table has unless that save was published
}

// newLossy makes a table with one saved state.
func newLossy(t *testing.T, fs ssd.FS, home string, seed uint64) *lossy {
	path := filepath.Join(home, "table")
	l := &lossy{model: newModel(t, fs, path, 300, 520, seed), path: path}
	require.NoError(t, l.change(300, embed.RoomIn(1<<20)))
	require.NoError(t, l.save())
	l.token = l.table.Describe().Token
	return l
}

func (l *lossy) run() error {
	for range 2 {
		if err := l.change(100, embed.RoomIn(1<<13)); err != nil {
			return err
		}
		l.saving = clone(l.rows)
		if err := l.save(); err != nil {
			return err
		}
		l.token = l.table.Describe().Token
	}
	previous := l.table.Describe().Previous
	l.saving = clone(l.saved[previous])
	if err := l.change(50, embed.RoomIn(1<<13)); err != nil {
		return err
	}
	err := l.table.Restore(previous)
	if err == nil {
		l.token = previous
	}
	return err
}

// checkAgain opens the table as the next process does, and requires a saved state.
func (l *lossy) checkAgain() {
	l.t.Helper()
	_ = l.table.Close()
	var err error
	l.table, err = embed.Open(ssd.OS, l.path)
	require.NoError(l.t, err)
	want := l.saving
	if l.table.Describe().Token == l.token {
		want = l.saved[l.token]
	}
	l.check(want)
	l.rows = clone(want)
	require.NoError(l.t, l.change(300, embed.RoomIn(1<<13)))
	require.NoError(l.t, l.save())
	require.NoError(l.t, l.table.Close())
}

// TestAKilledTableIsInItsSavedState lets every call of the file system from the nth on fail, as if the process had been
// killed there, for every third n.
func TestAKilledTableIsInItsSavedState(t *testing.T) {
	t.Parallel()
	step := 3
	if testing.Short() {
		step = 17
	}
	for n := 1; ; n += step {
		fs := faultfs.New(ssd.OS)
		l := newLossy(t, fs, t.TempDir(), uint64(n))
		fs.Arm(faultfs.Fault{Op: faultfs.Any, Nth: n, Times: faultfs.Forever, Errno: syscall.EIO})
		err := l.run()
		fs.Clear()
		l.checkAgain()
		if err == nil {
			require.Greater(t, n, 50)
			return
		}
	}
}

// smallDisk has this many bytes free.
type smallDisk struct {
	ssd.FS
	free *int64
}

func (d smallDisk) Space(string) (int64, error) { return *d.free, nil }

// TestAFullDisk: a table that the disk has no room for is not made; changes whose journal it has no room for are
// refused before a byte is written, by what they need, and the state saved last is still there.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	free, path := int64(0), filepath.Join(t.TempDir(), "table")
	fs := smallDisk{ssd.OS, &free}
	_, err := embed.Create(fs, path, embed.Options{Rows: 300, RowBytes: 520})
	var short *store.SpaceError
	require.ErrorAs(t, err, &short)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoFileExists(t, filepath.Join(path, "rows"))

	free = short.Need
	m := newModel(t, fs, path, 300, 520, 1)
	require.NoError(t, m.change(300, embed.RoomIn(1<<20)))
	require.NoError(t, m.save())
	saved := m.table.Describe()
	free = short.Need - 1
	require.ErrorAs(t, m.change(300, embed.RoomIn(1<<20)), &short)
	require.Greater(t, short.Need, saved.Bytes, "every page and their headers")
	require.Equal(t, free, short.Free)
	require.Equal(t, saved, m.table.Describe())
	m.check(m.saved[saved.Token])
	free = short.Need
	require.NoError(t, m.change(300, embed.RoomIn(4<<20))) // in one group
	require.Equal(t, short.Need, m.table.Describe().JournalBytes)
	m.check(m.rows)
	require.NoError(t, m.table.Close())
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	path := filepath.Join(home, "table")
	for _, sizes := range [][2]int{{0, 8}, {1, 0}, {1, 6}, {1, 1 << 20}} {
		_, err := embed.Create(ssd.OS, path, embed.Options{Rows: int64(sizes[0]), RowBytes: sizes[1]})
		require.ErrorIs(t, err, embed.ErrInvalid)
	}
	_, err := embed.Open(ssd.OS, path)
	require.ErrorIs(t, err, store.ErrNotFound)
	m := newModel(t, ssd.OS, path, 10, 8, 1)
	_, err = embed.Open(ssd.OS, path)
	require.ErrorIs(t, err, store.ErrNotFound, "it was never saved")
	require.NoError(t, m.save())
	_, err = embed.Open(ssd.OS, path)
	require.ErrorIs(t, err, embed.ErrBusy)
	_, err = embed.Create(ssd.OS, path, embed.Options{Rows: 10, RowBytes: 8})
	require.ErrorIs(t, err, embed.ErrBusy)
	require.ErrorIs(t, m.table.Read([]int64{10}, make([]byte, 8)), embed.ErrInvalid)
	require.ErrorIs(t, m.table.Read([]int64{1}, make([]byte, 4)), embed.ErrInvalid)
	require.ErrorIs(t, m.table.Write(9, 2, make([]byte, 16)), embed.ErrInvalid)
	release, err := m.table.Use()
	require.NoError(t, err)
	token := m.table.Describe().Token
	for _, err := range []error{m.table.Write(0, 1, make([]byte, 8)), m.table.Restore(token), m.table.Close()} {
		require.ErrorIs(t, err, embed.ErrInUse)
	}
	_, err = m.table.Use()
	require.ErrorIs(t, err, embed.ErrInUse)
	release()
	lost := errors.New("the scratch file is full")
	m.table.Lose(lost)
	_, err = m.table.Save(nil)
	require.ErrorIs(t, err, embed.ErrLost)
	require.ErrorIs(t, err, lost)
	require.NoError(t, m.table.Restore(m.table.Describe().Token))
	require.NoError(t, m.save())
	require.NoError(t, m.table.Close())
	_, err = embed.Create(ssd.OS, path, embed.Options{Rows: 10, RowBytes: 8})
	require.ErrorIs(t, err, store.ErrExists)

	foreign := filepath.Join(home, "foreign")
	require.NoError(t, os.Mkdir(foreign, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.tex"), nil, 0o600))
	_, err = embed.Create(ssd.OS, foreign, embed.Options{Rows: 10, RowBytes: 8})
	require.ErrorIs(t, err, store.ErrExists)
}

// TestReturnedIsAMap compares a Returned with a map, with records in memory, in runs and in the file.
func TestReturnedIsAMap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table")
	m := newModel(t, ssd.OS, path, 400, 40, 9)
	require.NoError(t, m.save())
	back, err := embed.NewReturned(m.table, mem.NewBudget(0), embed.Room{Records: 2000, Put: 1 << 14, Merge: 1 << 12})
	require.NoError(t, err)
	defer back.Close()
	away := map[uint32][]byte{}
	flushes := 0
	for step := range 3000 {
		row := uint32(m.rand.IntN(400))
		_, is := away[row]
		require.Equal(t, is, back.Away(row))
		if !is {
			record := make([]byte, 48)
			binary.LittleEndian.PutUint32(record, uint32(step))
			require.NoError(t, back.Add(row, record))
			away[row] = record[:40]
			m.rows[row] = record[:40]
			continue
		}
		got := make([]byte, 48)
		if !back.Copy(row, got) {
			require.NoError(t, back.Flush())
			flushes++
			require.NoError(t, m.table.Read([]int64{int64(row)}, got[:40]))
		}
		require.True(t, back.Away(row))
		back.Take(row)
		require.Equal(t, away[row], got[:40])
		delete(away, row)
		if m.rand.IntN(2) == 0 { // it changes and is returned again
			binary.LittleEndian.PutUint32(got, ^uint32(step))
			require.NoError(t, back.Add(row, got))
			away[row] = slices.Clone(got[:40])
		} else {
			require.NoError(t, m.table.Write(int64(row), 1, got[:40]))
		}
		m.rows[row] = slices.Clone(got[:40])
	}
	require.Greater(t, flushes, 10)
	require.NoError(t, back.Settle(false))
	m.check(m.rows)
	require.NoError(t, m.table.Close())
}
