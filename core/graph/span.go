package graph

import (
	"context"

	"freshgo/core/ssd"
)

// Rows that follow one another in a file, read into memory of the caller's.

// SpanBytes returns the size of a buffer for any n rows of a layout as they lie in the file.
func SpanBytes(l ssd.Layout, n int64) int64 {
	if l.RowsPerPage > 0 {
		perPage := int64(l.RowsPerPage)
		return ((n+perPage-1)/perPage + 1) * ssd.PageBytes
	}
	return ssd.WholePages(n*int64(l.RowBytes)) + ssd.PageBytes
}

// Span reads n rows from first on and returns them without padding, in the buffer, which is page aligned and has
// SpanBytes.
func (d *Rows) Span(ctx context.Context, buffer []byte, first, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	l := d.layout
	from, to := l.Offset(first), l.Offset(first+n-1)+int64(l.RowBytes)
	begin := from / ssd.PageBytes * ssd.PageBytes
	pages := buffer[:ssd.WholePages(to)-begin]
	if err := d.readInto(ctx, d.buffers(begin, begin+int64(len(pages)), 1), pages); err != nil {
		return nil, err
	}
	return l.Dense(from, pages[from-begin:to-begin]), nil
}

// ReadRanges calls deliver with each range of the file, checked where pages are, and its index, from engine threads.
func (d *Rows) ReadRanges(ctx context.Context, ranges []ssd.Range, deliver func(r int, data []byte) error) error {
	return d.engine.Read(ctx, d.handle, ranges, func(r int, data []byte) error {
		if d.pages != nil {
			if err := d.checkPages(ranges[r].Off, data); err != nil {
				return err
			}
		}
		return deliver(r, data)
	})
}

// Span reads the ids at len(out) positions from first on, each checked. The buffer is as of Rows.Span. The ids must be
// on disk.
func (a *IDs) Span(ctx context.Context, buffer []byte, first int64, out []int64) error {
	data, err := a.disk.Span(ctx, buffer, first, int64(len(out)))
	if err != nil {
		return err
	}
	return a.decode(first, data, out)
}
