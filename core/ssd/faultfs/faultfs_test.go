package faultfs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// calls makes one call of each kind, on a directory that holds the files a and b.
func calls(t *testing.T, fs *faultfs.FS, dir string) map[faultfs.Op]error {
	t.Helper()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	f, err := ssd.OS.Open(a, syscall.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	errs := map[faultfs.Op]error{}
	opened, err := fs.Open(b, syscall.O_RDWR, 0)
	errs[faultfs.Open] = err
	if err == nil {
		_, errs[faultfs.Write] = opened.Pwrite([]byte("x"), 0)
		_, errs[faultfs.Read] = opened.Pread(make([]byte, 1), 0)
		errs[faultfs.Sync] = opened.Sync()
		errs[faultfs.Truncate] = opened.Truncate(1)
		errs[faultfs.Allocate] = opened.Allocate(0, 10)
		_, errs[faultfs.Size] = opened.Size()
		_, errs[faultfs.Lock] = opened.Lock(true)
		errs[faultfs.Close] = opened.Close()
	}
	direct, err := fs.Open(b, syscall.O_RDWR|ssd.Direct, 0)
	errs[faultfs.OpenDirect] = err
	if err == nil {
		require.NotNil(t, direct)
		_ = direct.Close()
	}
	errs[faultfs.Rename] = fs.Rename(a, filepath.Join(dir, "c"))
	errs[faultfs.Mkdir] = fs.Mkdir(filepath.Join(dir, "d"), 0o700)
	_, errs[faultfs.ReadDir] = fs.ReadDir(dir)
	_, errs[faultfs.Stat] = fs.Stat(b)
	errs[faultfs.SyncDir] = fs.SyncDir(dir)
	errs[faultfs.Remove] = fs.Remove(b)
	errs[faultfs.RemoveAll] = fs.RemoveAll(filepath.Join(dir, "d"))
	require.Zero(t, fs.OpenFiles())
	return errs
}

func newDir(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("data"), 0o600))
	}
	return dir
}

func TestEachKindOfCallCanFail(t *testing.T) {
	healthy := faultfs.New(ssd.OS)
	kinds := calls(t, healthy, newDir(t))
	require.Len(t, kinds, 17)
	for kind, err := range kinds {
		require.NoError(t, err, kind)
		require.Positive(t, healthy.Calls(kind), kind)
	}
	require.Equal(t, 18, healthy.Calls(faultfs.Any), "two files are closed")
	for kind := range kinds {
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: kind, Nth: 1, Errno: syscall.EIO})
		for other, err := range calls(t, fs, newDir(t)) {
			if other == kind {
				require.ErrorIs(t, err, syscall.EIO, kind)
			} else {
				require.NoError(t, err, "%s, when %s fails", other, kind)
			}
		}
	}
}

func TestAFailedCallDoesNotReachTheFileSystem(t *testing.T) {
	dir := newDir(t)
	calls(t, faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO}), dir)
	names, err := ssd.OS.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names)
}

func TestWhichCallsAFaultActsOn(t *testing.T) {
	dir := newDir(t)
	failed := func(fs *faultfs.FS, name string) (which []int) {
		for i := range 6 {
			if _, err := fs.Stat(filepath.Join(dir, name)); err != nil {
				which = append(which, i+1)
			}
		}
		return which
	}
	stat := faultfs.Fault{Op: faultfs.Stat, Path: "a*", Nth: 2, Errno: syscall.EIO}
	require.Equal(t, []int{2}, failed(faultfs.New(ssd.OS, stat), "a"))
	require.Empty(t, failed(faultfs.New(ssd.OS, stat), "b"), "another file")
	stat.Times = 3
	require.Equal(t, []int{2, 3, 4}, failed(faultfs.New(ssd.OS, stat), "a"))
	stat.Times = faultfs.Forever
	fs := faultfs.New(ssd.OS, stat)
	require.Equal(t, []int{2, 3, 4, 5, 6}, failed(fs, "a"))
	fs.Clear()
	require.Empty(t, failed(fs, "a"))
	hooked := 0
	fs.Arm(faultfs.Fault{Op: faultfs.Any, Nth: 3, Hook: func() { hooked++ }})
	require.Empty(t, failed(fs, "a"), "a fault without errno lets the call through")
	require.Equal(t, 1, hooked)
}

func TestSpace(t *testing.T) {
	fs := faultfs.New(ssd.OS)
	f, err := fs.Open(filepath.Join(t.TempDir(), "f"), syscall.O_RDWR|syscall.O_CREAT, 0o600)
	require.NoError(t, err)
	fs.SetSpace(10)
	write := func(n int) (int, error) { return f.Pwrite(make([]byte, n), 0) }
	n, err := write(7)
	require.NoError(t, err)
	require.Equal(t, 7, n)
	n, err = write(7)
	require.NoError(t, err)
	require.Equal(t, 3, n, "what is left")
	_, err = write(1)
	require.ErrorIs(t, err, syscall.ENOSPC)
	n, err = write(0)
	require.NoError(t, err)
	require.Zero(t, n)
	fs.Clear()
	n, err = write(7)
	require.NoError(t, err)
	require.Equal(t, 7, n)
	require.NoError(t, f.Close())
}
