package propagate

import (
	"context"

	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/store"
)

// emit writes the rows: each node's own, and its results behind it.
func (p *pass) emit(ctx context.Context) (*store.Array, *manifest.Array, error) {
	e, err := p.newEmitter()
	if err != nil {
		return nil, nil, err
	}
	defer e.close()
	for first := int64(0); first < p.out.rows; first += p.plan.rows {
		if err := e.take(ctx, first, min(p.plan.rows, p.out.rows-first), nil); err != nil {
			return nil, nil, err
		}
	}
	return e.finish(ctx)
}

// emitter puts rows together and writes them.
type emitter struct {
	pass    *pass
	out     *store.AddedWriter
	dense   []byte     // rows that are not yet written, the output's
	filled  int64      // bytes of them
	space   []byte     // of own rows
	spilled [][][]byte // of each part, the chunk of each of its slices that was read
	free    func()
}

// newEmitter begins the output. The caller closes the emitter.
func (p *pass) newEmitter() (e *emitter, err error) {
	rows := min(p.plan.rows, p.out.rows)
	sizes := []int64{(rows + p.out.rowsPerStep()) * int64(p.out.rowBytes()), 0}
	if p.out.own != nil {
		sizes[1] = p.out.own.spanBytes(rows)
	}
	for _, s := range p.results {
		for _, width := range s.width {
			sizes = append(sizes, rows*width)
		}
	}
	columns := p.out.ownColumns() + int64(p.out.columns())
	e = &emitter{pass: p}
	e.out, err = p.r.adding.Create(p.out.name, p.out.dtype, columns, p.plan.writerChunk(), p.r.budget)
	if err != nil {
		return nil, err
	}
	memory, free, err := p.scratch(sizes...)
	if err != nil {
		e.out.Abort()
		return nil, err
	}
	e.dense, e.space, e.free = memory[0], memory[1], free
	memory = memory[2:]
	for _, s := range p.results {
		e.spilled, memory = append(e.spilled, memory[:len(s.width)]), memory[len(s.width):]
	}
	return e, nil
}

func (e *emitter) close() {
	e.free()
	e.out.Abort()
}

// take writes n rows from the first on. last has the columns that were not spilled, if there are such.
func (e *emitter) take(ctx context.Context, first, n int64, last []byte) error {
	if err := e.assemble(ctx, first, n, last); err != nil {
		return err
	}
	if err := e.write(first+n == e.pass.out.rows); err != nil {
		return err
	}
	e.pass.progress(n)
	return nil
}

// finish ends the output.
func (e *emitter) finish(ctx context.Context) (*store.Array, *manifest.Array, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	array, in, err := e.out.Finish(e.pass.out.rows)
	if err == nil {
		e.pass.r.report.Written += array.Bytes + array.CRCBytes()
	}
	return array, in, err
}

// assemble appends rows to the rows that are not yet written.
func (e *emitter) assemble(ctx context.Context, first, n int64, last []byte) error {
	var own []byte
	if e.pass.out.own != nil {
		var err error
		if own, err = e.pass.ownRow.Span(ctx, e.space, first, n); err != nil {
			return err
		}
	}
	for i, s := range e.pass.results {
		if err := s.read(ctx, 0, first, 1, e.spilled[i]); err != nil {
			return err
		}
	}
	size, result := int64(e.pass.out.rowBytes()), e.pass.out.resultRowBytes()
	dense := e.dense[e.filled:][:n*size]
	guard.Split(e.pass.r.threads, int(n), func(lo, hi int) {
		numbers := make([]float64, e.pass.out.ownColumns())
		for i := int64(lo); i < int64(hi); i++ {
			row := dense[i*size:][:size]
			if own != nil {
				row = e.putOwn(row, own, i, numbers)
			}
			if e.pass.plan.held {
				copy(row, e.pass.held[(first+i)*result:][:result])
			} else {
				row = e.putResults(row, i)
				copy(row, last[i*int64(len(row)):])
			}
		}
	})
	e.filled += n * size
	return nil
}

// putResults writes the i-th row of the results that were read and returns the rest of the row.
func (e *emitter) putResults(row []byte, i int64) []byte {
	for k, s := range e.pass.results {
		for j, width := range s.width {
			copy(row[:width], e.spilled[k][j][i*width:][:width])
			row = row[width:]
		}
	}
	return row
}

// putOwn writes the i-th of the own rows and returns the rest of the row.
func (e *emitter) putOwn(row, own []byte, i int64, numbers []float64) []byte {
	from := e.pass.out.own.array
	bytes := e.pass.out.own.count * e.pass.out.dtype.Size()
	mine := own[i*int64(from.Layout.RowBytes):][:from.Layout.RowBytes]
	if from.DType == e.pass.out.dtype && e.pass.out.own.narrow == nil {
		copy(row, mine)
		return row[bytes:]
	}
	e.pass.out.own.decode(mine, 0, e.pass.out.own.count, numbers)
	store.EncodeFloats(e.pass.out.dtype, numbers, row[:bytes])
	return row[bytes:]
}

// write writes as many rows as the writer takes: all of them if they are the last.
func (e *emitter) write(last bool) error {
	step := e.pass.out.rowsPerStep() * int64(e.pass.out.rowBytes())
	n := e.filled / step * step
	if last {
		n = e.filled
	}
	if err := e.out.WriteRows(e.dense[:n]); err != nil {
		return err
	}
	e.filled = int64(copy(e.dense, e.dense[n:e.filled]))
	return nil
}
