package ssd_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

func TestOSFileSystem(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }

	require.NoError(t, ssd.OS.Mkdir(at("d"), 0o755))
	f, err := ssd.OS.Open(at("d/f"), syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL, 0o600)
	require.NoError(t, err)
	require.Equal(t, at("d/f"), f.Name())
	require.Positive(t, f.Fd())
	require.NoError(t, ssd.WriteFull(f, []byte("hello"), 3))
	require.NoError(t, f.Sync())
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 8, size)
	require.NoError(t, f.Truncate(6))
	got := make([]byte, 3)
	require.NoError(t, ssd.ReadFull(f, got, 3))
	require.Equal(t, "hel", string(got))
	n, err := f.Pread(got, 6)
	require.NoError(t, err)
	require.Zero(t, n, "end of the file")
	require.NoError(t, f.Close())

	info, err := ssd.OS.Stat(at("d/f"))
	require.NoError(t, err)
	require.EqualValues(t, 6, info.Size)
	require.False(t, info.IsDir)
	onDevice := info.Device
	info, err = ssd.OS.Stat(at("d"))
	require.NoError(t, err)
	require.True(t, info.IsDir)
	require.Equal(t, onDevice, info.Device)
	other, err := ssd.OS.Stat("/proc/self/stat")
	require.NoError(t, err)
	require.NotEqual(t, onDevice, other.Device)

	require.NoError(t, ssd.OS.Rename(at("d/f"), at("d/a")))
	require.NoError(t, ssd.OS.Mkdir(at("d/b"), 0o755))
	names, err := ssd.OS.ReadDir(at("d"))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names)
	require.NoError(t, ssd.OS.SyncDir(at("d")))
	require.NoError(t, ssd.OS.Remove(at("d/b")))
	require.NoError(t, ssd.OS.RemoveAll(at("d")))
	require.NoError(t, ssd.OS.RemoveAll(at("d")), "gone already")
}

func TestOSErrorsNameThePathAndKeepTheErrno(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	closed, err := ssd.OS.Open(filepath.Join(dir, "file"), syscall.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	bad := closed.Name()
	for name, c := range map[string]struct {
		err   error
		cause error
		path  string
		off   int64
	}{
		"open":      {errOf(ssd.OS.Open(missing, syscall.O_RDONLY, 0)), fs.ErrNotExist, missing, -1},
		"exclusive": {errOf(ssd.OS.Open(bad, syscall.O_CREAT|syscall.O_EXCL, 0o600)), fs.ErrExist, bad, -1},
		"rename":    {ssd.OS.Rename(missing, bad), fs.ErrNotExist, missing, -1},
		"remove":    {ssd.OS.Remove(missing), fs.ErrNotExist, missing, -1},
		"removeall": {ssd.OS.RemoveAll(bad + "/x/y"), syscall.ENOTDIR, bad + "/x/y", -1},
		"mkdir":     {ssd.OS.Mkdir(bad, 0o755), fs.ErrExist, bad, -1},
		"readdir":   {errOf(ssd.OS.ReadDir(missing)), fs.ErrNotExist, missing, -1},
		"stat":      {errOf(ssd.OS.Stat(missing)), fs.ErrNotExist, missing, -1},
		"syncdir":   {ssd.OS.SyncDir(missing), fs.ErrNotExist, missing, -1},
		"pread":     {errOf(closed.Pread(make([]byte, 1), 7)), syscall.EBADF, bad, 7},
		"pwrite":    {errOf(closed.Pwrite(make([]byte, 1), 7)), syscall.EBADF, bad, 7},
		"sync":      {closed.Sync(), syscall.EBADF, bad, -1},
		"truncate":  {closed.Truncate(0), syscall.EBADF, bad, -1},
		"size":      {errOf(closed.Size()), syscall.EBADF, bad, -1},
		"lock":      {errOf(closed.Lock(true)), syscall.EBADF, bad, -1},
		"close":     {closed.Close(), syscall.EBADF, bad, -1},
	} {
		t.Run(name, func(t *testing.T) { requireAt(t, c.err, c.cause, c.path, c.off) })
	}
	require.EqualError(t, &ssd.PathError{Op: "read", Path: "f", Off: 4096, Err: syscall.EIO},
		"ssd: read f at offset 4096: input/output error")
	require.EqualError(t, &ssd.PathError{Op: "open", Path: "f", Off: -1, Err: syscall.EIO},
		"ssd: open f: input/output error")
}

func errOf[T any](_ T, err error) error { return err }

func TestLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() ssd.File {
		f, err := ssd.OS.Open(path, syscall.O_RDWR|syscall.O_CREAT, 0o600)
		require.NoError(t, err)
		return f
	}
	take := func(f ssd.File, exclusive bool) bool {
		taken, err := f.Lock(exclusive)
		require.NoError(t, err)
		return taken
	}
	a, b := open(), open()
	require.True(t, take(a, true))
	require.False(t, take(b, true))
	require.False(t, take(b, false))
	require.NoError(t, a.Close())
	require.True(t, take(b, false))
	c := open()
	require.True(t, take(c, false), "shared")
	require.False(t, take(c, true))
	require.NoError(t, b.Close())
	require.NoError(t, c.Close())
}

func TestFullTransfers(t *testing.T) {
	path, data := writeWords(t, 3*ssd.PageBytes+100)
	block, err := mem.NewBudget(0).Alloc(mem.Staging, 4*ssd.PageBytes)
	require.NoError(t, err)
	defer block.Free()
	for name, c := range map[string]struct {
		fault    faultfs.Fault
		off      int64
		n        int
		want     error
		wantAt   int64
		attempts int
	}{
		"plain":               {faultfs.Fault{}, 8, 100, nil, 0, 1},
		"EINTR":               {faultfs.Fault{Nth: 1, Errno: syscall.EINTR}, 8, 100, nil, 0, 2},
		"short":               {faultfs.Fault{Nth: 1, Short: 33}, 8, 100, nil, 0, 2},
		"aligned, short":      {faultfs.Fault{Nth: 1, Short: 5000}, 0, 2 * ssd.PageBytes, nil, 0, 2},
		"aligned, very short": {faultfs.Fault{Nth: 1, Short: 50}, 0, 2 * ssd.PageBytes, nil, 0, 2},
		"EIO":                 {faultfs.Fault{Nth: 1, Errno: syscall.EIO}, 8, 100, syscall.EIO, 8, 1},
		"EIO after a part": {faultfs.Fault{Nth: 2, Errno: syscall.EIO}, 3 * ssd.PageBytes, 200, syscall.EIO,
			3*ssd.PageBytes + 100, 2},
		"end of the file": {faultfs.Fault{}, 3 * ssd.PageBytes, 101, io.ErrUnexpectedEOF, 3*ssd.PageBytes + 100, 2},
		"beyond the end":  {faultfs.Fault{}, 1 << 40, 1, io.ErrUnexpectedEOF, 1 << 40, 1},
		"EAGAIN for ever": {faultfs.Fault{Nth: 1, Times: faultfs.Forever, Errno: syscall.EAGAIN}, 8, 100, syscall.EAGAIN,
			8, ssd.MaxRetries + 1},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := faultfs.New(ssd.OS)
			if c.fault.Nth > 0 {
				c.fault.Op = faultfs.Read
				fsys.Arm(c.fault)
			}
			f, err := fsys.Open(path, syscall.O_RDONLY, 0)
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			p := block.Bytes()[:c.n]
			clear(p)
			err = ssd.ReadFull(f, p, c.off)
			require.Equal(t, c.attempts, fsys.Calls(faultfs.Read))
			if c.want != nil {
				requireAt(t, err, c.want, path, c.wantAt)
				return
			}
			require.NoError(t, err)
			require.Equal(t, data[c.off:c.off+int64(c.n)], p)
		})
	}
}

// small is a file that may not exceed a size, as under RLIMIT_FSIZE.
type small struct {
	ssd.File
	most int64
}

func (s small) Pwrite(p []byte, off int64) (int, error) {
	if off >= s.most {
		return 0, &ssd.PathError{Op: "write", Path: s.Name(), Off: off, Err: syscall.EFBIG}
	}
	return s.File.Pwrite(p[:min(int64(len(p)), s.most-off)], off)
}

// A file that may not grow past the middle of a page says so, not that a write was short.
func TestFileThatMayNotGrow(t *testing.T) {
	block, err := mem.NewBudget(0).Alloc(mem.Staging, 2*ssd.PageBytes)
	require.NoError(t, err)
	defer block.Free()
	for _, most := range []int64{1, ssd.PageBytes, ssd.PageBytes + 100} {
		path := filepath.Join(t.TempDir(), "f")
		f, err := ssd.OS.Open(path, syscall.O_RDWR|syscall.O_CREAT, 0o600)
		require.NoError(t, err)
		requireAt(t, ssd.WriteFull(small{f, most}, block.Bytes(), 0), syscall.EFBIG, path, most)
		require.NoError(t, f.Close())
	}
}

// A short direct transfer goes on at a page boundary, which is all that O_DIRECT takes.
func TestFullTransfersOnADirectFile(t *testing.T) {
	needDirect(t)
	path, data := writeWords(t, 8*ssd.PageBytes)
	block, err := mem.NewBudget(0).Alloc(mem.Staging, 8*ssd.PageBytes)
	require.NoError(t, err)
	defer block.Free()
	fsys := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: 2, Times: 20, Short: ssd.PageBytes + 10})
	f, err := fsys.Open(path, syscall.O_RDWR|ssd.Direct, 0)
	require.NoError(t, err)
	require.NoError(t, ssd.ReadFull(f, block.Bytes(), 0))
	require.Equal(t, data, block.Bytes())
	require.Equal(t, 8, fsys.Calls(faultfs.Read))
	require.NoError(t, ssd.WriteFull(f, block.Bytes()[:4*ssd.PageBytes], 4*ssd.PageBytes))
	require.Equal(t, 4, fsys.Calls(faultfs.Write))
	require.NoError(t, f.Close())
	requireFile(t, path, append(data[:4*ssd.PageBytes:4*ssd.PageBytes], data[:4*ssd.PageBytes]...))
}

// TestOpenWaitsForNobody: a pipe without another end is an error at once, and what is opened does wait for its data.
func TestOpenWaitsForNobody(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, "/dev/null"} {
		_, err := ssd.OS.Open(path, syscall.O_RDONLY, 0)
		require.ErrorIs(t, err, ssd.ErrNoFile)
		require.ErrorContains(t, err, path)
		info, err := ssd.OS.Stat(path)
		require.NoError(t, err)
		require.False(t, info.IsFile)
		require.False(t, info.IsDir)
	}
	f, err := ssd.OS.Open(file, syscall.O_RDWR|syscall.O_CREAT|syscall.O_APPEND, 0o600)
	require.NoError(t, err)
	flags, err := unix.FcntlInt(uintptr(f.Fd()), unix.F_GETFL, 0)
	require.NoError(t, err)
	require.Zero(t, flags&syscall.O_NONBLOCK)
	require.NotZero(t, flags&syscall.O_APPEND)
	require.NoError(t, f.Close())
}
