package propagate

import (
	"context"
	"errors"
	"fmt"

	"freshgo/core/graph"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// listPiece is the number of neighbours that are read at a time. Arbitrary: a few requests of the engine.
const listPiece = 1 << 15

// pass makes one output. It is made by open and ends with close.
type pass struct {
	out    *output
	r      *runner
	owned  []interface{ Free() } // what close frees
	at     []uint32              // the row of each target; nil: the target itself
	rowOf  [][]uint32            // of each part, the row of each node of its sources; nil: the node itself
	lists  []*lists              // of each part
	read   []*graph.Rows
	ownRow *graph.Rows // of the targets, or nil

	plan    division
	temp    *ssd.Temp // or nil
	results []*spill  // of each part, where they are not held
	held    []byte    // rows of results
	made    struct {  // the output, where it is written as results are made
		array *store.Array
		in    *manifest.Array
	}

	sourcesAt int64 // byte of the temporary file where the sources of one part after the other lie
	done      int64 // rows that were divided, added up or written
	work      int64 // total number
}

// open loads what stays during the pass, and divides the rest of the memory.
func (r *runner) open(ctx context.Context, o *output) (*pass, error) {
	p := &pass{out: o, r: r}
	if err := p.load(ctx); err != nil {
		err = p.enough(err)
		p.close()
		return nil, err
	}
	return p, nil
}

// load reads indptr, orders and degrees.
func (p *pass) load(ctx context.Context) error {
	target := p.out.target
	var err error
	if p.at, err = p.rowsOf(ctx, target); err != nil {
		return err
	}
	for i := range p.out.parts {
		of := &p.out.parts[i]
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
		p.read = append(p.read, rows)
	}
	if p.out.own != nil {
		if p.ownRow, err = p.r.opened.Rows(ctx, p.out.own.array); err != nil {
			return err
		}
	}
	free, need := p.r.budget.Free(), int64(0)
	if p.plan, need = p.out.divide(free); need > free {
		return &mem.BudgetError{Purpose: mem.Convert, Need: need, Free: free, Limit: p.r.budget.Limit()}
	}
	p.work = p.out.rows
	for i, n := range p.plan.slices {
		p.work += int64(n) * p.out.rows
		if p.plan.divides(i) {
			p.work += p.out.parts[i].sources.Count
		}
	}
	return p.prepare()
}

// prepare makes the place of the results.
func (p *pass) prepare() (err error) {
	if p.plan.held {
		p.held, err = p.alloc(p.out.rows * p.out.resultRowBytes())
		return err
	}
	size := int64(0)
	for i := range p.out.parts {
		s, end, err := p.spill(size, p.out.rows, p.plan.spilled(i), p.out.dtype.Size())
		if err != nil {
			return err
		}
		p.results, size = append(p.results, s), end
	}
	p.sourcesAt = size
	for i := range p.out.parts {
		if of := &p.out.parts[i]; p.plan.divides(i) {
			row := int64(of.rows.count * of.rows.elementBytes())
			size = max(size, p.sourcesAt+ssd.WholePages(of.sources.Count*row)+int64(p.plan.slices[i])*ssd.PageBytes)
		}
	}
	if size == 0 {
		return nil
	}
	if p.temp, err = p.r.engine.CreateTemp(p.r.store.Path(), p.r.budget); err != nil {
		return err
	}
	for _, s := range p.results {
		s.temp = p.temp
	}
	return p.temp.Grow(size)
}

// spill returns a table of the temporary file from a byte on, whose slices begin at these columns, and its end.
func (p *pass) spill(begin, rows int64, at []int, size int) (*spill, int64, error) {
	s, slices := &spill{engine: p.r.engine, rows: rows, chunk: p.plan.rows}, len(at)-1
	p.r.report.Written -= begin
	for i := range slices {
		width := int64((at[i+1] - at[i]) * size)
		s.width, s.start = append(s.width, width), append(s.start, begin)
		begin += ssd.WholePages(rows * width)
	}
	p.r.report.Written += begin // all of it, once
	if slices == 0 {
		return s, begin, nil
	}
	sums, err := p.alloc(4 * int64(slices) * chunks(rows, s.chunk))
	s.sums = mem.View[uint32](sums)
	return s, begin, err
}

// rowsOf returns the row of every node of a type, or nil where that is the node.
func (p *pass) rowsOf(ctx context.Context, t *store.NodeType) ([]uint32, error) {
	block, err := t.RowOf(ctx, p.r.budget, mem.Convert)
	if block == nil {
		return nil, err
	}
	p.owned = append(p.owned, block)
	p.r.report.Read += t.Order.Bytes
	return mem.Slice[uint32](block), nil
}

// alloc allocates until close.
func (p *pass) alloc(n int64) ([]byte, error) {
	block, err := p.r.budget.Alloc(mem.Convert, n)
	if err != nil {
		return nil, err
	}
	p.owned = append(p.owned, block)
	return block.Bytes(), nil
}

// scratch allocates pieces of memory until free.
func (p *pass) scratch(sizes ...int64) (pieces [][]byte, free func(), err error) {
	total := int64(0)
	for _, n := range sizes {
		total += ssd.WholePages(n)
	}
	block, err := p.r.budget.Alloc(mem.Convert, total)
	if err != nil {
		return nil, nil, err
	}
	rest := block.Bytes()
	for _, n := range sizes {
		pieces, rest = append(pieces, rest[:n:ssd.WholePages(n)]), rest[ssd.WholePages(n):]
	}
	return pieces, block.Free, nil
}

func (p *pass) close() error {
	for _, b := range p.owned {
		b.Free()
	}
	p.owned = nil
	if p.temp == nil {
		return nil
	}
	return p.temp.Close()
}

// enough converts a budget error into one that names the memory of the whole pass.
func (p *pass) enough(err error) error {
	var budget *mem.BudgetError
	if !errors.As(err, &budget) {
		return err
	}
	return tooSmall(p.out.name, p.out.footprint(p.r.staging), budget.Limit)
}

func tooSmall(name string, need, limit int64) error {
	return fmt.Errorf("propagate: %s needs a memory budget of at least %d bytes: %w", name, need,
		&mem.BudgetError{Purpose: mem.Convert, Need: need, Free: limit, Limit: limit})
}

// run makes all rows.
func (p *pass) run(ctx context.Context) (*store.Array, *manifest.Array, error) {
	for i := range p.out.parts {
		if err := p.addPart(ctx, i); err != nil {
			return nil, nil, err
		}
	}
	if p.plan.direct {
		return p.made.array, p.made.in, nil
	}
	return p.emit(ctx)
}

// progress counts rows that are done.
func (p *pass) progress(rows int64) {
	before := p.out.rows * p.done / max(p.work, 1)
	p.done += rows
	p.r.progress(p.out.rows*p.done/max(p.work, 1) - before)
}
