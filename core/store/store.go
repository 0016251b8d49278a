// Package store is the on-disk dataset: conversion from a user's arrays, opening, verification, and readers of topology
// and tensors.
//
// A store is a directory of plain little-endian arrays and a manifest (docs/format.md). It is published by a rename
// once it is complete and durable, and never changes afterwards: a reader sees a whole store or none. Open trusts
// nothing that it reads: sizes, names, counts and types are checked before use, every id loaded from a file is checked
// against its range, and every page against its CRC32C.
//
// The loader opens and reads stores; the C API converts and verifies them. Nothing is memory-mapped: a damaged file is
// an error, not a signal. Open reads one small file and asks for the size of the others. Reading whole arrays runs at
// the sequential rate of the device.
//
// Convert streams features (tensors.go, narrow.go where they are stored in fewer bytes), sorts edges by target within
// its memory (csc.go, partition.go, emit.go), orders weights like the edges and sums them by blocks (weightsort.go,
// weightsums.go), and writes the manifest last (site.go, publish.go). Relayout rewrites node tensors in an order in
// which rows that are used together are neighbours (relayout.go, community.go); NodeType.RowOf maps ids to rows.
// Addition gives a store more tensors, those of package propagate among them (addition.go, aggregate.go).
package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

// Array is one file of rows of equal size. Its reading methods are safe for concurrent use; each opens the file anew.
type Array struct {
	File     string // name inside the store
	Path     string
	CRCPath  string // of its page checksums
	DType    manifest.DType
	RowShape []int64 // empty: a scalar per row
	Rows     int64
	Layout   ssd.Layout
	Bytes    int64 // size of the file, whole pages
	crc      uint32
	in       *directory
}

// Tensor is a named Array with a row for each node or each edge.
type Tensor struct {
	Name string
	Array
	Aggregate *Aggregate // how it was computed; nil: it is the user's
	Narrow    *Narrowed  // nil: the rows are stored as they are
}

// directory reads the files of a store, while the store that was opened is still there. It is safe for concurrent use.
type directory struct {
	fs     ssd.FS
	path   string
	uuid   [16]byte
	draft  bool        // not published: there is no manifest at its path
	closed atomic.Bool // set by Close, read by every reading method
}

// Store is an open store. Its description is immutable after Open, and all methods are safe for concurrent use. It
// holds no descriptors and no memory but that description: its arrays are read by their own methods.
type Store struct {
	*directory
	manifest *manifest.Manifest

	nodeTypes   []NodeType
	edgeTypes   []EdgeType
	attachments []Tensor
}

// newStore returns the store in a directory that this manifest describes, unchecked.
func newStore(fs ssd.FS, path string, m *manifest.Manifest) *Store {
	return &Store{directory: &directory{fs: fs, path: path, uuid: uuidOf(m)}, manifest: m}
}

// Open reads and checks the manifest of the store at path and the sizes of its files, but not their contents: the
// loading methods check what they load, and Verify checks everything. Errors wrap ErrNotFound, ErrPermission,
// ErrFormat, ErrVersion or ErrCorrupt.
//
// Whoever wrote the store need not be trusted: nothing outside its directory is opened, for names in the manifest have
// no slash and no link is followed.
func Open(fs ssd.FS, path string) (*Store, error) {
	m, err := readManifest(fs, path)
	if err != nil {
		return nil, err
	}
	s := newStore(fs, path, m)
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, a := range s.arrays() {
		if err := checkSize(fs, a.Path, a.Bytes); err != nil {
			return nil, err
		}
		if err := checkSize(fs, a.CRCPath, a.pages()*crcBytes); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readManifest returns the manifest of the store at path.
func readManifest(fs ssd.FS, path string) (*manifest.Manifest, error) {
	info, err := fs.Stat(path)
	if err != nil {
		return nil, access(err)
	}
	if !info.IsDir {
		return nil, fmt.Errorf("store: %s is a file, expected a directory: %w", path, ErrFormat)
	}
	name := filepath.Join(path, manifest.Name)
	file, err := fs.Open(name, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ENOENT) {
		return nil, fmt.Errorf("store: %s has no %s: %w", path, manifest.Name, ErrFormat)
	}
	if errors.Is(err, ssd.ErrNoFile) {
		return nil, &CorruptError{Path: name, Reason: "is a link, a pipe or a device, expected a file"}
	}
	if err != nil {
		return nil, access(err)
	}
	defer file.Close() // nothing was written
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	// A longer file is not read whole: its length already disagrees with any header.
	data := make([]byte, min(size, manifest.HeaderBytes+manifest.MaxPayloadBytes+1))
	err = ssd.ReadFull(file, data, 0)
	if errors.Is(err, syscall.EISDIR) {
		return nil, &CorruptError{Path: name, Reason: "is a directory, expected a file"}
	}
	if err != nil {
		return nil, access(err)
	}
	m, err := manifest.Decode(data)
	if errors.Is(err, ErrCorrupt) {
		return nil, &CorruptError{Path: name, Reason: err.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	return m, nil
}

func checkSize(fs ssd.FS, path string, want int64) error {
	info, err := fs.Lstat(path)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return &CorruptError{Path: path, Reason: fmt.Sprintf("file is missing, expected %d bytes", want)}
	case err != nil:
		return access(err)
	case !info.IsFile:
		return &CorruptError{Path: path,
			Reason: fmt.Sprintf("is a directory, a link, a pipe or a device, expected a file of %d bytes", want)}
	case info.Size != want:
		return &CorruptError{Path: path, Off: min(info.Size, want),
			Reason: fmt.Sprintf("file has %d bytes, expected %d", info.Size, want)}
	}
	return nil
}

// Close makes every later reading call return ErrClosed. Calls that are running finish. Closing twice is no error.
func (d *directory) Close() error {
	d.closed.Store(true)
	return nil
}

// Path returns the path given to Open.
func (d *directory) Path() string { return d.path }

// FS returns the file system given to Open.
func (d *directory) FS() ssd.FS { return d.fs }

// UUID returns the 16 bytes that identify the conversion which wrote the store.
func (d *directory) UUID() [16]byte { return d.uuid }

// Manifest returns a copy of the manifest.
func (s *Store) Manifest() *manifest.Manifest { return manifest.Clone(s.manifest) }

// CheckCurrent returns ErrReplaced when the path holds another store than the one opened. Whoever opens array files by
// path calls it after opening them: then all of them belong to this store, whose files stay readable through their
// descriptors.
func (d *directory) CheckCurrent() error {
	if d.closed.Load() {
		return fmt.Errorf("store: %s: %w", d.path, ErrClosed)
	}
	if d.draft {
		return nil // nobody else can replace it: its directory is locked
	}
	m, err := readManifest(d.fs, d.path)
	if err != nil {
		return err
	}
	if d.uuid != uuidOf(m) {
		return fmt.Errorf("store: %s: %w", d.path, ErrReplaced)
	}
	return nil
}

func uuidOf(m *manifest.Manifest) (id [16]byte) {
	copy(id[:], m.GetUuid())
	return id
}

func (a *Array) pages() int64 { return a.Bytes / ssd.PageBytes }
