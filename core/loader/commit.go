package loader

import (
	"slices"

	"freshgo/core/internal/invariants"
)

// copyCached copies the rows that are in slots into the tensors of a batch, and then the rows of repeated seeds within
// them. A consumer may write to its tensors, so a cache takes its rows from them before the batch is handed over.
func (p *preparer) copyCached(tensors [][]byte) {
	l := p.loader
	for _, t := range l.rows.onDisk {
		dst := tensors[t.index]
		if len(p.lookup.hitRows) > 0 {
			hits, slots := p.hitsOf(t)
			l.rows.fromSlots(t, dst, hits, slots)
			if invariants.Enabled {
				for _, row := range hits {
					p.deliveries.add(t, row)
				}
			}
		}
		p.repeatRows(t, dst)
	}
	if invariants.Enabled {
		p.deliveries.check(p)
	}
}

// hitsOf returns the rows of a table's tensor that are in the cache, and their slots.
func (p *preparer) hitsOf(t *table) (to, slots []int32) {
	k, of := &p.lookup, p.drawn.TypeOffsets.Rows
	if len(of) == 2 {
		return k.hitRows, k.hitSlots // of one type: all rows
	}
	base := p.drawn.FirstRow(t.Type)
	lo, _ := slices.BinarySearch(k.hitRows, base)
	hi, _ := slices.BinarySearch(k.hitRows, int32(of[t.Type+1]))
	k.hitsOfType = k.hitsOfType[:0]
	for _, row := range k.hitRows[lo:hi] {
		k.hitsOfType = append(k.hitsOfType, row-base)
	}
	return k.hitsOfType, k.hitSlots[lo:hi]
}

// repeatRows copies the rows of repeated seeds within the tensor of a table.
func (p *preparer) repeatRows(t *table, dst []byte) {
	base, end := p.drawn.FirstRow(t.Type), p.drawn.TypeOffsets.Nodes[t.Type+1]
	for _, c := range p.drawn.BatchRows.Copies {
		if row := c.Row - base; row >= 0 && int64(c.Row) < end {
			p.deliver(t, dst, row, dst[int(c.Of-base)*t.Width:])
		}
	}
}

// enterRows copies the rows of the batch that enter the cache into their slots.
func (p *preparer) enterRows(tensors [][]byte) {
	if len(p.step.In) == 0 {
		return
	}
	l := p.loader
	k := &p.lookup // its hits are copied already
	for _, t := range l.rows.onDisk {
		base := p.drawn.FirstRow(t.Type)
		k.hitRows, k.hitSlots = k.hitRows[:0], k.hitSlots[:0]
		for _, in := range p.step.In {
			if t.has(p.drawn.BatchRows.Rows[in.Pos]) {
				k.hitRows = append(k.hitRows, p.drawn.BatchRows.TensorRow(in.Pos)-base)
				k.hitSlots = append(k.hitSlots, in.Slot)
			}
		}
		l.rows.toSlots(t, k.hitSlots, tensors[t.index], k.hitRows)
	}
	for _, in := range p.step.In {
		l.rows.resident.set(in.Slot, p.drawn.BatchRows.Rows[in.Pos])
	}
}
