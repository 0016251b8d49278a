package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

// The disk space of a store that is to be written. It is known before the first byte, but for the numbers of the edges
// and their spill, which edges that are sorted already need none of: those are known when the edges are counted.

// SpaceError reports that a file system has too little room for what is to be written.
type SpaceError struct {
	Dir        string
	Need, Free int64 // bytes
}

// Error names the directory, what is needed and what is free.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("store: writing to %s takes %d bytes, the file system has %d free: %v", e.Dir, e.Need, e.Free,
		syscall.ENOSPC)
}

// Unwrap gives what a full disk would: an *ssd.PathError with ENOSPC.
func (e *SpaceError) Unwrap() error {
	return &ssd.PathError{Op: "write", Path: e.Dir, Off: -1, Err: syscall.ENOSPC}
}

// checkSpace returns a *SpaceError where there is no room for need bytes. Unknown free space is no error: the write
// that fails will report it.
func checkSpace(fs ssd.FS, dir string, need int64) error {
	if free, err := fs.Space(dir); err == nil && need > free {
		return &SpaceError{Dir: dir, Need: need, Free: free}
	}
	return nil
}

// reservation is a file that is to be written, and how long it will be.
type reservation struct {
	file  string // in the directory of the store
	bytes int64
}

// reservations are the two files of each array.
func reservations(arrays ...*Array) (all []reservation) {
	for _, a := range arrays {
		sums := strings.TrimSuffix(a.File, dataSuffix) + sumsSuffix
		all = append(all, reservation{a.File, a.Bytes}, reservation{sums, a.CRCBytes()})
	}
	return all
}

// reserve takes disk space for files before they are written, so that neither what others write meanwhile nor a quota
// ends the work in the middle. On a file system that cannot take space ahead it does nothing.
func reserve(fs ssd.FS, dir string, files []reservation) error {
	for _, f := range files {
		if f.bytes == 0 {
			continue
		}
		file, err := fs.Open(filepath.Join(dir, f.file), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, 0o644)
		if err != nil {
			return access(err)
		}
		_, err = ssd.Reserve(file, 0, f.bytes)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("store: taking %d bytes of disk space for %s: %w", f.bytes, f.file, err)
		}
	}
	return nil
}

// columnOf describes an array of scalars that is to be written under a name.
func columnOf(name string, dtype manifest.DType, rows int64) Array {
	a := Array{File: name + dataSuffix, DType: dtype, Rows: rows, Layout: layoutFor(dtype.Size(), rows)}
	a.Bytes, _ = fileBytes(a.Layout) // no overflow: the rows exist
	return a
}

// storedBytes returns the size of arrays on disk, with their checksums.
func storedBytes(arrays ...*Array) (total int64) {
	for _, a := range arrays {
		total += a.Bytes + a.CRCBytes()
	}
	return total
}

// unsortedBytes returns the disk space of the counted edges beside their topology: edge numbers and, while they are
// sorted, a spill.
func (s *edgeSorter) unsortedBytes() int64 {
	if s.sorted {
		return 0
	}
	bytes := s.edges.count * int64(edgeIDType(s.edges.count).Size())
	if !s.plan.inMemory {
		bytes += s.edges.count * s.plan.record
	}
	return bytes
}

// orderFile names the files of the order of a node type.
func (r *relayouter) orderFile(typ int) string { return r.src.nodeTypes[typ].file + "order" }

// rewritten is a node tensor as it will be.
func (r *relayouter) rewritten(typ, i int) *Array {
	a := r.src.nodeTypes[typ].Tensors[i].Array
	a.File = r.rowsFile(typ, i) + dataSuffix
	return &a
}

// newArrays returns the arrays that a relayout adds. In place, where tensors are removed when they are rewritten, these
// are the orders alone.
func (r *relayouter) newArrays() (all []*Array) {
	for i := range r.src.nodeTypes {
		order := columnOf(r.orderFile(i), manifest.DType_UINT32, r.src.nodeTypes[i].Count)
		all = append(all, &order)
		for j := range r.src.nodeTypes[i].Tensors {
			if !r.inPlace {
				all = append(all, r.rewritten(i, j))
			}
		}
	}
	for _, c := range r.carried(r.src.manifest) {
		a := *c.Array
		a.File = c.name + dataSuffix
		all = append(all, &a)
	}
	return all
}

// takeSpace takes disk space for what is written, so that where there is too little nothing is. In place each tensor
// takes its own when the one before is gone.
func (r *relayouter) takeSpace() error {
	arrays := r.newArrays()
	if err := checkSpace(r.src.fs, r.dir, storedBytes(arrays...)+r.passingBytes()); err != nil {
		return err
	}
	return reserve(r.src.fs, r.dir, reservations(arrays...))
}

// passingBytes returns the most disk space that a relayout takes for a while, beyond its result: a spill and, in place,
// a tensor that is there twice.
func (r *relayouter) passingBytes() (bytes int64) {
	largest := int64(0)
	for i := range r.src.nodeTypes {
		for j := range r.src.nodeTypes[i].Tensors {
			a := &r.src.nodeTypes[i].Tensors[j].Array
			largest = max(largest, storedBytes(a))
			if p := r.plan.tensors[i][j]; p.lane > 0 {
				bytes = max(bytes, p.spillBytes(a))
			}
		}
	}
	if r.inPlace {
		bytes += largest
	}
	return bytes
}
