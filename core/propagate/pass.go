package propagate

import (
	"context"
	"errors"
	"fmt"

	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/store"
)

const (
	// pieceBytes is what is read of rows at a time, while the piece before is added up. An engine delivers nearly its
	// sequential rate from there on.
	pieceBytes = 1 << 20
	// listPiece is how many neighbours are read at a time. Arbitrary: a few requests of the engine.
	listPiece = 1 << 16
	// ownBytes is about what is written at a time, and read of own rows. Arbitrary.
	ownBytes = 256 << 10
	// writerChunk and smallChunk are chunks of the writer, the small one where the large takes a good part of the memory.
	writerChunk, smallChunk = 1 << 20, 64 << 10
)

// pass makes one output. It is made by open and ends with close.
type pass struct {
	*output
	r      *runner
	lists  []*lists      // of each part
	order  []uint32      // node of each row of the targets; nil: the row itself
	rowOf  [][]uint32    // of each part, the row of each node of its sources; nil: the node itself
	at     []uint32      // the row of each target, the inverse of order
	blocks []*mem.Block  // what close frees
	ownRow *graph.Rows   // of the targets, or nil
	rows   []*graph.Rows // of each part

	window   window
	reader   reader
	room     int64 // bytes of a window
	chunk    int   // of the writer
	perStep  int64 // rows written at a time
	ownSpace []byte
	dense    []byte    // rows as they are written
	numbers  []float64 // of one own row
}

// window is a range of targets by row, and what is known of it.
type window struct {
	first, end int64
	sums       []float64 // a row of all columns for each target
	edges      edges
}

// open loads and allocates what stays during the pass.
func (r *runner) open(ctx context.Context, o *output) (*pass, error) {
	p := &pass{output: o, r: r, chunk: smallChunk}
	if err := p.load(ctx); err != nil {
		err = p.enough(err)
		p.close()
		return nil, err
	}
	return p, nil
}

// load reads indptr, orders and degrees, and divides the rest of the memory.
func (p *pass) load(ctx context.Context) error {
	target := &p.r.store.NodeTypes()[p.typ]
	var err error
	if p.at, err = p.rowsOf(ctx, target); err != nil {
		return err
	}
	if p.order, err = p.invert(p.at); err != nil {
		return err
	}
	for i := range p.parts {
		of := &p.parts[i]
		at := p.at
		if of.sources.Name != target.Name {
			if at, err = p.rowsOf(ctx, of.sources); err != nil {
				return err
			}
		}
		p.rowOf = append(p.rowOf, at)
		l, err := p.openLists(ctx, of)
		if err != nil {
			return err
		}
		p.lists = append(p.lists, l)
		rows, err := p.r.opened.Rows(ctx, of.rows.array)
		if err != nil {
			return err
		}
		p.rows = append(p.rows, rows)
	}
	if p.own != nil {
		if p.ownRow, err = p.r.opened.Rows(ctx, p.own.array); err != nil {
			return err
		}
	}
	return p.allocate()
}

// rowsOf is the row of every node of a type, or nil where that is the node.
func (p *pass) rowsOf(ctx context.Context, t *store.NodeType) ([]uint32, error) {
	block, err := t.RowOf(ctx, p.r.budget, mem.Convert)
	if block == nil {
		return nil, err
	}
	p.blocks = append(p.blocks, block)
	p.r.report.Read += t.Order.Bytes
	return mem.Slice[uint32](block), nil
}

// invert is the node of every row.
func (p *pass) invert(at []uint32) ([]uint32, error) {
	if at == nil {
		return nil, nil
	}
	block, err := p.alloc(int64(len(at)) * 4)
	if err != nil {
		return nil, err
	}
	order := mem.View[uint32](block)
	for v, row := range at {
		order[row] = uint32(v)
	}
	return order, nil
}

// alloc allocates until close.
func (p *pass) alloc(n int64) ([]byte, error) {
	block, err := p.r.budget.Alloc(mem.Convert, n)
	if err != nil {
		return nil, err
	}
	p.blocks = append(p.blocks, block)
	return block.Bytes(), nil
}

func (p *pass) close() {
	for _, b := range p.blocks {
		b.Free()
	}
	p.blocks = nil
}

// rowBytes is the size of a row of the output.
func (p *pass) rowBytes() int { return (int(p.ownColumns()) + p.columns()) * p.dtype.Size() }

// stepRows is how many rows are written at a time: about ownBytes, whole pages.
func (p *pass) stepRows() int64 {
	step := int64(store.AddedRowsPerStep(p.rowBytes()))
	return max(ownBytes/int64(p.rowBytes())/step, 1) * step
}

// allocate makes the buffers and the window, which takes the rest of the memory.
func (p *pass) allocate() error {
	p.perStep = p.stepRows()
	var err error
	if p.dense, err = p.alloc(p.perStep * int64(p.rowBytes())); err != nil {
		return err
	}
	if p.own != nil {
		if p.ownSpace, err = p.alloc(graph.SpanBytes(p.ownRow.Layout(), p.perStep)); err != nil {
			return err
		}
	}
	p.numbers = make([]float64, p.ownColumns())
	if err := p.openReader(); err != nil {
		return err
	}
	most, all := int64(0), int64(0)
	for row := range p.output.rows {
		cost := p.cost(row)
		most, all = max(most, cost), all+cost
	}
	// A window of one row must fit; and one of all rows is the largest of use.
	p.room = all
	free := p.r.budget.Free()
	if free > 16*store.AddedWriterBytes(writerChunk) {
		p.chunk = writerChunk
	}
	if free -= store.AddedWriterBytes(p.chunk); free < all {
		p.room = max(free, most)
	}
	return p.r.budget.Reserve(mem.Convert, p.room+store.AddedWriterBytes(p.chunk))
}

// enough turns an error of the budget into one that names what the whole pass needs.
func (p *pass) enough(err error) error {
	var budget *mem.BudgetError
	if !errors.As(err, &budget) {
		return err
	}
	return tooSmall(p.name, p.footprint(), budget.Limit)
}

func tooSmall(name string, need, limit int64) error {
	return fmt.Errorf("propagate: %s needs a memory budget of at least %d bytes: %w", name, need,
		&mem.BudgetError{Purpose: mem.Convert, Need: need, Free: limit, Limit: limit})
}

// write makes all rows.
func (p *pass) write(ctx context.Context) (*store.Array, *manifest.Array, error) {
	p.r.budget.Release(mem.Convert, p.room+store.AddedWriterBytes(p.chunk)) // what allocate has set aside
	columns := p.ownColumns() + int64(p.columns())
	w, err := p.r.adding.Create(p.name, p.dtype, columns, p.chunk, p.r.budget)
	if err != nil {
		return nil, nil, err
	}
	defer w.Abort()
	block, err := p.r.budget.Alloc(mem.Convert, p.room)
	if err != nil {
		return nil, nil, err
	}
	defer block.Free()
	for first := int64(0); first < p.output.rows; first = p.window.end {
		p.r.report.Windows++
		p.cut(first, block.Bytes())
		for i := range p.parts {
			if err := p.add(ctx, i); err != nil {
				return nil, nil, err
			}
		}
		if err := p.emit(ctx, w); err != nil {
			return nil, nil, err
		}
	}
	array, in, err := w.Finish(p.output.rows)
	if err == nil {
		p.r.report.Written += array.Bytes + array.CRCBytes()
	}
	return array, in, err
}

// cost is the memory of a window for one row: its sums, and the edges of the part that has most.
func (p *pass) cost(row int64) int64 {
	sums, most := 8*int64(p.columns()), int64(0)
	for i := range p.parts {
		most = max(most, p.lists[i].count(p.node(row))*p.lists[i].edgeBytes())
	}
	return sums + most
}

// node is the target of a row.
func (p *pass) node(row int64) int64 {
	if p.order == nil {
		return row
	}
	return int64(p.order[row])
}

// cut makes the window that begins with a row, as large as fits: a row's cost is that of the part with most edges, so
// that the edges of each part fit.
func (p *pass) cut(first int64, memory []byte) {
	w, left := &p.window, int64(len(memory))
	w.first, w.end = first, first
	for w.end < p.output.rows {
		cost := p.cost(w.end)
		if cost > left {
			break
		}
		left -= cost
		w.end++
	}
	n := (w.end - w.first) * int64(p.columns())
	w.sums = mem.View[float64](memory[:8*n])
	clear(w.sums)
	w.edges.memory = memory[8*n:]
}

// add adds the rows of a part's sources to the sums of the window.
func (p *pass) add(ctx context.Context, i int) error {
	w, l := &p.window, p.lists[i]
	w.edges.begin(l)
	if err := l.collect(ctx, p, i); err != nil {
		return err
	}
	w.edges.sort()
	if err := p.read(ctx, i); err != nil {
		return err
	}
	return ctx.Err()
}

// emit scales the sums of the window and writes its rows, each behind the node's own.
func (p *pass) emit(ctx context.Context, w *store.AddedWriter) error {
	win, size, columns := &p.window, p.rowBytes(), p.columns()
	for first := win.first; first < win.end; {
		// Steps begin where a page does: a window that ends within one leaves rows behind for the next step.
		n := min(p.perStep-first%p.perStep, win.end-first)
		var own []byte
		if p.own != nil {
			var err error
			if own, err = p.ownRow.Span(ctx, p.ownSpace, first, n); err != nil {
				return err
			}
		}
		at := first % p.perStep
		for i := range n {
			row := p.dense[(at+i)*int64(size):][:size]
			if p.own != nil {
				row = p.putOwn(row, own, i)
			}
			sums := win.sums[(first-win.first+i)*int64(columns):][:columns]
			for j := range p.parts {
				of := &p.parts[j]
				p.lists[j].scale(sums[of.first:of.first+of.rows.count], p.node(first+i))
			}
			store.EncodeFloats(p.dtype, sums, row)
		}
		first += n
		if full := first%p.perStep == 0; full || first == p.output.rows {
			if err := w.WriteRows(p.dense[:(at+n)*int64(size)]); err != nil {
				return err
			}
		}
		p.r.progress(n)
	}
	return ctx.Err()
}

// putOwn writes the i-th of some own rows and returns what is left of the row.
func (p *pass) putOwn(row, own []byte, i int64) []byte {
	from := p.own.array
	bytes := p.own.count * p.dtype.Size()
	mine := own[i*int64(from.Layout.RowBytes):][:from.Layout.RowBytes]
	if from.DType == p.dtype && p.own.narrow == nil {
		copy(row, mine)
		return row[bytes:]
	}
	numbers := p.numbers[:p.own.count]
	p.own.decode(mine, 0, p.own.count, numbers)
	store.EncodeFloats(p.dtype, numbers, row[:bytes])
	return row[bytes:]
}

// each runs fn for shares of so many columns, one a thread; few columns are one share.
func (p *pass) each(ctx context.Context, columns int, fn func(thread, lo, hi int)) error {
	const least = 16 // columns that are worth a thread; arbitrary
	threads := max(min(p.r.threads, columns/least), 1)
	if threads == 1 {
		fn(0, 0, columns)
		return nil
	}
	return guard.Each(ctx, threads, func(_ context.Context, t int) error {
		fn(t, columns*t/threads, columns*(t+1)/threads)
		return nil
	})
}

// footprint is the smallest budget of the pass: what stays, buffers, and a window of the row that costs most, once that
// is known.
func (p *pass) footprint() int64 {
	n := p.output.rows
	total := p.r.staging
	loading := int64(0)
	ordered := func(t *store.NodeType, copies int64) {
		if t.Order != nil {
			total += copies * 4 * t.Count
			loading = max(loading, t.Order.LoadBytes())
		}
	}
	target := &p.r.store.NodeTypes()[p.typ]
	ordered(target, 2)
	for i := range p.parts {
		of := &p.parts[i]
		if of.sources.Name != target.Name {
			ordered(of.sources, 1)
		}
		total += p.listsBytes(of)
		if of.rows.array != nil { // else it is still to be made
			total += of.rows.array.CRCBytes()
		}
		loading = max(loading, of.edges.Indptr.LoadBytes())
	}
	perStep := p.stepRows()
	if p.own != nil {
		total += p.own.array.CRCBytes() + graph.SpanBytes(p.own.array.Layout, perStep)
	}
	total += perStep*int64(p.rowBytes()) + p.readerBytes() + store.AddedWriterBytes(smallChunk)
	most := int64(0)
	if len(p.lists) == len(p.parts) {
		for row := range n {
			most = max(most, p.cost(row))
		}
	}
	return total + max(loading, most)
}
