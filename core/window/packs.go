package window

import (
	"slices"

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

// add leaves a row for the batch, and reports whether the pack took it. It does not when the batch has begun to read,
// for then the batch reads the row itself. A pack that fails says so when it is read.
func (p *batchPacks) add(column int, pos int32, row []byte) bool {
	k := p.column(column)
	return k != nil && k.Add(pos, row) == nil
}

// addRows is add for rows of a table.
func (p *batchPacks) addRows(column int, of rowCopies, src []byte, width int) bool {
	k := p.column(column)
	return len(of.pos) == 0 || k != nil && k.AddRows(of.pos, src, width, of.from) == nil
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
