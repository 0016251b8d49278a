package store

import (
	"fmt"
	"syscall"
	"unsafe"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// maxGap bounds how many bytes of a file are read for a byte that is wanted. A file with larger gaps is read row by
// row. Arbitrary.
const maxGap = 4

// rowReader reads rows of a Source as dense bytes. It belongs to one goroutine.
type rowReader struct {
	src     Source
	name    string
	file    ssd.File // nil for memory and for a pipe
	taken   int64    // rows that came through the pipe
	scratch *mem.Block
	part    *partReader // of a source that has parts; else nil
}

// partReader reads the rows of a source with parts. One part is open at a time: there may be more than descriptors.
type partReader struct {
	fs      ssd.FS
	maxRows int64
	budget  *mem.Budget
	first   int64      // row of the open part
	open    *rowReader // nil: none is
}

// newRowReader returns a reader of at most maxRows rows at a time; the source has been checked. It charges scratchBytes
// to the budget until close.
func newRowReader(fs ssd.FS, src Source, name string, maxRows int64, budget *mem.Budget) (*rowReader, error) {
	r := &rowReader{src: src, name: name}
	if src.parts != nil {
		r.part = &partReader{fs: fs, maxRows: maxRows, budget: budget}
		return r, nil
	}
	scratch, err := budget.Alloc(mem.Convert, src.scratchBytes(maxRows))
	if err != nil {
		return nil, err
	}
	r.scratch = scratch
	if src.File == "" {
		return r, nil
	}
	if r.file, err = fs.Open(src.File, syscall.O_RDONLY, 0); err != nil {
		scratch.Free()
		return nil, fmt.Errorf("store: %s: %w", name, access(err))
	}
	return r, nil
}

// scratchBytes returns the memory that a reader of at most maxRows rows at a time needs of its own.
func (s Source) scratchBytes(maxRows int64) int64 {
	most := int64(0)
	for _, part := range s.parts {
		most = max(most, part.scratchBytes(maxRows))
	}
	switch {
	case s.parts != nil:
		return most
	case s.File == "" || s.dense() || maxRows == 0 || s.sparse():
		return 0
	case s.rowsContiguous():
		return maxRows * s.Strides[0]
	default:
		return maxRows * int64(s.DType.Size())
	}
}

// dense reports whether rows follow each other without gaps.
func (s Source) dense() bool {
	return s.rowsContiguous() && (s.Strides[0] == s.rowBytes() || s.rows() < 2)
}

// sparse reports whether most bytes between rows of a file are not wanted.
func (s Source) sparse() bool { return s.rowsContiguous() && s.Strides[0] > maxGap*s.rowBytes() }

func (r *rowReader) close() {
	if r.part != nil {
		r.part.close()
		return
	}
	if r.file != nil {
		r.file.Close() // nothing was written
	}
	r.scratch.Free()
}

// read returns n rows from row first on, in dst or, where they are dense in memory, in place. dst holds at least n
// rows.
func (r *rowReader) read(dst []byte, first, n int64) ([]byte, error) {
	rowBytes := r.src.rowBytes()
	dst = dst[:n*rowBytes]
	if n == 0 {
		return dst, nil
	}
	if r.part != nil {
		return r.readParts(dst, first, n)
	}
	if r.src.Pipe != 0 {
		return dst, r.readPipe(dst, first, n)
	}
	if r.file != nil {
		return dst, r.readFile(dst, first, n)
	}
	base := unsafe.Add(r.src.Mem, first*r.src.Strides[0]) // first is a row of the source
	if r.src.dense() {
		return unsafe.Slice((*byte)(base), n*rowBytes), nil // n rows from first on lie within the source
	}
	gather(dst, base, r.src, n)
	return dst, nil
}

// readParts is read where the rows lie in several places.
func (r *rowReader) readParts(dst []byte, first, n int64) ([]byte, error) {
	rowBytes := r.src.rowBytes()
	for done := int64(0); done < n; {
		of, err := r.part.holding(r.src, first+done, r.name)
		if err != nil {
			return nil, err
		}
		at := first + done - r.part.first
		part, err := of.read(dst[done*rowBytes:], at, min(n-done, of.src.rows()-at))
		if err != nil || int64(len(part)) == n*rowBytes {
			return part, err
		}
		done += int64(copy(dst[done*rowBytes:], part)) / rowBytes // of rows from a file, onto themselves
	}
	return dst, nil
}

// holding returns the reader of the part that has a row.
func (p *partReader) holding(src Source, row int64, name string) (*rowReader, error) {
	if p.open != nil && row >= p.first && row < p.first+p.open.src.rows() {
		return p.open, nil
	}
	p.close()
	part, first := src.partOf(row)
	var err error
	p.first = first
	p.open, err = newRowReader(p.fs, part, name, p.maxRows, p.budget)
	return p.open, err
}

func (p *partReader) close() {
	if p.open != nil {
		p.open.close()
		p.open = nil
	}
}

func (r *rowReader) readPipe(dst []byte, first, n int64) error {
	if first != r.taken {
		return invalid("%s comes through a pipe, once and in order: row %d was asked for after %d", r.name, first, r.taken)
	}
	r.taken += n
	if err := ssd.ReadPipe(r.src.Pipe, dst); err != nil {
		return fmt.Errorf("store: %s, rows %d to %d of %d: %w", r.name, first, first+n, r.src.rows(), err)
	}
	return nil
}

func (r *rowReader) readFile(dst []byte, first, n int64) error {
	src, rowBytes := r.src, r.src.rowBytes()
	off := src.Offset + first*src.Strides[0]
	if src.dense() {
		return r.pread(dst, off)
	}
	if src.sparse() {
		for i := range n {
			if err := r.pread(dst[i*rowBytes:(i+1)*rowBytes], off+i*src.Strides[0]); err != nil {
				return err
			}
		}
		return nil
	}
	if src.rowsContiguous() {
		span := r.scratch.Bytes()[:(n-1)*src.Strides[0]+rowBytes]
		if err := r.pread(span, off); err != nil {
			return err
		}
		for i := range n {
			copy(dst[i*rowBytes:(i+1)*rowBytes], span[i*src.Strides[0]:])
		}
		return nil
	}
	// Fortran order: one contiguous run for each element of a row.
	size := int64(src.DType.Size())
	column := r.scratch.Bytes()[:n*size]
	at := int64(0) // of the element in its row
	return eachIndex(src.Shape[1:], src.Strides[1:], func(offset int64) error {
		if err := r.pread(column, off+offset); err != nil {
			return err
		}
		scatterColumn(dst[at:], column, rowBytes, n, size)
		at += size
		return nil
	})
}

func (r *rowReader) pread(p []byte, off int64) error {
	if err := ssd.ReadFull(r.file, p, off); err != nil {
		return fmt.Errorf("store: %s: %w", r.name, err)
	}
	return nil
}

// eachIndex calls visit with the byte offset of every index of a shape, in C order.
func eachIndex(shape, strides []int64, visit func(offset int64) error) error {
	if len(shape) == 0 {
		return visit(0)
	}
	for i := range shape[0] {
		base := i * strides[0]
		if err := eachIndex(shape[1:], strides[1:], func(offset int64) error { return visit(base + offset) }); err != nil {
			return err
		}
	}
	return nil
}

// gather copies n rows of memory from base on into dst.
func gather(dst []byte, base unsafe.Pointer, src Source, n int64) {
	rowBytes, size, stride := src.rowBytes(), int64(src.DType.Size()), src.Strides[0]
	if src.rowsContiguous() && rowBytes > size {
		for i := range n {
			copy(dst[i*rowBytes:], unsafe.Slice((*byte)(unsafe.Add(base, i*stride)), rowBytes)) // the i-th row
		}
		return
	}
	// Column by column: a transposed array is then read in the order of its memory.
	at := int64(0)
	_ = eachIndex(src.Shape[1:], src.Strides[1:], func(offset int64) error { // the visitor does not fail
		from := unsafe.Add(base, offset) // an index of the row, within the source
		for i := range n {
			element := unsafe.Slice((*byte)(unsafe.Add(from, i*stride)), size) // the same index of the i-th row
			copyElement(dst[at+i*rowBytes:], element, size)
		}
		at += size
		return nil
	})
}

// scatterColumn writes n successive elements to the same place of n successive rows.
func scatterColumn(dst, column []byte, rowBytes, n, size int64) {
	for i := range n {
		copyElement(dst[i*rowBytes:], column[i*size:], size)
	}
}

// copyElement copies one element. Constant lengths become single moves, where a call of memmove would cost several
// times as much.
func copyElement(dst, src []byte, size int64) {
	switch size {
	case 1:
		dst[0] = src[0]
	case 2:
		copy(dst[:2], src[:2])
	case 4:
		copy(dst[:4], src[:4])
	default:
		copy(dst[:8], src[:8])
	}
}
