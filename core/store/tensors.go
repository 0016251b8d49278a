package store

import (
	"context"
	"fmt"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
	"freshgo/core/ssd"
)

const (
	// streamSlots is the number of chunks of rows in memory: one being read and one being written.
	streamSlots = 2
	// splitRows is the number of elements of a split that are read at a time. Splits are short; arbitrary.
	splitRows = 4 << 10
)

// sourceWriter writes arrays of a graph from the user's sources.
type sourceWriter struct {
	fs          ssd.FS
	budget      *mem.Budget
	progress    func(stage string, done, total int64)
	graph       graph
	tensorChunk int
	site        *site
}

// tensorPlan is the plan to pass the rows of a source through memory.
type tensorPlan struct {
	chunk     int   // of the array's writer
	chunkRows int64 // rows read at a time
	bytes     int64 // memory in all
}

func planTensor(src Source, chunk int) tensorPlan {
	dtype, shape := src.stored()
	rowBytes, _ := rowBytesOf(dtype, shape) // checked with the source
	rows := max(int64(chunk)/src.rowBytes(), 1)
	if layout := LayoutFor(rowBytes, src.rows()); layout.RowsPerPage > 0 {
		rows = roundUp(rows, int64(layout.RowsPerPage))
	}
	rows = min(rows, max(src.rows(), 1))
	return tensorPlan{chunk, rows,
		streamSlots*rows*src.rowBytes() + src.scratchBytes(rows) + arrayWriterBytes(chunk) + src.narrowBytes()}
}

// visitRows looks at rows from first on.
type visitRows func(first int64, rows []byte) error

// writeTensor writes the rows of a source, and passes them by visit. label stands before its name in messages.
func (c *sourceWriter) writeTensor(
	ctx context.Context, file, label string, t NamedSource, visit visitRows,
) (*manifest.Tensor, error) {
	written := &manifest.Tensor{Name: t.Name}
	var n *narrowing
	if t.Narrow != narrow.None {
		var err error
		if n, err = newNarrowing(ctx, c, label+t.Name, t); err != nil {
			return nil, err
		}
		defer n.close()
		t = n.source
	}
	dtype, shape := t.stored()
	w, err := newArrayWriter(c.fs, c.site.dir, file, dtype, shape, c.tensorChunk, c.budget)
	if err != nil {
		return nil, err
	}
	defer w.abort()
	if err := c.writeSource(ctx, w, label, t, n, visit); err != nil {
		return nil, err
	}
	if n != nil {
		n.describe(written)
	}
	written.Data, err = w.finish(t.rows())
	return written, err
}

// writeSource appends the rows of a source to an array, narrowed where n is not nil, and passes them by visit.
func (c *sourceWriter) writeSource(
	ctx context.Context, w *arrayWriter, label string, t NamedSource, n *narrowing, visit visitRows,
) error {
	m := &meter{report: c.progress, stage: "writing " + label + t.Name, total: t.rows()}
	rows := planTensor(t.Source, c.tensorChunk).chunkRows
	return c.stream(ctx, t.Source, label+t.Name, rows, func(first int64, rows []byte) error {
		if err := visit(first, rows); err != nil {
			return err
		}
		defer m.add(int64(len(rows)) / t.rowBytes())
		if n != nil {
			return n.write(first, rows, w.writeRows)
		}
		return w.writeRows(rows)
	})
}

// stream passes the rows of a source to visit, in order, and reads ahead meanwhile.
func (c *sourceWriter) stream(
	ctx context.Context, t Source, name string, chunkRows int64, visit func(first int64, rows []byte) error,
) error {
	block, err := c.budget.Alloc(mem.Convert, streamSlots*chunkRows*t.rowBytes())
	if err != nil {
		return err
	}
	defer block.Free()
	reader, err := newRowReader(c.fs, t, name, chunkRows, c.budget)
	if err != nil {
		return err
	}
	defer reader.close()
	read := func(_ context.Context, i int64, slot []byte) ([]byte, error) {
		return reader.read(slot, i*chunkRows, min(chunkRows, t.rows()-i*chunkRows))
	}
	return readAhead(ctx, (t.rows()+chunkRows-1)/chunkRows, block.Bytes(), read,
		func(i int64, rows []byte) error { return visit(i*chunkRows, rows) })
}

// writeSplit writes the node ids of a split.
func (c *sourceWriter) writeSplit(
	ctx context.Context, p *nodePart, file string, t NamedSource,
) (*manifest.Split, error) {
	w, err := newArrayWriter(c.fs, c.site.dir, file, manifest.DType_INT64, nil, c.tensorChunk, c.budget)
	if err != nil {
		return nil, err
	}
	defer w.abort()
	return c.endSplit(ctx, w, p, t, 0)
}

// endSplit appends the node ids of a split to an array that already has ids, and finishes it.
func (c *sourceWriter) endSplit(
	ctx context.Context, w *arrayWriter, p *nodePart, t NamedSource, count int64,
) (*manifest.Split, error) {
	name := splitName(p.label, t.Name)
	read, closeReader, err := c.splitReader(t.Source, name, p.before)
	if err != nil {
		return nil, err
	}
	defer closeReader()
	m := &meter{report: c.progress, stage: "writing split " + p.label + t.Name, total: t.rows()}
	for first := int64(0); first < t.rows(); first += splitRows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(splitRows, t.rows()-first)
		ids, err := read(first, n)
		if err != nil {
			return nil, err
		}
		for i, id := range ids {
			if uint64(id) >= uint64(p.count) {
				bad := first + int64(i)
				return nil, outOfRange(t.Source, fmt.Sprintf("element %d of %s", bad, name), bad, id, p.count)
			}
		}
		if err := w.write(mem.Bytes(ids)); err != nil {
			return nil, err
		}
		count += int64(len(ids))
		m.add(n)
	}
	array, err := w.finish(count)
	return &manifest.Split{Name: t.Name, Ids: array}, err
}

// splitReader returns a function that gives the ids in n elements of a split, whether it is ids or a mask, whose first
// element is of node begin.
func (c *sourceWriter) splitReader(
	t Source, name string, begin int64,
) (read func(first, n int64) ([]int64, error), closeReader func(), err error) {
	if t.DType != manifest.DType_BOOL {
		r, err := newIDReader(c.fs, t, name, splitRows, c.budget)
		if err != nil {
			return nil, nil, err
		}
		return r.read, r.close, nil
	}
	r, err := newRowReader(c.fs, t, name, splitRows, c.budget)
	if err != nil {
		return nil, nil, err
	}
	mask, ids := make([]byte, splitRows), make([]int64, 0, splitRows)
	return func(first, n int64) ([]int64, error) {
		chunk, err := r.read(mask, first, n)
		if err != nil {
			return nil, err
		}
		ids = ids[:0]
		for i, set := range chunk {
			if set != 0 {
				ids = append(ids, begin+first+int64(i))
			}
		}
		return ids, nil
	}, r.close, nil
}
