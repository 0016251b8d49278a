package embed_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/embed"
	"freshgo/core/ssd"
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
