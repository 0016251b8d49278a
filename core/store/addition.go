package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

const (
	addedPrefix    = "added" // begins the files of tensors that were added
	manifestSuffix = ".new"  // of a manifest that is about to take the place of the one before
)

// Addition adds computed tensors to a store that exists. New files lie beside those of the store, where nobody looks at
// what the manifest does not name; then one rename puts a new manifest in the place of the old. So the store has all of
// the tensors or none, whatever happens; what a killed process left is removed by the next Addition. Nothing that the
// store had before changes, nor does its uuid: who has it open goes on reading.
//
// It holds a lock against other Additions. It ends with Publish or Discard, and belongs to one goroutine.
type Addition struct {
	store    *Store // as it is on disk
	lock     ssd.File
	manifest *manifest.Manifest // as it will be
	made     []string           // files that Discard removes
	replaced []string           // files that Publish removes
	set      []string           // names of what was added
	ended    bool
}

// BeginAddition locks the store at the path of s, which is read as it is now. Errors: ErrClosed; ErrReplaced where
// another store is there; ErrBusy while somebody else adds; ErrPermission.
func (s *Store) BeginAddition() (*Addition, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("store: %s: %w", s.path, ErrClosed)
	}
	if s.draft {
		return nil, invalid("%s is not published, tensors are added to a store that is", s.path)
	}
	lock, err := s.fs.Open(filepath.Join(s.path, lockName), syscall.O_RDWR|syscall.O_CREAT|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, access(err)
	}
	a := &Addition{lock: lock}
	held, err := lock.Lock(true)
	if err == nil && !held {
		err = fmt.Errorf("store: %s: %w", s.path, ErrBusy)
	}
	if err == nil {
		a.store, err = Open(s.fs, s.path)
	}
	if err == nil && a.store.UUID() != s.UUID() {
		err = fmt.Errorf("store: %s: %w", s.path, ErrReplaced)
	}
	if err == nil {
		a.manifest = a.store.Manifest()
		err = a.clean()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return a, nil
}

// Store returns the store as it is now. It is open until the Addition ends.
func (a *Addition) Store() *Store { return a.store }

// clean removes what killed Additions left.
func (a *Addition) clean() error {
	names, err := a.store.fs.ReadDir(a.store.path)
	if err != nil {
		return access(err)
	}
	named := map[string]bool{}
	for _, array := range a.store.arrays() {
		named[array.File], named[filepath.Base(array.CRCPath)] = true, true
	}
	for _, name := range names {
		if !named[name] && (strings.HasPrefix(name, addedPrefix) || name == manifest.Name+manifestSuffix) {
			if err := a.store.fs.Remove(filepath.Join(a.store.path, name)); err != nil {
				return access(err)
			}
		}
	}
	return nil
}

// CheckName returns an error unless a computed tensor of node type typ may have this name: it is free or, with
// overwrite, that of a computed tensor, which is then replaced.
func (a *Addition) CheckName(typ int, name string, overwrite bool) error {
	node := &a.store.nodeTypes[typ]
	i := slices.IndexFunc(node.Tensors, func(t Tensor) bool { return t.Name == name })
	switch label := nodeLabel(node.Name) + name; {
	case name == "":
		return invalid("a tensor needs a name")
	case i < 0:
		return nil
	case node.Tensors[i].Aggregate == nil:
		return fmt.Errorf("store: the tensor %q of %s was not computed from others and is not replaced: %w",
			label, a.store.path, ErrExists)
	case !overwrite:
		return fmt.Errorf("store: %s has the tensor %q: %w; overwrite replaces it", a.store.path, label, ErrExists)
	}
	return nil
}

// AddedWriter writes the rows of one tensor, those of a node type in the order in which its rows are stored. It ends
// with Finish or Abort.
type AddedWriter struct {
	to  *Addition
	out *arrayWriter
}

// Create begins a tensor with rows of this type and number of columns. It charges AddedWriterBytes to the budget until
// the writer ends.
func (a *Addition) Create(
	name string, dtype manifest.DType, columns int64, chunk int, budget *mem.Budget,
) (*AddedWriter, error) {
	file := ""
	for i := 0; ; i++ {
		file = fmt.Sprintf("%s%d_%s", addedPrefix, i, fileName(name))
		if _, err := a.store.fs.Lstat(filepath.Join(a.store.path, file+".bin")); errors.Is(err, syscall.ENOENT) {
			break
		} else if err != nil {
			return nil, access(err)
		}
	}
	a.made = append(a.made, file+".bin", file+".crc")
	out, err := newArrayWriter(a.store.fs, a.store.path, file, dtype, []int64{columns}, chunk, budget)
	if err != nil {
		return nil, err
	}
	return &AddedWriter{a, out}, nil
}

// AddedWriterBytes returns the memory of an AddedWriter.
func AddedWriterBytes(chunk int) int64 { return arrayWriterBytes(chunk) }

// AddedRowsPerStep returns the number of rows that WriteRows takes at a time; it also takes multiples.
func AddedRowsPerStep(rowBytes int) int { return max(LayoutFor(rowBytes, 0).RowsPerPage, 1) }

// WriteRows appends dense rows: a multiple of AddedRowsPerStep, except for the last.
func (w *AddedWriter) WriteRows(p []byte) error { return w.out.writeRows(p) }

// Finish makes this many rows durable. The array can be read until the Addition ends.
func (w *AddedWriter) Finish(rows int64) (*Array, *manifest.Array, error) {
	written, err := w.out.finish(rows)
	if err != nil {
		return nil, nil, err
	}
	c := newChecker(w.to.store.directory)
	return c.array(written, "what was added", rows), written, c.err
}

// Abort ends the writer. After Finish it does nothing.
func (w *AddedWriter) Abort() { w.out.abort() }

// Set makes an array that was written the computed tensor of this name of a node type. What it is computed from is
// what the store holds.
func (a *Addition) Set(typ int, name string, array *manifest.Array, of *manifest.Aggregate) {
	stamp(a.manifest, typ, of)
	node := a.manifest.NodeTypes[typ]
	a.set = append(a.set, nodeLabel(node.GetName())+name)
	tensor := &manifest.Tensor{Name: name, Data: array, Aggregate: of}
	i := slices.IndexFunc(node.Tensors, func(t *manifest.Tensor) bool { return t.GetName() == name })
	if i < 0 {
		node.Tensors = append(node.Tensors, tensor)
		return
	}
	a.replaced = append(a.replaced, node.Tensors[i].GetData().GetFile(), node.Tensors[i].GetData().GetCrcFile())
	node.Tensors[i] = tensor
}

// Publish makes the tensors part of the store. On an error the store is as it was.
func (a *Addition) Publish(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		err = a.store.CheckCurrent()
	}
	if err == nil {
		addVersion(a.manifest, "propagate", strings.Join(a.set, ", "))
		err = a.putManifest()
	}
	if err != nil {
		return errors.Join(err, a.Discard())
	}
	for _, name := range a.replaced {
		// What cannot be removed does no harm, and the next Addition removes it.
		_ = a.store.fs.Remove(filepath.Join(a.store.path, name))
	}
	a.made = nil
	return a.Discard()
}

// putManifest replaces the manifest, durably.
func (a *Addition) putManifest() error {
	fs, name := a.store.fs, filepath.Join(a.store.path, manifest.Name)
	checked := newStore(fs, a.store.path, a.manifest)
	if err := checked.check(); err != nil {
		return err
	}
	data, err := manifest.Encode(a.manifest)
	if err != nil {
		return err
	}
	a.made = append(a.made, manifest.Name+manifestSuffix)
	s := &site{fs: fs, dir: a.store.path}
	if err := s.writeFile(manifest.Name+manifestSuffix, data); err != nil {
		return err
	}
	if err := fs.SyncDir(a.store.path); err != nil { // the new files, before anything names them
		return err
	}
	if err := fs.Rename(name+manifestSuffix, name); err != nil {
		return access(err)
	}
	a.made = nil // they are the store's now
	return fs.SyncDir(a.store.path)
}

// Discard removes what was written and ends the Addition. After Publish or Discard it does nothing.
func (a *Addition) Discard() error {
	if a.ended {
		return nil
	}
	a.ended = true
	var err error
	for _, name := range a.made {
		gone := a.store.fs.Remove(filepath.Join(a.store.path, name))
		if gone != nil && !errors.Is(gone, syscall.ENOENT) {
			err = errors.Join(err, gone)
		}
	}
	return errors.Join(err, a.store.Close(), a.lock.Close())
}
