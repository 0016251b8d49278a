package store

import (
	"fmt"
	"syscall"

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

// checkSpace returns a *SpaceError where there is no room for so many bytes. What cannot be found out is no error: the
// write that fails will say it.
func checkSpace(fs ssd.FS, dir string, need int64) error {
	if free, err := fs.Space(dir); err == nil && need > free {
		return &SpaceError{Dir: dir, Need: need, Free: free}
	}
	return nil
}

// storedBytes is what so many arrays take on disk with their checksums.
func storedBytes(arrays ...*Array) (total int64) {
	for _, a := range arrays {
		total += a.Bytes + a.CRCBytes()
	}
	return total
}

// bytes is what the store that a graph will be takes at least.
func (g *graph) bytes() (total int64) {
	s := g.outline()
	for i := range s.nodeTypes {
		for j := range s.nodeTypes[i].Tensors {
			total += storedBytes(&s.nodeTypes[i].Tensors[j].Array)
		}
	}
	for i := range s.edgeTypes {
		t := &s.edgeTypes[i].Topology
		total += storedBytes(t.Indptr, t.Indices)
		for j := range s.edgeTypes[i].Tensors {
			total += storedBytes(&s.edgeTypes[i].Tensors[j].Array)
		}
	}
	return total
}

// unsortedBytes is what the counted edges take beside their topology: their numbers and, while they are sorted, a
// spill.
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

// bytes is what a relayout takes on disk at most at a time.
func (r *relayouter) bytes() int64 {
	total, spill := r.numNodes()*4, int64(0)
	for _, a := range r.carried(r.src.manifest) {
		total += storedBytes(a.Array)
	}
	largest := int64(0)
	for i := range r.src.nodeTypes {
		for j := range r.src.nodeTypes[i].Tensors {
			a := &r.src.nodeTypes[i].Tensors[j].Array
			total, largest = total+storedBytes(a), max(largest, storedBytes(a))
			if r.plan.tensors[i][j].lane > 0 {
				spill = max(spill, a.Rows*recordSize(a))
			}
		}
	}
	if r.inPlace { // a tensor is removed when it is rewritten
		total = r.numNodes()*4 + largest
	}
	return total + spill
}
