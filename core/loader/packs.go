package loader

import (
	"slices"

	"freshgo/core/internal/invariants"
	"freshgo/core/rows"
	"freshgo/core/scratch"
)

// batchPacks is the packs that one superbatch fills for one batch: one for each column of the cache, nil where there
// was no room. A nil batchPacks has none.
type batchPacks struct{ columns []*scratch.Pack }

// column returns the pack of a column, or nil.
func (p *batchPacks) column(i int) *scratch.Pack {
	if p == nil {
		return nil
	}
	return p.columns[i]
}

// add leaves a row for the batch. It does nothing when the batch has begun to read, for then the batch reads the row
// itself, or when the pack fails, which says so when it is read.
func (p *batchPacks) add(column int, pos int32, row []byte) {
	if k := p.column(column); k != nil {
		_ = k.Add(pos, row)
	}
}

// addRows is add for rows of a table.
func (p *batchPacks) addRows(column int, of rowCopies, src []byte, width int) {
	if k := p.column(column); k != nil && len(of.pos) > 0 {
		_ = k.AddRows(of.pos, src, width, of.from)
	}
}

// empty reports whether there is no pack.
func (p *batchPacks) empty() bool {
	return p == nil || !slices.ContainsFunc(p.columns, func(k *scratch.Pack) bool { return k != nil })
}

// seal ends the adding of rows.
func (p *batchPacks) seal() {
	p.each(func(k *scratch.Pack) { _ = k.Seal() }) // whoever reads it hears the same
}

func (p *batchPacks) close() { p.each((*scratch.Pack).Close) }

func (p *batchPacks) each(do func(*scratch.Pack)) {
	if p == nil {
		return
	}
	for _, k := range p.columns {
		if k != nil {
			do(k)
		}
	}
}

// rowCopies lists rows of a table for a pack, and their positions there.
type rowCopies struct{ pos, from []int32 }

func (k *rowCopies) add(pos, from int32) { k.pos, k.from = append(k.pos, pos), append(k.from, from) }

func (k *rowCopies) clear() { k.pos, k.from = k.pos[:0], k.from[:0] }

// takeFrom copies rows of a pack, which are so wide, into the tensors of the batch, but for those that are delivered.
func (c *plannedCache) takeFrom(p *preparer, column, width int, tensors [][]byte, delivered []bool,
	pos scratch.Positions, data []byte) {
	var to, from [256]int32 // on the stack; a chunk of wide rows has fewer
	var t *table
	n := 0
	for i := range pos.Len() {
		at := pos.At(i)
		if p.window.moved {
			at = p.window.now[at]
		}
		if delivered[at] { // by the plan before; one that came to be after a failure did not count on that
			continue
		}
		of := t
		if row := p.drawn.BatchRows.Rows[at]; of == nil || !of.has(row) {
			of = p.loader.rows.tableOf(column, row)
		}
		row := p.drawn.BatchRows.TensorRow(at)
		if of == nil || row < 0 {
			continue
		}
		if n == len(to) || of != t && n > 0 {
			p.deliverAll(t, tensors[t.index], to[:n], data, from[:n], width)
			n = 0
		}
		t = of
		to[n], from[n] = row-p.drawn.FirstRow(t.Type), int32(i)
		n++
		delivered[at] = true // different positions of a batch: no two calls write the same
	}
	if n > 0 {
		p.deliverAll(t, tensors[t.index], to[:n], data, from[:n], width)
	}
}

// deliverAll writes rows of a table's tensor, which may be narrower than those that they come from.
func (p *preparer) deliverAll(t *table, dst []byte, to []int32, src []byte, from []int32, width int) {
	if t.Width != width {
		for i, row := range to {
			p.deliver(t, dst, row, src[int(from[i])*width:][:t.Width])
		}
		return
	}
	rows.Copy(dst, to, src, from, width)
	if invariants.Enabled {
		for _, row := range to {
			p.deliveries.add(t, row)
		}
	}
}
