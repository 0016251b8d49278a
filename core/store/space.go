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
	"freshgo/core/narrow"
	"freshgo/core/ssd"
)

// The disk space of a store that is to be written. It is known before the first byte, but for the manifest, which is
// small, and for a mask that comes through a pipe, which counts as if every node were in it.

// SpaceError reports that a file system has too little room for what is to be written.
type SpaceError struct {
	Dir        string
	Need, Free int64 // bytes
	// Spill is the part of Need that holds edges while they are sorted: more memory needs less of it.
	Spill int64
	// Numbers is the part of Need that holds numbers of edges which no tensor needs.
	Numbers int64
	// Wide says that tensors hold floats, which narrow forms would store in fewer bytes.
	Wide bool
}

// Error names the directory, what is needed, what is free and which options need less.
func (e *SpaceError) Error() string {
	spill, advice := "", ""
	if e.Spill > 0 {
		spill = fmt.Sprintf(", %d of them while edges are sorted", e.Spill)
	}
	switch {
	case e.Spill > 0 && e.Need-e.Spill <= e.Free:
		advice = "; a larger memory= sorts them without"
	case e.Numbers > 0 && e.Need-e.Numbers <= e.Free:
		advice = "; edge_ids=False leaves out the numbers of edges"
	case e.Wide:
		advice = "; dtype= stores features in fewer bytes"
	}
	return fmt.Sprintf("store: writing to %s takes %d bytes%s, the file system has %d free%s: %v", e.Dir, e.Need, spill,
		e.Free, advice, syscall.ENOSPC)
}

// Unwrap gives what a full disk would: an *ssd.PathError with ENOSPC.
func (e *SpaceError) Unwrap() error {
	return &ssd.PathError{Op: "write", Path: e.Dir, Off: -1, Err: syscall.ENOSPC}
}

// CheckSpace returns a *SpaceError where there is no room for need bytes. Unknown free space is no error: the write
// that fails will report it.
func CheckSpace(fs ssd.FS, dir string, need int64) error {
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

// reservations returns the two files of each array.
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
	a := Array{File: name + dataSuffix, DType: dtype, Rows: rows, Layout: LayoutFor(dtype.Size(), rows)}
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

// takeSpace takes disk space for all arrays, so that where there is too little nothing is written. The spills of edges
// take theirs one after the other, and later bytes are needed when all is written.
func (c *conversion) takeSpace(ctx context.Context, later int64) error {
	arrays := c.graph.outline().arrays()
	var all []*edgeSorter
	unneeded := int64(0)
	for i, of := range c.sorters {
		p := &c.graph.edges[i]
		if !of.edges.sorted && !p.edges.unnumbered {
			numbers := columnOf(p.file+edgeIDsName, p.edges.numbers, p.edges.count)
			arrays = append(arrays, &numbers)
			if len(p.tensors) == 0 {
				unneeded += storedBytes(&numbers)
			}
		}
		if all = append(all, of.edges); of.weights != nil {
			all = append(all, of.weights)
		}
	}
	pipes := int64(0)
	for i := range c.graph.nodes {
		p := &c.graph.nodes[i]
		for j, t := range p.splits {
			rows, err := c.splitRows(ctx, p, t)
			if err != nil {
				return err
			}
			ids := columnOf(tensorFile(p.file+"split", j, t.Name), manifest.DType_INT64, rows)
			if t.Pipe != 0 {
				pipes += storedBytes(&ids)
			} else {
				arrays = append(arrays, &ids)
			}
		}
	}
	err := checkSorting(c.fs, c.site.dir, storedBytes(arrays...)+pipes, later, all...)
	var short *SpaceError
	if errors.As(err, &short) {
		short.Wide, short.Numbers = c.graph.wide(), unneeded
	}
	if err != nil {
		return err
	}
	return reserve(c.fs, c.site.dir, reservations(arrays...))
}

// checkSorting returns a *SpaceError where there is no room for need bytes and, for a while, for the largest of the
// spills of edges or for later bytes. Where the disk is short, edges are sorted without a spill.
func checkSorting(fs ssd.FS, dir string, need, later int64, all ...*edgeSorter) error {
	free, err := fs.Space(dir)
	if err != nil {
		return nil // see CheckSpace
	}
	spill := int64(0)
	for _, s := range all {
		if need+s.spillBytes() > free && s.rounds != nil {
			s.spillNothing()
		}
		spill = max(spill, s.spillBytes())
	}
	if most := need + max(spill, later); most > free {
		return &SpaceError{Dir: dir, Need: most, Free: free, Spill: max(spill-later, 0)}
	}
	return nil
}

// splitRows returns the number of ids of a split, at most for a mask that comes through a pipe.
func (c *conversion) splitRows(ctx context.Context, p *nodePart, t NamedSource) (count int64, err error) {
	if t.DType != manifest.DType_BOOL || t.Pipe != 0 {
		return t.rows(), nil
	}
	read, closeReader, err := c.splitReader(t.Source, splitName(p.label, t.Name), 0)
	if err != nil {
		return 0, err
	}
	defer closeReader()
	for first := int64(0); first < t.rows(); first += splitRows {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		ids, err := read(first, min(splitRows, t.rows()-first))
		if err != nil {
			return 0, err
		}
		count += int64(len(ids))
	}
	return count, nil
}

// wide reports whether tensors hold floats that are stored as they are and that a narrow form would make smaller.
func (g *graph) wide() bool {
	wide := func(t NamedSource) bool {
		return t.Narrow == narrow.None && (t.DType == manifest.DType_FLOAT32 || t.DType == manifest.DType_FLOAT64)
	}
	for i := range g.nodes {
		if slices.ContainsFunc(g.nodes[i].tensors, wide) {
			return true
		}
	}
	for i := range g.edges {
		if slices.ContainsFunc(g.edges[i].tensors, wide) {
			return true
		}
	}
	return false
}

// orderFile names the files of the order of a node type.
func (r *relayouter) orderFile(typ int) string { return r.src.nodeTypes[typ].file + "order" }

// rewritten returns a node tensor as it will be.
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
	if err := CheckSpace(r.src.fs, r.dir, storedBytes(arrays...)+r.passingBytes()); err != nil {
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
