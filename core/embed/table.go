// Package embed keeps a table of rows that training changes on disk: embeddings with the state of their optimiser.
//
// A Table is a directory with a file of rows in checksummed pages. Its file is changed in place. Before a page is
// changed for the first time since the last save, its old content goes to an undo journal, which is durable before the
// page is written. So Save is a sync and one rename; a table that is opened after a kill is in the state saved last,
// to the bit; and the state before that one can be restored until the next Save.
//
// A Table is written in the order of its rows: Put takes records that ascend. Returned collects records that go back
// in any order, and merges them into the file in one pass. Package window gives a Returned what its plans evict and
// no later batch needs.
//
// A copy of every page and its checksums costs 0.1 % of the file in memory. A journal is at most as large as the file,
// and there are at most two.
package embed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"

	"freshgo/core/internal/bitset"
	"freshgo/core/internal/crc"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// Errors of this package wrap one of these, or an error of packages store or ssd.
var (
	ErrInvalid = errors.New("invalid argument")
	ErrBusy    = errors.New("the table is open already, in this process or another")
	ErrInUse   = errors.New("a loader trains the table")
	ErrToken   = errors.New("no saved state has this token")
	// ErrLost is wrapped by every call after rows were lost that were in no file yet. Restore undoes the changes.
	ErrLost   = errors.New("rows of the table were lost since its last save: restore the saved state")
	ErrClosed = errors.New("the table is closed")
)

const (
	// TrailerBytes follow the payload of a row in its record: the number of the row, and a mark where the row has
	// changed since it was read from the file.
	TrailerBytes = 8

	changedMark = 1

	rowsName  = "rows"
	lockName  = "lock"
	stateName = "state.json"

	// maxRowBytes bounds the payload of a row, so that one request has room for its pages. Embeddings of 43,000 float32
	// with Adam's state fit.
	maxRowBytes = 1 << 19
)

// Options describe a new table.
type Options struct {
	Rows        int64
	RowBytes    int    // payload bytes of a row, a multiple of 4
	Description string // kept for the caller
}

// Table is an open table. Its methods are safe for concurrent use.
type Table struct {
	folder folder
	lock   ssd.File
	file   ssd.File
	layout ssd.Layout // of records
	memory *mem.Budget

	traffic traffic

	mu      sync.RWMutex // written under Lock: pages of the file, and everything below
	block   *mem.Block   // owns sums
	sums    []uint32     // checksum of each page
	state   state        // saved last; zero before the first save
	journal journal      // of changes since then
	changed bool         // since the last save
	users   int          // loaders
	lost    error        // why rows were lost; nil: none were
	closed  bool
}

// Create makes a table whose rows are zero. It is unsaved: it does not outlive the process before Save. Remains of a
// creation that was never saved are replaced.
func Create(fs ssd.FS, path string, o Options) (*Table, error) {
	if o.Rows < 1 || o.RowBytes < 4 || o.RowBytes%4 != 0 || o.RowBytes > maxRowBytes {
		return nil, fmt.Errorf("embed: %d rows of %d bytes, expected at least one row, and bytes that are a multiple of 4 "+
			"up to %d: %w", o.Rows, o.RowBytes, maxRowBytes, ErrInvalid)
	}
	err := fs.Mkdir(path, 0o755)
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return nil, err
	}
	if err := fs.SyncDir(filepath.Dir(path)); err != nil { // Save syncs what is in path
		return nil, err
	}
	t, err := locked(fs, path)
	if err != nil {
		return nil, err
	}
	if err := t.create(o); err != nil {
		_ = t.Close() // nothing was written that counts
		return nil, err
	}
	return t, nil
}

func (t *Table) create(o Options) error {
	names, err := t.folder.fs.ReadDir(t.folder.path)
	if err != nil {
		return err
	}
	if err := t.folder.orphaned(names); err != nil {
		return err
	}
	for _, name := range names {
		if name == stateName {
			return fmt.Errorf("embed: %s: %w", t.folder.path, store.ErrExists)
		}
		if !ours(name) {
			return fmt.Errorf("embed: %s has %q, which is no part of a table: %w", t.folder.path, name, store.ErrExists)
		}
	}
	t.folder.sweep(&t.state)
	t.state = state{Rows: o.Rows, RowBytes: o.RowBytes, Description: o.Description}
	bytes := store.LayoutFor(o.RowBytes+TrailerBytes, o.Rows).FileBytes()
	if err := store.CheckSpace(t.folder.fs, t.folder.path, bytes); err != nil {
		return err
	}
	if err := t.openRows(syscall.O_CREAT | syscall.O_TRUNC); err != nil {
		return err
	}
	if err := t.file.Truncate(t.layout.FileBytes()); err != nil {
		return err
	}
	zero := pageSum(make([]byte, ssd.PageBytes))
	for i := range t.sums {
		t.sums[i] = zero
	}
	t.changed = true
	return nil
}

// Open opens the state saved last. Changes after it, by a process that ended without Save, are undone.
func Open(fs ssd.FS, path string) (*Table, error) {
	if _, err := fs.Stat(filepath.Join(path, stateName)); err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
			if names, err := fs.ReadDir(path); err == nil {
				if err := (folder{fs, path}).orphaned(names); err != nil {
					return nil, err
				}
			}
			return nil, fmt.Errorf("embed: %s is no table that was saved: %w", path, store.ErrNotFound)
		}
		return nil, err
	}
	t, err := locked(fs, path)
	if err != nil {
		return nil, err
	}
	if err := t.folder.missing(t.load()); err != nil {
		_ = t.Close() // nothing was written
		return nil, err
	}
	return t, nil
}

// load loads the saved state into the table.
func (t *Table) load() (err error) {
	if t.state, err = t.folder.readState(stateName); err != nil {
		return err
	}
	if err := t.openRows(0); err != nil {
		return err
	}
	if size, err := t.file.Size(); err != nil || size != t.layout.FileBytes() {
		if err == nil {
			err = &store.CorruptError{Path: t.file.Name(), Reason: fmt.Sprintf("the file has %d bytes, expected %d", size,
				t.layout.FileBytes())}
		}
		return err
	}
	if err := t.folder.loadSums(&t.state, t.sums); err != nil {
		return err
	}
	if err := t.undo(&t.state, t.sums, false); err != nil {
		return err
	}
	t.folder.sweep(&t.state)
	return nil
}

// locked takes the lock of the table at path, which the system drops with the process.
func locked(fs ssd.FS, path string) (*Table, error) {
	t := &Table{folder: folder{fs, path}, memory: mem.NewBudget(0)}
	t.journal.folder = t.folder
	var err error
	t.lock, err = fs.Open(t.folder.name(lockName), syscall.O_RDWR|syscall.O_CREAT|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	taken, err := t.lock.Lock(true)
	if err == nil && !taken {
		err = fmt.Errorf("embed: %s: %w", path, ErrBusy)
	}
	if err != nil {
		_ = t.lock.Close() // nothing was written
		return nil, err
	}
	return t, nil
}

// openRows opens the file of rows, and allocates the checksums of its pages.
func (t *Table) openRows(flags int) error {
	t.layout = store.LayoutFor(t.state.RowBytes+TrailerBytes, t.state.Rows)
	block, err := t.memory.Alloc(mem.Staging, t.pages()*4)
	if err != nil {
		return err
	}
	t.block, t.sums = block, mem.Slice[uint32](block)
	t.journal.pages = bitset.New(t.pages())
	t.file, err = ssd.OpenDirect(t.folder.fs, t.folder.name(rowsName), syscall.O_RDWR|syscall.O_NOFOLLOW|flags, 0o644)
	return err
}

func (t *Table) pages() int64 { return t.layout.FileBytes() / ssd.PageBytes }

// Path returns the directory of the table.
func (t *Table) Path() string { return t.folder.path }

// Bytes returns the memory of the table while it is open.
func (t *Table) Bytes() int64 { return t.pages()*4 + bitset.Bytes(t.pages()) }

// RowsPath returns the path of the file of rows.
func (t *Table) RowsPath() string { return t.folder.name(rowsName) }

// Layout returns the layout of the records.
func (t *Table) Layout() ssd.Layout { return t.layout }

// Sums returns the checksums of the pages. The reader of a page holds RLock.
func (t *Table) Sums() []uint32 { return t.sums }

// RLock keeps the pages as they are until RUnlock.
func (t *Table) RLock() { t.mu.RLock() }

// RUnlock ends RLock.
func (t *Table) RUnlock() { t.mu.RUnlock() }

// Description says what a table holds, and in which state it is.
type Description struct {
	Path         string `json:"path"`
	Rows         int64  `json:"num_rows"`
	RowBytes     int    `json:"row_bytes"`
	Token        string `json:"token"`    // of the state saved last; empty: none was
	Previous     string `json:"previous"` // of the state before, which Restore takes; empty: there is none
	Changed      bool   `json:"changed"`  // since the last save
	Description  string `json:"description"`
	Bytes        int64  `json:"bytes"`         // of the rows on disk
	JournalBytes int64  `json:"journal_bytes"` // of the undo journals beside them
}

// Describe describes the table.
func (t *Table) Describe() Description {
	t.mu.RLock()
	defer t.mu.RUnlock()
	d := Description{
		Path: t.folder.path, Rows: t.state.Rows, RowBytes: t.state.RowBytes, Token: t.state.Token, Previous: t.state.Previous,
		Changed: t.changed, Description: t.state.Description, Bytes: t.layout.FileBytes(),
	}
	d.JournalBytes = t.journal.bytes
	if info, err := t.folder.fs.Stat(t.folder.name(journalName(t.state.Previous))); t.state.Previous != "" && err == nil {
		d.JournalBytes += info.Size
	}
	return d
}

// Use reserves the table for a loader, until the result is called.
func (t *Table) Use() (release func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	if t.users > 0 {
		return nil, fmt.Errorf("embed: %s: %w", t.folder.path, ErrInUse)
	}
	t.users++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.users--
	}), nil
}

// usable returns an error if the table is closed or has lost rows. The caller holds mu.
func (t *Table) usable() error {
	switch {
	case t.closed:
		return fmt.Errorf("embed: %s: %w", t.folder.path, ErrClosed)
	case t.lost != nil:
		return fmt.Errorf("embed: %s: %w: %w", t.folder.path, ErrLost, t.lost)
	}
	return nil
}

// Lose records that rows were lost which were in no file yet.
func (t *Table) Lose(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.lost = err
	}
}

// Err returns why the table cannot be used, or nil.
func (t *Table) Err() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.usable()
}

// Close closes the table. Changes since the last save are undone when it is opened again. Idempotent.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	if t.users > 0 {
		return fmt.Errorf("embed: %s: %w", t.folder.path, ErrInUse)
	}
	t.closed = true
	t.journal.end()
	var err error
	for _, file := range []ssd.File{t.file, t.lock} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if t.block != nil {
		t.block.Free()
	}
	return err
}

// Row returns the number of a record's row.
func Row(record []byte) uint32 {
	return binary.LittleEndian.Uint32(record[len(record)-TrailerBytes:])
}

// Changed reports whether a record has changed since it was read from the file.
func Changed(record []byte) bool {
	return binary.LittleEndian.Uint32(record[len(record)-TrailerBytes+4:]) == changedMark
}

// Mark makes a record the changed one of a row.
func Mark(record []byte, row uint32) { setTrailer(record, row, changedMark) }

// Unmark records that the file has the record of a row.
func Unmark(record []byte, row uint32) { setTrailer(record, row, 0) }

func setTrailer(record []byte, row, mark uint32) {
	trailer := record[len(record)-TrailerBytes:]
	binary.LittleEndian.PutUint32(trailer, row)
	binary.LittleEndian.PutUint32(trailer[4:], mark)
}

// seal replaces the mark of a record by a checksum, for a file of changed records.
func seal(record []byte) {
	end := len(record) - TrailerBytes/2
	binary.LittleEndian.PutUint32(record[end:], crc.Checksum(record[:end]))
}

// unseal marks a sealed record as changed, unless its checksum is wrong.
func unseal(record []byte) (ok bool) {
	end := len(record) - TrailerBytes/2
	if binary.LittleEndian.Uint32(record[end:]) != crc.Checksum(record[:end]) {
		return false
	}
	setTrailer(record, Row(record), changedMark)
	return true
}
