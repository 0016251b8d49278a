package store

import (
	"context"
	"syscall"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// rangeReader reads pieces of an array, each page checked. It is safe for concurrent use.
type rangeReader struct {
	array *Array
	file  ssd.File
	crcs  *mem.Block
}

// newRangeReader opens an array. It charges CRCBytes to the budget until close.
func newRangeReader(ctx context.Context, a *Array, budget *mem.Budget) (*rangeReader, error) {
	crcs, err := a.LoadCRC(ctx, budget, mem.Convert)
	if err != nil {
		return nil, err
	}
	r := &rangeReader{array: a, crcs: crcs}
	if r.file, err = ssd.OpenDirect(a.in.fs, a.Path, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0); err != nil {
		crcs.Free()
		return nil, access(err)
	}
	if err := a.in.CheckCurrent(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rangeReader) close() {
	_ = r.file.Close() // nothing was written
	r.crcs.Free()
}

// rangeBytes returns the size of a buffer for any n bytes of a file, which lie in whole pages.
func rangeBytes(n int64) int64 { return roundUp(n, ssd.PageBytes) + ssd.PageBytes }

// read returns bytes from to to of the file, valid until the next use of buffer, which is page aligned and has
// rangeBytes(to-from).
func (r *rangeReader) read(ctx context.Context, buffer []byte, from, to int64) ([]byte, error) {
	if from == to {
		return nil, nil
	}
	first := from / ssd.PageBytes * ssd.PageBytes
	pages := buffer[:roundUp(to, ssd.PageBytes)-first]
	if err := readPiece(ctx, r.file, r.array, mem.Slice[uint32](r.crcs), first, pages); err != nil {
		return nil, err
	}
	return pages[from-first : to-first], nil
}

// chunkRows returns the number of rows of an array to read at a time, for about n bytes. Chunks of padded rows begin
// with a page.
func chunkRows(l ssd.Layout, n int64) int64 {
	rows := max(n/int64(l.RowBytes), 1)
	if l.RowsPerPage > 0 {
		rows = roundUp(rows, int64(l.RowsPerPage))
	}
	return rows
}

// chunkSpan returns the size of a buffer for this many rows as they lie in the file.
func chunkSpan(l ssd.Layout, rows int64) int64 {
	if l.RowsPerPage > 0 {
		return roundUp(rows, int64(l.RowsPerPage)) / int64(l.RowsPerPage) * ssd.PageBytes
	}
	return rangeBytes(rows * int64(l.RowBytes))
}

// rowStreamBytes returns the memory of streamRows.
func (a *Array) rowStreamBytes(chunk int64) int64 {
	return a.CRCBytes() + streamSlots*chunkSpan(a.Layout, min(chunkRows(a.Layout, chunk), max(a.Rows, 1)))
}

// streamRows passes all rows to visit, in the order of the file and without padding, about chunk bytes at a
// time, and reads ahead meanwhile. The rows are valid during the call.
func (a *Array) streamRows(
	ctx context.Context, chunk int64, budget *mem.Budget, visit func(first int64, rows []byte) error,
) error {
	r, err := newRangeReader(ctx, a, budget)
	if err != nil {
		return err
	}
	defer r.close()
	step := min(chunkRows(a.Layout, chunk), max(a.Rows, 1))
	span := chunkSpan(a.Layout, step)
	block, err := budget.Alloc(mem.Convert, streamSlots*span)
	if err != nil {
		return err
	}
	defer block.Free()
	pieces := (a.Rows + step - 1) / step
	read := func(ctx context.Context, i int64, slot []byte) ([]byte, error) {
		return r.rows(ctx, slot, i*step, min(step, a.Rows-i*step))
	}
	return readAhead(ctx, pieces, block.Bytes(), read, func(i int64, rows []byte) error { return visit(i*step, rows) })
}

// readAhead reads n pieces, one after the other, each into one of streamSlots equal parts of a buffer unless it is in
// memory already, and passes them to visit in order while the next is being read.
func readAhead(
	ctx context.Context, n int64, buffer []byte,
	read func(ctx context.Context, i int64, slot []byte) ([]byte, error), visit func(i int64, data []byte) error,
) error {
	type piece struct {
		index      int64
		slot, data []byte
	}
	span := len(buffer) / streamSlots
	free, full := make(chan []byte, streamSlots), make(chan piece, streamSlots)
	for i := range streamSlots {
		free <- buffer[i*span : (i+1)*span]
	}
	fill := func(ctx context.Context) error {
		defer close(full)
		for i := range n {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case slot := <-free:
				data, err := read(ctx, i, slot)
				if err != nil {
					return err
				}
				full <- piece{i, slot, data}
			}
		}
		return nil
	}
	pass := func(ctx context.Context) error {
		for p := range full {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := visit(p.index, p.data); err != nil {
				return err
			}
			free <- p.slot
		}
		return nil
	}
	return guard.Each(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return fill(ctx)
		}
		return pass(ctx)
	})
}

// rows returns n rows from first on, without padding. buffer has room for their pages.
func (r *rangeReader) rows(ctx context.Context, buffer []byte, first, n int64) ([]byte, error) {
	l := r.array.Layout
	from := l.Offset(first)
	to := l.Offset(first+n-1) + int64(l.RowBytes)
	data, err := r.read(ctx, buffer, from, to)
	pageRows := l.RowsPerPage * l.RowBytes
	if err != nil || pageRows == 0 || pageRows == ssd.PageBytes {
		return data, err
	}
	return l.Dense(from, data), nil
}

// pagesOf views an array as its pages.
func pagesOf(a *Array) *Array {
	pages := *a
	pages.Rows = a.pages()
	pages.Layout = ssd.Layout{RowBytes: ssd.PageBytes, RowsPerPage: 1, NumRows: pages.Rows}
	return &pages
}
