package embed_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/embed"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table")
	m := newModel(t, ssd.OS, path, 700, 520, 3)
	require.NoError(t, m.change(700, embed.RoomIn(1<<20)))
	require.NoError(t, m.save())
	require.NoError(t, m.table.Close())
	flip := func(name string, at int64) {
		file, err := os.OpenFile(filepath.Join(path, name), os.O_RDWR, 0)
		require.NoError(t, err)
		var one [1]byte
		_, err = file.ReadAt(one[:], at)
		require.NoError(t, err)
		one[0] ^= 1
		_, err = file.WriteAt(one[:], at)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	flip("rows", 5*ssd.PageBytes+3)
	table, err := embed.Open(ssd.OS, path)
	require.NoError(t, err)
	require.NoError(t, table.Read([]int64{0}, make([]byte, 520)))
	perPage := int64(table.Layout().RowsPerPage)
	require.ErrorIs(t, table.Read([]int64{5 * perPage}, make([]byte, 520)), store.ErrCorrupt)
	require.ErrorIs(t, table.Write(5*perPage, 1, make([]byte, 520)), store.ErrCorrupt)
	require.NoError(t, table.Close())
	flip("rows", 5*ssd.PageBytes+3)
	names, err := filepath.Glob(filepath.Join(path, "sums-*"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	flip(filepath.Base(names[0]), 11)
	_, err = embed.Open(ssd.OS, path)
	require.ErrorIs(t, err, store.ErrCorrupt)
	flip(filepath.Base(names[0]), 11)

	// No bit of the state changes what the table says of itself.
	table, err = embed.Open(ssd.OS, path)
	require.NoError(t, err)
	described := table.Describe()
	require.NoError(t, table.Close())
	saved, err := os.ReadFile(filepath.Join(path, "state.json"))
	require.NoError(t, err)
	for at := range saved {
		changed := bytes.Clone(saved)
		changed[at] ^= 1 << (at % 8)
		require.NoError(t, os.WriteFile(filepath.Join(path, "state.json"), changed, 0o600))
		table, err := embed.Open(ssd.OS, path)
		if err == nil {
			require.Equal(t, described, table.Describe())
			require.NoError(t, table.Close())
		} else {
			require.ErrorContains(t, err, "state.json")
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(path, "state.json"), saved, 0o600))

	for _, damage := range []struct {
		name string
		do   func(path string) error
	}{
		{filepath.Base(names[0]), os.Remove},
		{"rows", func(path string) error { return os.Truncate(path, ssd.PageBytes) }},
		{"rows", os.Remove},
	} {
		require.NoError(t, damage.do(filepath.Join(path, damage.name)))
		_, err = embed.Open(ssd.OS, path)
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.ErrorContains(t, err, damage.name)
	}
}

// damagedRuns is a file system that flips a bit of the first byte from an offset on that is written to runs.
type damagedRuns struct {
	ssd.FS
	off *int64
}

type damagedRun struct {
	ssd.File
	off int64
}

func (fs damagedRuns) Open(path string, flag int, perm uint32) (ssd.File, error) {
	file, err := fs.FS.Open(path, flag, perm)
	if name := filepath.Base(path); err == nil && strings.HasPrefix(name, "sums-") && filepath.Ext(name) == ".new" {
		return damagedRun{file, *fs.off}, nil
	}
	return file, err
}

func (f damagedRun) Pwrite(p []byte, off int64) (int, error) {
	if at := f.off - off; at >= 0 && at < int64(len(p)) {
		p = bytes.Clone(p)
		p[at] ^= 1 << (at % 8)
	}
	return f.File.Pwrite(p, off)
}

// TestDamagedRunsAreFound: no bit of what was spilled reaches the table changed, be it of the payload or of the row's
// number.
func TestDamagedRunsAreFound(t *testing.T) {
	t.Parallel()
	off := int64(0)
	m := newModel(t, damagedRuns{ssd.OS, &off}, filepath.Join(t.TempDir(), "table"), 400, 40, 7)
	require.NoError(t, m.save())
	const record = 40 + embed.TrailerBytes
	for off = 5 * record; off < 6*record; off++ {
		before := clone(m.rows)
		err := m.change(400, embed.Room{Records: 2000, Put: 1 << 14, Merge: 1 << 12})
		require.ErrorIs(t, err, store.ErrCorrupt, "byte %d of the record", off%record)
		got := make([]byte, 40)
		for i := range m.rows {
			require.NoError(t, m.table.Read([]int64{int64(i)}, got))
			require.True(t, bytes.Equal(got, before[i]) || bytes.Equal(got, m.rows[i]), "row %d, byte %d", i, off%record)
		}
		require.NoError(t, m.table.Restore(m.table.Describe().Token))
		m.rows = clone(m.saved[m.table.Describe().Token])
	}
	require.NoError(t, m.table.Close())
}

// restorable returns a table with two saves and changes after them, by which a page of the middle is in both journals.
func restorable(t *testing.T) (m *model, path string) {
	path = filepath.Join(t.TempDir(), "table")
	m = newModel(t, ssd.OS, path, 700, 520, 11)
	for range 2 {
		require.NoError(t, m.change(700, embed.RoomIn(1<<20)))
		require.NoError(t, m.save())
	}
	require.NoError(t, m.change(700, embed.RoomIn(1<<20)))
	return m, path
}

// TestADamagedJournalRestoresNothing: where a file is damaged that going back to a state needs, Restore says which, and
// leaves rows and states as they were; the state saved last is there when the table is opened again.
func TestADamagedJournalRestoresNothing(t *testing.T) {
	t.Parallel()
	flipped := func(at int64) func(name string) error {
		return func(name string) error {
			data, err := os.ReadFile(name)
			if err == nil {
				data[at] ^= 1
				err = os.WriteFile(name, data, 0o600)
			}
			return err
		}
	}
	shortened := func(name string) error { return os.Truncate(name, 3*ssd.PageBytes) }
	for _, damage := range []struct {
		name string
		last bool // damages a file of the state saved last, else of the one before
		do   func(name string) error
	}{
		{"journal-", false, flipped(0)},
		{"journal-", false, flipped(16)},
		{"journal-", false, flipped(30 * ssd.PageBytes)},
		{"journal-", false, shortened},
		{"journal-", false, os.Remove},
		{"sums-", false, flipped(11)},
		{"sums-", false, os.Remove},
		{"state-", false, flipped(11)},
		{"state-", false, os.Remove},
		{"journal-", true, flipped(30 * ssd.PageBytes)},
		{"journal-", true, os.Remove},
		{"sums-", true, flipped(11)},
	} {
		m, path := restorable(t)
		d := m.table.Describe()
		token := d.Previous
		if damage.last {
			token = d.Token
		}
		names, err := filepath.Glob(filepath.Join(path, damage.name+token+"*"))
		require.NoError(t, err)
		require.Len(t, names, 1)
		whole, err := os.ReadFile(names[0])
		require.NoError(t, err)
		require.NoError(t, damage.do(names[0]))
		err = m.table.Restore(d.Previous)
		require.ErrorIs(t, err, store.ErrCorrupt, "%v", damage)
		require.ErrorContains(t, err, filepath.Base(names[0]))
		require.Equal(t, d, withJournals(m.table.Describe(), d))
		m.check(m.rows)
		if !damage.last {
			require.NoError(t, m.table.Close())
			m.table, err = embed.Open(ssd.OS, path)
			require.NoError(t, err)
			m.check(m.saved[d.Token])
		}
		require.NoError(t, os.WriteFile(names[0], whole, 0o600))
		require.NoError(t, m.table.Restore(d.Previous), "%v", damage)
		m.check(m.saved[d.Previous])
		require.NoError(t, m.table.Close())
	}
}

// TestADamagedJournalIsNoTornOne: a block that was durable before later ones is not taken for one that was never
// written. The table is not opened before the block is whole again, and then has its saved state.
func TestADamagedJournalIsNoTornOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table")
	m := newModel(t, ssd.OS, path, 700, 520, 12)
	require.NoError(t, m.save())
	d := m.table.Describe()
	require.NoError(t, m.change(100, embed.RoomIn(1<<20)))
	require.NoError(t, m.change(700, embed.RoomIn(1<<20)))
	require.NoError(t, m.table.Close())
	name := filepath.Join(path, "journal-"+d.Token)
	whole, err := os.ReadFile(name)
	require.NoError(t, err)
	for _, at := range []int{0, 4, 8, 12, 16, ssd.PageBytes - 1, ssd.PageBytes, 3*ssd.PageBytes + 7} {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1
		require.NoError(t, os.WriteFile(name, damaged, 0o600))
		_, err := embed.Open(ssd.OS, path)
		require.ErrorIs(t, err, store.ErrCorrupt, "byte %d", at)
		require.ErrorContains(t, err, filepath.Base(name))
	}
	require.NoError(t, os.WriteFile(name, whole, 0o600))
	m.table, err = embed.Open(ssd.OS, path)
	require.NoError(t, err)
	m.check(m.saved[d.Token])
	require.NoError(t, m.table.Close())
}

// TestASaveWithoutItsDirectory lets the sync of the directory fail after the rename that publishes a state: the table
// is in this state, and no row changes before the directory was synced.
func TestASaveWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	fs, path := faultfs.New(ssd.OS), filepath.Join(t.TempDir(), "table")
	m := newModel(t, fs, path, 700, 520, 13)
	for range 2 {
		require.NoError(t, m.change(700, embed.RoomIn(1<<20)))
		require.NoError(t, m.save())
	}
	require.NoError(t, m.change(700, embed.RoomIn(1<<20)))
	published, before := clone(m.rows), m.table.Describe().Token
	fs.Arm(faultfs.Fault{Op: faultfs.SyncDir, Nth: 1, Times: 2, Errno: syscall.EIO})
	require.ErrorIs(t, m.save(), syscall.EIO)
	require.Equal(t, before, m.table.Describe().Previous)
	require.ErrorIs(t, m.change(100, embed.RoomIn(1<<20)), syscall.EIO)
	m.check(published)
	require.NoError(t, m.change(100, embed.RoomIn(1<<20)))
	require.NoError(t, m.table.Close())
	var err error
	m.table, err = embed.Open(fs, path)
	require.NoError(t, err)
	m.check(published)
	require.NoError(t, m.table.Restore(before))
	m.check(m.saved[before])
	require.NoError(t, m.table.Close())
}

// TestAFailedRestoreIsRepeated lets one call to the file system fail during Restore: the table is as before, or it
// takes no change until Restore is called again, which succeeds, with the same state or the other one.
func TestAFailedRestoreIsRepeated(t *testing.T) {
	t.Parallel()
	lost := 0
	for i := 0; ; i++ {
		n := 1 + i/2
		fs, path := faultfs.New(ssd.OS), filepath.Join(t.TempDir(), "table")
		m := newModel(t, fs, path, 60, 520, uint64(n))
		for range 2 {
			require.NoError(t, m.change(60, embed.RoomIn(1<<20)))
			require.NoError(t, m.save())
		}
		require.NoError(t, m.change(60, embed.RoomIn(1<<20)))
		previous, last := m.table.Describe().Previous, m.table.Describe().Token
		wanted := previous
		fs.Arm(faultfs.Fault{Op: faultfs.Any, Nth: n, Times: 1, Errno: syscall.EIO})
		failed := m.table.Restore(previous)
		fs.Clear()
		if failed != nil {
			if m.table.Err() == nil {
				m.check(m.rows)
			} else {
				lost++
				require.ErrorIs(t, m.change(1, embed.RoomIn(1<<20)), embed.ErrLost, "call %d", n)
				require.ErrorIs(t, m.save(), embed.ErrLost, "call %d", n)
			}
			if i%2 == 1 && m.table.Describe().Token == last {
				wanted = last
			}
			require.NoError(t, m.table.Restore(wanted), "call %d: %v", n, failed)
		}
		m.check(m.saved[wanted])
		require.NoError(t, m.table.Close())
		var err error
		m.table, err = embed.Open(ssd.OS, path)
		require.NoError(t, err)
		m.check(m.saved[wanted])
		require.NoError(t, m.table.Close())
		if failed == nil && n > 60 {
			require.Greater(t, lost, 10)
			return
		}
	}
}

// TestDamagedChecksumsUndoNothing: a table whose checksums are damaged is not opened, and the changes after its save
// are undone once they are whole.
func TestDamagedChecksumsUndoNothing(t *testing.T) {
	t.Parallel()
	m, path := restorable(t)
	token := m.table.Describe().Token
	require.NoError(t, m.table.Close())
	read := func(pattern string) (name string, data []byte) {
		names, err := filepath.Glob(filepath.Join(path, pattern))
		require.NoError(t, err)
		require.Len(t, names, 1, pattern)
		data, err = os.ReadFile(names[0])
		require.NoError(t, err)
		return names[0], data
	}
	_, rows := read("rows")
	_, journal := read("journal-" + token + "*")
	name, sums := read("sums-" + token + "*")
	require.NoError(t, os.WriteFile(name, append(bytes.Clone(sums[1:]), 1), 0o600))
	_, err := embed.Open(ssd.OS, path)
	require.ErrorIs(t, err, store.ErrCorrupt)
	_, after := read("rows")
	require.True(t, bytes.Equal(rows, after), "rows were undone")
	_, after = read("journal-" + token + "*")
	require.True(t, bytes.Equal(journal, after), "the journal changed")
	require.NoError(t, os.WriteFile(name, sums, 0o600))
	m.table, err = embed.Open(ssd.OS, path)
	require.NoError(t, err)
	m.check(m.saved[token])
	require.NoError(t, m.table.Close())
}

// withJournals returns a description with the bytes of journals of another one.
func withJournals(d, of embed.Description) embed.Description {
	d.JournalBytes = of.JournalBytes
	return d
}

// TestASavedTableIsNotReplaced: a directory that lost the file of its state is neither opened nor made anew, and the
// error says how to have the table again.
func TestASavedTableIsNotReplaced(t *testing.T) {
	t.Parallel()
	for saves := 1; saves <= 3; saves++ {
		path := filepath.Join(t.TempDir(), "table")
		m := newModel(t, ssd.OS, path, 700, 520, 3)
		for range saves {
			require.NoError(t, m.change(300, embed.RoomIn(1<<20)))
			require.NoError(t, m.save())
		}
		token := m.table.Describe().Token
		require.NoError(t, m.change(300, embed.RoomIn(1<<20))) // undone
		require.NoError(t, m.table.Close())
		state := filepath.Join(path, "state.json")
		require.NoError(t, os.Remove(state))
		_, opened := embed.Open(ssd.OS, path)
		_, created := embed.Create(ssd.OS, path, embed.Options{Rows: 700, RowBytes: 520})
		for _, err := range []error{opened, created} {
			require.ErrorIs(t, err, store.ErrCorrupt)
			require.ErrorContains(t, err, "copy state-"+token+".json to state.json")
		}
		kept, err := os.ReadFile(filepath.Join(path, "state-"+token+".json"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(state, kept, 0o600))
		m.table, err = embed.Open(ssd.OS, path)
		require.NoError(t, err)
		m.check(m.saved[token])
		require.NoError(t, m.table.Close())
	}
}

// TestAKilledCreationIsReplaced lets every call of the file system from the nth on fail, as if the process had been
// killed there: what was never saved stands in the way of no new table.
func TestAKilledCreationIsReplaced(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		fs, path := faultfs.New(ssd.OS), filepath.Join(t.TempDir(), "table")
		fs.Arm(faultfs.Fault{Op: faultfs.Any, Nth: n, Times: faultfs.Forever, Errno: syscall.EIO})
		o := embed.Options{Rows: 20, RowBytes: 520}
		table, err := embed.Create(fs, path, o)
		if err == nil {
			if err = table.Write(0, 20, bytes.Repeat([]byte{7}, 20*520)); err == nil {
				_, err = table.Save(nil)
			}
			fs.Clear()
			require.NoError(t, table.Close())
		}
		fs.Clear()
		if table, opened := embed.Open(ssd.OS, path); opened == nil {
			require.NoError(t, table.Close())
		} else {
			require.ErrorIs(t, opened, store.ErrNotFound, "call %d", n)
			table, err := embed.Create(ssd.OS, path, o)
			require.NoError(t, err, "call %d", n)
			_, err = table.Save(nil)
			require.NoError(t, err)
			require.NoError(t, table.Close())
		}
		if err == nil {
			require.Greater(t, n, 10)
			return
		}
	}
}
