package ssd

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"unsafe"
)

// PageBytes is the unit of direct I/O: offsets, lengths and addresses are multiples of it. Every device and file system
// in use accepts 4 KiB; where one does not, the probe in NewEngine finds out and buffered reads are used.
const PageBytes = 4096

// maxRetries bounds consecutive attempts that moved no byte (EINTR, EAGAIN, a short read within the first page).
// Arbitrary: one or two occur in practice, and a device that answers so for ever must become an error and not a hang.
const maxRetries = 100

// FS is the door to the file system, at the level of system calls. Every package of core does its file work through it,
// so that package faultfs can fail any call. OS is the real one. Errors are *PathError. Implementations are safe for
// concurrent use.
type FS interface {
	// Open opens path, a file or a directory, with the flags of open(2); O_CLOEXEC is added. Anything else, such as a
	// pipe, which nobody may ever write to, is ErrNoFile; so is a symbolic link where flag has O_NOFOLLOW.
	Open(path string, flag int, perm uint32) (File, error)
	Rename(from, to string) error
	// Exchange gives each of two paths what the other had, in one step. Not every file system can: it is then EINVAL,
	// ENOSYS or EOPNOTSUPP.
	Exchange(one, other string) error
	// Share makes a file that does not exist one with the contents of another, without a copy: a clone that shares its
	// blocks (FICLONE), or a second name of it (link). A file system that has neither refuses with EXDEV, EPERM,
	// EOPNOTSUPP, EMLINK or ENOSYS.
	Share(from, to string) error
	// Remove unlinks a file or removes an empty directory.
	Remove(path string) error
	// RemoveAll removes path with everything below it. A path that does not exist is no error.
	RemoveAll(path string) error
	Mkdir(path string, perm uint32) error
	// ReadDir returns the names in a directory, sorted.
	ReadDir(path string) ([]string, error)
	Stat(path string) (Info, error)
	// Lstat is Stat of a symbolic link itself, which is neither a file nor a directory.
	Lstat(path string) (Info, error)
	// Space returns the bytes that may still be written to the file system that holds path, or the largest int64 where
	// it does not say.
	Space(path string) (int64, error)
	// SyncDir makes the creations, renames and removals in a directory durable.
	SyncDir(path string) error
}

// Info is the result of Stat.
type Info struct {
	Size   int64
	IsDir  bool
	IsFile bool   // neither is true of pipes, sockets, devices and, for Lstat, links
	Device uint64 // the number of the device that holds it
}

// File is an open file. Pread and Pwrite are single system calls: they may transfer less than was asked and may fail
// with EINTR or EAGAIN; ReadFull and WriteFull loop. All methods are safe for concurrent use, but for Close, which must
// be the last.
type File interface {
	// Pread returns 0 and no error at the end of the file.
	Pread(p []byte, off int64) (int, error)
	Pwrite(p []byte, off int64) (int, error)
	// Sync makes data and size durable (fsync).
	Sync() error
	Truncate(size int64) error
	// Allocate takes space on the disk for n bytes from off on, and makes the file at least that long (fallocate). Not
	// every file system can.
	Allocate(off, n int64) error
	Size() (int64, error)
	// Lock takes an advisory lock on the whole file (flock) without waiting. It returns false when somebody else holds
	// it. Close releases it.
	Lock(exclusive bool) (bool, error)
	// Fd returns the descriptor, valid until Close.
	Fd() int
	// Name returns the path given to Open.
	Name() string
	Close() error
}

// CompletionFilter is implemented by a File that has a say in reads which the kernel performs by descriptor, past
// Pread: the io_uring engine passes it the result of each (bytes read, or a negated errno) and goes on with what it
// returns. It is how faultfs reaches a ring.
type CompletionFilter interface {
	FilterCompletion(off int64, length int, result int32) int32
}

// ErrClosed is returned by an Engine, a Handle or a Writer that has been closed.
var ErrClosed = errors.New("ssd: closed")

// ErrNoFile means that a path to read or write is a pipe, a socket, a device, or a link where none is followed.
var ErrNoFile = errors.New("neither a file nor a directory")

// PathError is a failed operation on a file. Its message names the file and, where there is one, the offset.
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

// ReadFull reads exactly len(p) bytes at off. A file that ends earlier is io.ErrUnexpectedEOF, in a *PathError like all
// failures.
func ReadFull(f File, p []byte, off int64) error {
	return transferAll("read", f.Pread, f.Name(), p, off, io.ErrUnexpectedEOF)
}

// WriteFull writes all of p at off.
func WriteFull(f File, p []byte, off int64) error {
	return transferAll("write", f.Pwrite, f.Name(), p, off, io.ErrShortWrite)
}

// Reserve takes space on the disk for n bytes of f from off on, and makes the file at least that long. It reports
// whether it did: some file systems cannot, and are then left as they are, rather than filled with zeros.
func Reserve(f File, off, n int64) (bool, error) {
	err := f.Allocate(off, n)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return false, nil
	}
	return err == nil, err
}

// transferAll repeats call until all of p is through. A transfer that is page-aligned as a whole goes on from page
// boundaries, because on a file opened with O_DIRECT the rest of a short one would be refused.
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
			if n > 0 { // within a page, again and again: the rest says why, unless it may not begin there
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
	base := uintptr(unsafe.Pointer(unsafe.SliceData(p))) // only its value is looked at
	return (uint64(off)|uint64(len(p))|uint64(base))%PageBytes == 0
}
