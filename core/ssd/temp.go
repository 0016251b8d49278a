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
	// TempPrefix begins the names that temporary files have for the moment of their creation.
	TempPrefix = ".freshgo-scratch-"
	tempDigits = 16
	// tempAttempts bounds the new names tried when a RemoveTemps took a file away before it was locked. Arbitrary: a
	// second is already rare.
	tempAttempts = 10
)

// errTaken means that the name belongs to another process, or that the file was removed as a leftover.
var errTaken = errors.New("ssd: temporary file taken away")

// Temp is a file without a name: written at any place, read through an engine, and gone with the process however that
// ends. With an engine that reads directly it is written directly too, where its file system takes that; else through
// the page cache with at most about dirtyBytes of it dirty. Its methods but Close are safe for concurrent use; Grow is
// called by one goroutine at a time.
type Temp struct {
	file   File
	handle *Handle
	direct bool
	dirty  atomic.Int64 // bytes written through the page cache since the last Sync; every writer adds
}

// CreateTemp makes an empty file in dir and unlinks it at once. It is locked while it has a name, so that RemoveTemps
// tells it from a leftover. A page is written and read for a trial, in a page of Staging from the budget: a file system
// may take O_DIRECT at open and refuse it later.
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
	_, _ = rand.Read(random[:]) // ends the process rather than fail
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
	defer named.Close() // drops the lock, which nobody needs once the file has no name
	t := &Temp{}
	defer func() {
		if err != nil {
			_ = e.fs.Remove(path) // is gone, or is left to RemoveTemps
			_ = t.Close()         // nothing in it is needed
		}
	}()
	// Where a file system knows no locks, RemoveTemps takes none either and leaves all files alone.
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

// open opens the file for writing and for the engine: both directly, or both through the page cache, so that neither
// sees what the other has replaced.
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
			_ = t.Close() // the first error counts
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

// Handle returns the file as the engine reads it. It is closed with the Temp.
func (t *Temp) Handle() *Handle { return t.handle }

// Direct reports whether writes bypass the page cache.
func (t *Temp) Direct() bool { return t.direct }

// Grow takes space for the file up to size, a multiple of PageBytes, so that a full disk shows here. It does not
// shrink. First writes of 64 KiB are twice as fast into space taken ahead as into a hole; a file system that cannot
// take it leaves a hole.
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

// Close gives the file and its space back, after the Reads of its handle.
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

// RemoveTemps removes the files that processes left in dir which were killed in the middle of CreateTemp. What cannot
// be removed stays, and is no error: it harms nobody.
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

// removeLeftover removes a file that nobody has locked. To be writable it must be a file and no directory.
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
