package ssd_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// useTemp writes a Temp in any order as it grows, and reads it back through the engine.
func useTemp(t *testing.T, r *rig, dir string) (direct bool, err error) {
	t.Helper()
	temp, err := r.engine.CreateTemp(dir, r.budget)
	if err != nil {
		return false, err
	}
	names, err := ssd.OS.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names, "it has no name")
	block, err := r.budget.Alloc(mem.Staging, 8*ssd.PageBytes)
	require.NoError(t, err)
	data := block.Bytes()
	copy(data, noise(len(data)))
	for _, pages := range []int64{2, 8, 4, 8} {
		require.NoError(t, temp.Grow(pages*ssd.PageBytes))
	}
	require.EqualValues(t, len(data), temp.Handle().Size())
	for _, page := range []int{5, 0, 7, 1, 2, 4, 3} { // and not the sixth
		from := page * ssd.PageBytes
		require.NoError(t, temp.Write(data[from:from+ssd.PageBytes], int64(from)))
	}
	clear(data[6*ssd.PageBytes : 7*ssd.PageBytes])
	ranges := []ssd.Range{{0, 3 * ssd.PageBytes}, {3 * ssd.PageBytes, 5 * ssd.PageBytes}}
	err = r.engine.Read(context.Background(), temp.Handle(), ranges, func(i int, p []byte) error {
		if string(p) != string(data[ranges[i].Off:][:len(p)]) || len(p) != int(ranges[i].Len) {
			return errWrong
		}
		return nil
	})
	require.NoError(t, err)
	block.Free()
	return temp.Direct(), temp.Close()
}

func TestTemp(t *testing.T) {
	for _, kind := range kinds {
		for name, c := range map[string]struct {
			faults   []faultfs.Fault
			buffered bool
		}{
			"as it is": {nil, false},
			"no O_DIRECT": {[]faultfs.Fault{{Op: faultfs.OpenDirect, Errno: syscall.EINVAL,
				Times: faultfs.Forever}}, true},
			"O_DIRECT refused at the write": {[]faultfs.Fault{{Op: faultfs.Write, Errno: syscall.EINVAL}}, true},
			"O_DIRECT refused at the read":  {[]faultfs.Fault{{Op: faultfs.Read, Errno: syscall.EINVAL}}, true},
			"no locks":                      {[]faultfs.Fault{{Op: faultfs.Lock, Errno: syscall.ENOLCK}}, false},
			"no allocation": {[]faultfs.Fault{{Op: faultfs.Allocate, Errno: syscall.EOPNOTSUPP,
				Times: faultfs.Forever}}, false},
			"no system call for allocation": {[]faultfs.Fault{{Op: faultfs.Allocate, Errno: syscall.ENOSYS,
				Times: faultfs.Forever}}, false},
			"removed before it was locked":   {[]faultfs.Fault{{Op: faultfs.OpenDirect, Errno: syscall.ENOENT}}, false},
			"the name is taken, three times": {[]faultfs.Fault{{Op: faultfs.Open, Errno: syscall.EEXIST, Times: 3}}, false},
		} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, ssd.PageBytes)
				defer r.Close()
				for _, f := range c.faults {
					f.Nth, f.Path = 1, ssd.TempPrefix+"*"
					if kind == ssd.Buffered && f.Errno == syscall.EINVAL {
						t.Skip("nothing is direct")
					}
					r.fs.Arm(f)
				}
				direct, err := useTemp(t, r, t.TempDir())
				require.NoError(t, err)
				require.Equal(t, kind != ssd.Buffered && !c.buffered, direct)
			})
		}
	}
}

func TestTempThatCannotBeMade(t *testing.T) {
	r := newRig(t, ssd.Options{Kind: kinds[0], Depth: 4}, ssd.PageBytes)
	defer r.Close()
	_, err := r.engine.CreateTemp(filepath.Join(t.TempDir(), "missing"), r.budget)
	require.ErrorIs(t, err, os.ErrNotExist)
	dir := t.TempDir()
	for _, c := range []struct {
		op    faultfs.Op
		errno syscall.Errno
	}{
		{faultfs.Open, syscall.EROFS}, {faultfs.Open, syscall.EEXIST}, {faultfs.Write, syscall.ENOSPC},
		{faultfs.Write, syscall.EINVAL},
		{faultfs.Read, syscall.EIO}, {faultfs.Size, syscall.EIO}, {faultfs.Remove, syscall.EPERM},
	} {
		r.fs.Arm(faultfs.Fault{Op: c.op, Nth: 1, Times: faultfs.Forever, Errno: c.errno, Path: ssd.TempPrefix + "*"})
		_, err := r.engine.CreateTemp(dir, r.budget)
		require.Error(t, err)
		if c.errno != syscall.EEXIST {
			require.ErrorIs(t, err, c.errno)
		}
		require.EqualValues(t, 1, r.fs.OpenFiles(), "the file of the rig")
		r.fs.Clear()
		ssd.RemoveTemps(r.fs, dir)
		names, err := ssd.OS.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, names)
	}
	tight := mem.NewBudget(ssd.PageBytes - 1)
	_, err = r.engine.CreateTemp(dir, tight)
	require.ErrorIs(t, err, mem.ErrBudget)
}

// While somebody who removes leftovers holds the lock, another name is tried.
func TestTempTakenForALeftover(t *testing.T) {
	r := newRig(t, ssd.Options{Kind: kinds[0], Depth: 4}, ssd.PageBytes)
	defer r.Close()
	dir := t.TempDir()
	var thief ssd.File
	r.fs.Arm(faultfs.Fault{Op: faultfs.Lock, Nth: 1, Hook: func() {
		names, err := ssd.OS.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, names, 1)
		thief, err = ssd.OS.Open(filepath.Join(dir, names[0]), syscall.O_RDWR, 0)
		require.NoError(t, err)
		held, err := thief.Lock(true)
		require.NoError(t, err)
		require.True(t, held)
	}})
	_, err := useTemp(t, r, dir)
	require.NoError(t, err)
	require.NoError(t, thief.Close())
}

func TestBufferedTempBoundsDirtyPages(t *testing.T) {
	r := newRig(t, ssd.Options{Kind: ssd.Buffered, Depth: 4}, ssd.PageBytes)
	defer r.Close()
	temp, err := r.engine.CreateTemp(t.TempDir(), r.budget)
	require.NoError(t, err)
	const chunk = ssd.DirtyBytes / 2
	require.NoError(t, temp.Grow(3*chunk))
	for i := range int64(3) {
		require.NoError(t, temp.Write(make([]byte, chunk), i*chunk))
	}
	require.Equal(t, 1, r.fs.Calls(faultfs.Sync))
	require.NoError(t, temp.Close())
}
