package ssd

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"unsafe"
)

// PageBytes is the unit of direct I/O: offsets, lengths and addresses are multiples of it. Devices and file systems in
// use accept 4 KiB; otherwise the probe of NewEngine fails and reads are buffered.
const PageBytes = 4096

// maxRetries bounds consecutive attempts that moved no byte (EINTR, EAGAIN, a short read within the first page).
// Arbitrary: one or two occur in practice, and a device that always answers so must cause an error instead of a hang.
const maxRetries = 100

// FS is the interface to the file system, at the level of system calls. Every package of core does its file work
// through it, so that package faultfs can make any call fail. OS is the real one. Errors are *PathError.
// Implementations are safe for concurrent use.
type FS interface {
	// Open opens path, a file or a directory, with the flags of open(2) and O_CLOEXEC. Anything else is ErrNoFile, such as
	// a pipe, whose reader might wait for ever, or a symbolic link if flag has O_NOFOLLOW.
	Open(path string, flag int, perm uint32) (File, error)
	Rename(from, to string) error
	// Exchange exchanges two paths atomically. It returns EINVAL, ENOSYS or EOPNOTSUPP where the file system cannot.
	Exchange(one, other string) error
	// Share makes a new file with the content of another, without a copy: a clone that shares its blocks (FICLONE), or a
	// second name of it (link). Without support for either it returns EXDEV, EPERM, EOPNOTSUPP, EMLINK or ENOSYS.
	Share(from, to string) error
	// Remove unlinks a file or removes an empty directory.
	Remove(path string) error
	// RemoveAll removes path and everything below it. A missing path is no error.
	RemoveAll(path string) error
	Mkdir(path string, perm uint32) error
	// ReadDir returns the names in a directory, sorted.
	ReadDir(path string) ([]string, error)
	Stat(path string) (Info, error)
	// Lstat is Stat without following a symbolic link, which is neither a file nor a directory.
	Lstat(path string) (Info, error)
	// Space returns the bytes that can still be written to the file system of path, or the largest int64 if it does not
	// say.
	Space(path string) (int64, error)
	// SyncDir makes the creations, renames and removals in a directory durable.
	SyncDir(path string) error
}

// Info is the result of Stat.
type Info struct {
	Size   int64
	IsDir  bool
	IsFile bool   // both are false for pipes, sockets, devices and, with Lstat, links
	Device uint64 // number of the device with the file
}

// File is an open file. Pread and Pwrite are single system calls: they may transfer less than requested and may fail
// with EINTR or EAGAIN; ReadFull and WriteFull loop. All methods are safe for concurrent use except Close, which must
// be the last call.
type File interface {
	// Pread returns 0 and no error at the end of the file.
	Pread(p []byte, off int64) (int, error)
	Pwrite(p []byte, off int64) (int, error)
	// Sync makes data and size durable (fsync).
	Sync() error
	Truncate(size int64) error
	// Allocate allocates disk space for n bytes from off on, and extends the file to at least that length (fallocate).
	// Some file systems cannot.
	Allocate(off, n int64) error
	Size() (int64, error)
	// Lock takes an advisory lock on the whole file (flock) without waiting. It returns false if another process holds it.
	// Close releases it.
	Lock(exclusive bool) (bool, error)
	// Fd returns the descriptor, valid until Close.
	Fd() int
	// Name returns the path given to Open.
	Name() string
	Close() error
}

// CompletionFilter is implemented by a File that intercepts reads which the kernel performs by descriptor, without
// Pread: the io_uring engine passes it each result (bytes read, or a negated errno) and continues with its return
// value. By it faultfs injects faults into a ring.
type CompletionFilter interface {
	FilterCompletion(off int64, length int, result int32) int32
}

// ErrClosed is returned by a closed Engine, Handle or Writer.
var ErrClosed = errors.New("ssd: closed")

// ErrNoFile means that a path to read or write is a pipe, a socket, a device, or a link that must not be followed.
var ErrNoFile = errors.New("neither a file nor a directory")

// PathError is a failed operation on a file. Its message has the path and the offset, if there is one.
type PathError struct {
	Op   string
	Path string
	Off  int64 // -1: the operation has no offset
	Err  error // a syscall.Errno, io.ErrUnexpectedEOF, io.ErrShortWrite or ErrNoFile
}

// Error names the call, the path and the cause.
func (e *PathError) Error() string {
	if e.Off < 0 {
		return fmt.Sprintf("ssd: %s %s: %v", e.Op, e.Path, e.Err)
	}
	return fmt.Sprintf("ssd: %s %s at offset %d: %v", e.Op, e.Path, e.Off, e.Err)
}

// Unwrap returns the errno, so that errors.Is works with syscall.ENOSPC as with fs.ErrNotExist.
func (e *PathError) Unwrap() error { return e.Err }

// transient reports whether a failed call is worth another try.
func transient(err error) bool {
	return errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN)
}

// OpenDirect opens a file with O_DIRECT, or without where the file system cannot do that.
func OpenDirect(fs FS, path string, flag int, perm uint32) (File, error) {
	file, err := fs.Open(path, flag|Direct, perm)
	if errors.Is(err, syscall.EINVAL) {
		return fs.Open(path, flag, perm)
	}
	return file, err
}

// ReadFull reads exactly len(p) bytes at off. A file that ends before is io.ErrUnexpectedEOF, in a *PathError like all
// failures.
func ReadFull(f File, p []byte, off int64) error {
	return transferAll("read", f.Pread, f.Name(), p, off, io.ErrUnexpectedEOF)
}

// WriteFull writes all of p at off.
func WriteFull(f File, p []byte, off int64) error {
	return transferAll("write", f.Pwrite, f.Name(), p, off, io.ErrShortWrite)
}

// Reserve allocates disk space for n bytes of f from off on, and extends the file to at least that length. It reports
// whether it did: where the file system cannot, the file stays as it is and is not filled with zeros.
func Reserve(f File, off, n int64) (bool, error) {
	err := f.Allocate(off, n)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return false, nil
	}
	return err == nil, err
}

// transferAll repeats call until all of p is transferred. A page-aligned transfer continues at page boundaries, because
// a file opened with O_DIRECT refuses the unaligned rest of a short one.
func transferAll(op string, call func([]byte, int64) (int, error), path string, p []byte, off int64,
	atEnd error) error {
	step := 1
	if isAligned(p, off) {
		step = PageBytes
	}
	fruitless := 0
	for len(p) > 0 {
		n, err := call(p, off)
		if err != nil && !transient(err) {
			return err
		}
		if n == len(p) {
			return nil
		}
		if err == nil && (n == 0 || fruitless == maxRetries) {
			if n > 0 { // repeatedly within a page: transferring the rest tells why, unless it cannot start there
				if _, err := call(p[n:], off+int64(n)); err != nil && !errors.Is(err, syscall.EINVAL) {
					return err
				}
			}
			return &PathError{Op: op, Path: path, Off: off + int64(n), Err: atEnd}
		}
		if fruitless == maxRetries {
			return err
		}
		if n -= n % step; n == 0 {
			fruitless++
			continue
		}
		fruitless = 0
		p, off = p[n:], off+int64(n)
	}
	return nil
}

func isAligned(p []byte, off int64) bool {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(p))) // only the value is used
	return (uint64(off)|uint64(len(p))|uint64(base))%PageBytes == 0
}
