package ssd

import (
	"errors"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system. It has no state.
var OS osFS

type osFS struct{}

var _ FS = OS

func (osFS) Open(path string, flag int, perm uint32) (File, error) {
	f := &osFile{path: path}
	err := retryInterrupted(func() (err error) {
		// Nonblocking, as opening a pipe waits until a process opens its other end.
		f.fd, err = openFile(path, flag|unix.O_CLOEXEC|unix.O_NONBLOCK, perm)
		return err
	})
	if err == unix.ENXIO || err == unix.ELOOP && flag&unix.O_NOFOLLOW != 0 { // a socket, or a pipe without a reader
		return nil, &PathError{Op: "open", Path: path, Off: -1, Err: ErrNoFile}
	}
	if err != nil {
		return nil, pathError("open", path, err)
	}
	if err := f.settle(flag); err != nil {
		_ = f.Close() // nothing was read or written
		return nil, err
	}
	return f, nil
}

// settle returns an error unless the file is a regular file or a directory, and clears O_NONBLOCK, with which an
// io_uring would not wait.
func (f *osFile) settle(flag int) error {
	var st unix.Stat_t
	if err := retryInterrupted(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return pathError("stat", f.path, err)
	}
	if info := infoOf(&st); !info.IsDir && !info.IsFile {
		return &PathError{Op: "open", Path: f.path, Off: -1, Err: ErrNoFile}
	}
	if flag&unix.O_NONBLOCK != 0 {
		return nil
	}
	_, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETFL, flag)
	return pathError("open", f.path, err)
}

func (osFS) Rename(from, to string) error {
	return pathError("rename", from, retryInterrupted(func() error { return unix.Rename(from, to) }))
}

func (osFS) Exchange(one, other string) error {
	return pathError("rename", one, retryInterrupted(func() error { return exchange(one, other) }))
}

func (osFS) Share(from, to string) error {
	if clone(from, to) == nil {
		return nil
	}
	return pathError("share", to, retryInterrupted(func() error { return unix.Link(from, to) }))
}

func (osFS) Remove(path string) error    { return pathError("remove", path, os.Remove(path)) }
func (osFS) RemoveAll(path string) error { return pathError("remove", path, os.RemoveAll(path)) }

func (osFS) Mkdir(path string, perm uint32) error {
	return pathError("mkdir", path, retryInterrupted(func() error { return unix.Mkdir(path, perm) }))
}

func (osFS) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, pathError("readdir", path, err)
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

func (osFS) Stat(path string) (Info, error) { return stat(unix.Stat, path) }

func (osFS) Lstat(path string) (Info, error) { return stat(unix.Lstat, path) }

func stat(call func(string, *unix.Stat_t) error, path string) (Info, error) {
	var st unix.Stat_t
	if err := retryInterrupted(func() error { return call(path, &st) }); err != nil {
		return Info{}, pathError("stat", path, err)
	}
	return infoOf(&st), nil
}

func (osFS) Space(path string) (int64, error) {
	var st unix.Statfs_t
	if err := retryInterrupted(func() error { return unix.Statfs(path, &st) }); err != nil {
		return 0, pathError("statfs", path, err)
	}
	blocks := st.Bavail
	if unix.Geteuid() == 0 {
		blocks = st.Bfree // without the blocks reserved for root
	}
	if st.Blocks == 0 || st.Bsize <= 0 || blocks > math.MaxInt64/uint64(st.Bsize) {
		return math.MaxInt64, nil
	}
	return int64(blocks) * int64(st.Bsize), nil
}

func infoOf(st *unix.Stat_t) Info {
	kind := st.Mode & unix.S_IFMT
	return Info{Size: st.Size, IsDir: kind == unix.S_IFDIR, IsFile: kind == unix.S_IFREG, Device: uint64(st.Dev)}
}

func (o osFS) SyncDir(path string) error {
	dir, err := o.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// pathError wraps err, reduced to its errno so that no message has the path twice.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return &PathError{Op: op, Path: path, Off: -1, Err: err}
}

type osFile struct {
	fd   int
	path string
}

func (f *osFile) Pread(p []byte, off int64) (int, error) {
	n, err := unix.Pread(f.fd, p, off)
	if err != nil {
		return 0, &PathError{Op: "read", Path: f.path, Off: off, Err: err}
	}
	return n, nil
}

func (f *osFile) Pwrite(p []byte, off int64) (int, error) {
	n, err := unix.Pwrite(f.fd, p, off)
	if err != nil {
		return 0, &PathError{Op: "write", Path: f.path, Off: off, Err: err}
	}
	return n, nil
}

func (f *osFile) Sync() error {
	return pathError("sync", f.path, retryInterrupted(func() error { return unix.Fsync(f.fd) }))
}

func (f *osFile) Truncate(size int64) error {
	return pathError("truncate", f.path, retryInterrupted(func() error { return unix.Ftruncate(f.fd, size) }))
}

func (f *osFile) Allocate(off, n int64) error {
	err := retryInterrupted(func() error { return allocate(f.fd, off, n) })
	if err != nil {
		return &PathError{Op: "allocate", Path: f.path, Off: off, Err: err}
	}
	return nil
}

func (f *osFile) Size() (int64, error) {
	var st unix.Stat_t
	if err := retryInterrupted(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return 0, pathError("stat", f.path, err)
	}
	return st.Size, nil
}

func (f *osFile) Lock(exclusive bool) (bool, error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err := retryInterrupted(func() error { return unix.Flock(f.fd, how|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, pathError("lock", f.path, err)
}

func (f *osFile) Fd() int      { return f.fd }
func (f *osFile) Name() string { return f.path }

// Close does not retry: on Linux the descriptor is closed even if close returns EINTR.
func (f *osFile) Close() error { return pathError("close", f.path, unix.Close(f.fd)) }

func retryInterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
