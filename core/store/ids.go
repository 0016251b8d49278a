package store

import (
	"unsafe"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// idReader reads a one-dimensional Source of integers as int64. It belongs to one goroutine.
type idReader struct {
	rows *rowReader
	raw  *mem.Block // elements as they are
	wide *mem.Block // elements as int64; empty where they are that already
}

// newIDReader returns a reader of at most maxRows ids at a time. It charges idReaderBytes to the budget until close.
func newIDReader(fs ssd.FS, src Source, name string, maxRows int64, budget *mem.Budget) (*idReader, error) {
	rows, err := newRowReader(fs, src, name, maxRows, budget)
	if err != nil {
		return nil, err
	}
	r := &idReader{rows: rows}
	if r.raw, err = budget.Alloc(mem.Convert, maxRows*int64(src.DType.Size())); err != nil {
		rows.close()
		return nil, err
	}
	if r.wide, err = budget.Alloc(mem.Convert, maxRows*wideBytes(src.DType)); err != nil {
		r.raw.Free()
		rows.close()
		return nil, err
	}
	return r, nil
}

func wideBytes(d manifest.DType) int64 {
	if d == manifest.DType_INT64 {
		return 0
	}
	return 8
}

// idReaderBytes is the memory of an idReader.
func idReaderBytes(src Source, maxRows int64) int64 {
	return src.scratchBytes(maxRows) + maxRows*(int64(src.DType.Size())+wideBytes(src.DType))
}

func (r *idReader) close() {
	r.rows.close()
	r.raw.Free()
	r.wide.Free()
}

// read returns n ids from row first on, valid until the next read.
func (r *idReader) read(first, n int64) ([]int64, error) {
	raw, err := r.rows.read(r.raw.Bytes(), first, n)
	if err != nil || n == 0 {
		return nil, err
	}
	// The user's memory need not be aligned; ours is.
	if uintptr(unsafe.Pointer(&raw[0]))%8 != 0 { // raw has an element, as n is not 0
		raw = r.raw.Bytes()[:copy(r.raw.Bytes(), raw)]
	}
	if r.rows.src.DType == manifest.DType_INT64 {
		return mem.View[int64](raw), nil
	}
	ids := mem.Slice[int64](r.wide)[:n]
	DecodeIntegers(r.rows.src.DType, raw, ids)
	return ids, nil
}

// outOfRange is the error for an id that is not in [0, limit). An uint64 that is no int64 arrives negative and is named
// as what it was.
func outOfRange(src Source, position string, id, limit int64) error {
	if src.File != "" {
		position += " in " + src.File
	}
	if src.DType == manifest.DType_UINT64 {
		return invalid("%s is %d, expected an id in [0, %d)", position, uint64(id), limit)
	}
	return invalid("%s is %d, expected an id in [0, %d)", position, id, limit)
}
