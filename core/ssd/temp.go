package ssd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"freshgo/core/mem"
)

const (
	// TempPrefix begins the names of temporary files during their creation.
	TempPrefix = ".freshgo-scratch-"
	tempDigits = 16
	// tempAttempts bounds the names tried if RemoveTemps removes a file before it is locked. Arbitrary: a second attempt
	// is already rare.
	tempAttempts = 10
)

// errTaken means that the name belongs to another process, or that the file was removed as a leftover.
var errTaken = errors.New("ssd: temporary file taken away")

// Temp is a file without a name: written at any position, read through an engine, and freed when the process ends in
// any way. With an engine that reads directly, writes are direct too if the file system allows it; otherwise they go
// through the page cache, with at most about dirtyBytes of it dirty. Its methods except Close are safe for concurrent
// use; Grow is called by one goroutine at a time.
type Temp struct {
	file   File
	handle *Handle
	direct bool
	dirty  atomic.Int64 // bytes written through the page cache since the last Sync, by all writers
}

// CreateTemp makes an empty file in dir and unlinks it at once. While it has a name it is locked, so that RemoveTemps
// does not take it for a leftover. A page is written and read as a trial, in a page of Staging from the budget, because
// some file systems accept O_DIRECT at open and refuse it later.
func (e *Engine) CreateTemp(dir string, budget *mem.Budget) (*Temp, error) {
	page, err := budget.Alloc(mem.Staging, PageBytes)
	if err != nil {
		return nil, err
	}
	defer page.Free()
	for attempt := 1; ; attempt++ {
		t, err := e.createTemp(filepath.Join(dir, tempName()), page.Bytes())
		if !errors.Is(err, errTaken) || attempt == tempAttempts {
			return t, err
		}
	}
}

func tempName() string {
	var random [tempDigits / 2]byte
	_, _ = rand.Read(random[:]) // cannot fail
	return TempPrefix + hex.EncodeToString(random[:])
}

func (e *Engine) createTemp(path string, page []byte) (_ *Temp, err error) {
	named, err := e.fs.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL, 0o600)
	if errors.Is(err, syscall.EEXIST) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	defer named.Close() // releases the lock, which the file without a name does not need
	t := &Temp{}
	defer func() {
		if err != nil {
			_ = e.fs.Remove(path) // already gone, or left to RemoveTemps
			_ = t.Close()         // its content is not needed
		}
	}()
	// On file systems without locks, RemoveTemps cannot lock either and removes nothing.
	if held, err := named.Lock(true); err == nil && !held {
		return nil, errTaken
	}
	if err := t.open(e, path, page); err != nil {
		return nil, err
	}
	if err := e.fs.Remove(path); err != nil {
		return nil, err
	}
	return t, nil
}

// open opens the file for writing and for the engine: both directly, or both through the page cache, so that each sees
// the other's writes.
func (t *Temp) open(e *Engine, path string, page []byte) error {
	err := error(syscall.EINVAL)
	if t.direct = e.flags&Direct != 0; t.direct {
		err = t.openBoth(e, path, Direct, page)
	}
	if errors.Is(err, syscall.EINVAL) {
		t.direct = false
		err = t.openBoth(e, path, 0, page)
	}
	if errors.Is(err, syscall.ENOENT) {
		return errTaken // removed between creation and lock
	}
	return err
}

func (t *Temp) openBoth(e *Engine, path string, flag int, page []byte) (err error) {
	defer func() {
		if err != nil {
			_ = t.Close() // the first error is returned
			t.file, t.handle = nil, nil
		}
	}()
	if t.file, err = e.fs.Open(path, syscall.O_RDWR|flag, 0); err != nil {
		return err
	}
	if err = WriteFull(t.file, page, 0); err != nil {
		return err
	}
	if t.handle, err = e.open(path, syscall.O_RDONLY|flag); err != nil {
		return err
	}
	return e.tryRead(t.handle)
}

// Handle returns the file for reads by the engine. It is closed with the Temp.
func (t *Temp) Handle() *Handle { return t.handle }

// Grow allocates space for the file up to size, a multiple of PageBytes, so that a full disk fails here. It does not
// shrink. First writes of 64 KiB are twice as fast into allocated space as into a hole; file systems without allocation
// leave a hole.
func (t *Temp) Grow(size int64) error {
	old := t.handle.Size()
	if size <= old {
		return nil
	}
	reserved, err := Reserve(t.file, old, size-old)
	if err == nil && !reserved {
		err = t.file.Truncate(size)
	}
	if err != nil {
		return err
	}
	t.handle.size.Store(size)
	return nil
}

// Write writes whole pages of page-aligned memory within the file.
func (t *Temp) Write(p []byte, off int64) error {
	if err := WriteFull(t.file, p, off); err != nil || t.direct {
		return err
	}
	if t.dirty.Add(int64(len(p))) < dirtyBytes {
		return nil
	}
	t.dirty.Store(0)
	return t.file.Sync()
}

// Close waits for the Reads of its handle and frees the file and its space.
func (t *Temp) Close() error {
	var err error
	if t.handle != nil {
		err = t.handle.Close()
	}
	if t.file != nil {
		err = errors.Join(err, t.file.Close())
	}
	return err
}

// RemoveTemps removes the files in dir whose processes were killed during CreateTemp. It skips files that it cannot
// remove, which do no harm.
func RemoveTemps(fs FS, dir string) {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		if isTempName(name) {
			removeLeftover(fs, filepath.Join(dir, name))
		}
	}
}

// removeLeftover removes a file that is not locked, unless it is a directory.
func removeLeftover(fs FS, path string) {
	file, err := fs.Open(path, syscall.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	if free, err := file.Lock(true); err == nil && free {
		_ = fs.Remove(path)
	}
	_ = file.Close() // nothing was written
}

func isTempName(name string) bool {
	digits, found := strings.CutPrefix(name, TempPrefix)
	_, err := hex.DecodeString(digits)
	return found && err == nil && len(digits) == tempDigits
}
