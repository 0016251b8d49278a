package propagate

import (
	"context"

	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/store"
)

// emit writes the rows: each node's own, and its results behind it.
func (p *pass) emit(ctx context.Context) (*store.Array, *manifest.Array, error) {
	columns := p.out.ownColumns() + int64(p.out.columns())
	w, err := p.r.adding.Create(p.out.name, p.out.dtype, columns, p.plan.writerChunk(), p.r.budget)
	if err != nil {
		return nil, nil, err
	}
	defer w.Abort()
	e, free, err := p.newEmitter()
	if err != nil {
		return nil, nil, err
	}
	defer free()
	for first := int64(0); first < p.out.rows; first += p.plan.rows {
		n := min(p.plan.rows, p.out.rows-first)
		if err := e.assemble(ctx, first, n); err != nil {
			return nil, nil, err
		}
		if err := e.write(w, first+n == p.out.rows); err != nil {
			return nil, nil, err
		}
		p.progress(n)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	array, in, err := w.Finish(p.out.rows)
	if err == nil {
		p.r.report.Written += array.Bytes + array.CRCBytes()
	}
	return array, in, err
}

// emitter puts rows together.
type emitter struct {
	pass    *pass
	dense   []byte     // rows that are not yet written, the output's
	filled  int64      // bytes of them
	space   []byte     // of own rows
	spilled [][][]byte // of each part, the chunk of each of its slices that was read
}

func (p *pass) newEmitter() (*emitter, func(), error) {
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
	memory, free, err := p.scratch(sizes...)
	if err != nil {
		return nil, nil, err
	}
	e := &emitter{pass: p, dense: memory[0], space: memory[1]}
	memory = memory[2:]
	for _, s := range p.results {
		e.spilled, memory = append(e.spilled, memory[:len(s.width)]), memory[len(s.width):]
	}
	return e, free, nil
}

// assemble appends rows to the rows that are not yet written.
func (e *emitter) assemble(ctx context.Context, first, n int64) error {
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
				e.putResults(row, i)
			}
		}
	})
	e.filled += n * size
	return nil
}

// putResults writes the i-th row of the results that were read.
func (e *emitter) putResults(row []byte, i int64) {
	for k, s := range e.pass.results {
		for j, width := range s.width {
			copy(row[:width], e.spilled[k][j][i*width:][:width])
			row = row[width:]
		}
	}
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
func (e *emitter) write(w *store.AddedWriter, last bool) error {
	step := e.pass.out.rowsPerStep() * int64(e.pass.out.rowBytes())
	n := e.filled / step * step
	if last {
		n = e.filled
	}
	if err := w.WriteRows(e.dense[:n]); err != nil {
		return err
	}
	e.filled = int64(copy(e.dense, e.dense[n:e.filled]))
	return nil
}
