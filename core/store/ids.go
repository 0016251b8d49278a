package store

import (
	"unsafe"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// elementReader reads a one-dimensional Source of numbers. It belongs to one goroutine.
type elementReader struct {
	rows *rowReader
	raw  *mem.Block // elements as they are
	wide *mem.Block // elements of eight bytes; empty where a reader makes none
}

// newElementReader returns a reader of at most maxRows numbers at a time, with wide bytes of memory for each beside it.
// It charges elementReaderBytes to the budget until close.
func newElementReader(
	fs ssd.FS, src Source, name string, maxRows, wide int64, budget *mem.Budget,
) (r elementReader, err error) {
	if r.rows, err = newRowReader(fs, src, name, maxRows, budget); err != nil {
		return r, err
	}
	if r.raw, err = budget.Alloc(mem.Convert, maxRows*int64(src.DType.Size())); err != nil {
		r.rows.close()
		return r, err
	}
	if r.wide, err = budget.Alloc(mem.Convert, maxRows*wide); err != nil {
		r.raw.Free()
		r.rows.close()
	}
	return r, err
}

func elementReaderBytes(src Source, maxRows, wide int64) int64 {
	return src.scratchBytes(maxRows) + maxRows*(int64(src.DType.Size())+wide)
}

func (r *elementReader) close() {
	r.rows.close()
	r.raw.Free()
	r.wide.Free()
}

// bytes returns n numbers from row first on as they are, aligned, valid until the next call.
func (r *elementReader) bytes(first, n int64) ([]byte, error) {
	raw, err := r.rows.read(r.raw.Bytes(), first, n)
	// The user's memory need not be aligned; ours is.
	if uintptr(unsafe.Pointer(unsafe.SliceData(raw)))%8 != 0 { // only compared
		raw = r.raw.Bytes()[:copy(r.raw.Bytes(), raw)]
	}
	return raw, err
}

// idReader reads integers as int64.
type idReader struct{ elementReader }

func newIDReader(fs ssd.FS, src Source, name string, maxRows int64, budget *mem.Budget) (*idReader, error) {
	r, err := newElementReader(fs, src, name, maxRows, wideBytes(src.DType), budget)
	return &idReader{r}, err
}

func wideBytes(d manifest.DType) int64 {
	if d == manifest.DType_INT64 {
		return 0
	}
	return 8
}

// idReaderBytes returns the memory of an idReader.
func idReaderBytes(src Source, maxRows int64) int64 {
	return elementReaderBytes(src, maxRows, wideBytes(src.DType))
}

// read returns n ids from row first on, valid until the next read.
func (r *idReader) read(first, n int64) ([]int64, error) {
	raw, err := r.bytes(first, n)
	if err != nil {
		return nil, err
	}
	if r.rows.src.DType == manifest.DType_INT64 {
		return mem.View[int64](raw), nil
	}
	ids := mem.Slice[int64](r.wide)[:n]
	DecodeIntegers(r.rows.src.DType, raw, ids)
	return ids, nil
}

// outOfRange returns the error for an id that is not in [0, limit), in a row of a source. An uint64 that is no int64
// arrives negative and is named as what it was.
func outOfRange(src Source, position string, row, id, limit int64) error {
	position += src.where(row)
	if src.DType == manifest.DType_UINT64 {
		return invalid("%s is %d, expected an id in [0, %d)", position, uint64(id), limit)
	}
	return invalid("%s is %d, expected an id in [0, %d)", position, id, limit)
}
