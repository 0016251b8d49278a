package fetch

import (
	"slices"

	"freshgo/core/internal/invariants"
)

// CopyCached copies the rows that are in slots into the tensors of a batch, and then the rows of repeated seeds within
// them. A consumer may write to its tensors, so a cache takes its rows from them before the batch is handed over.
func (f *Filler) CopyCached(tensors [][]byte) {
	for _, t := range f.Features.OnDisk {
		dst := tensors[t.Index]
		if len(f.Lookup.HitRows) > 0 {
			hits, slots := f.hitsOf(t)
			f.Features.fromSlots(t, dst, hits, slots)
			if invariants.Enabled {
				for _, row := range hits {
					f.deliveries.add(t, row)
				}
			}
		}
		f.repeatRows(t, dst)
	}
	if invariants.Enabled {
		f.deliveries.check(f)
	}
}

// hitsOf returns the rows of a table's tensor that are in the cache, and their slots.
func (f *Filler) hitsOf(t *Table) (to, slots []int32) {
	k, of := &f.Lookup, f.Drawn.TypeOffsets.Rows
	if len(of) == 2 {
		return k.HitRows, k.HitSlots // of one type: all rows
	}
	base := f.Drawn.FirstRow(t.Type)
	lo, _ := slices.BinarySearch(k.HitRows, base)
	hi, _ := slices.BinarySearch(k.HitRows, int32(of[t.Type+1]))
	k.hitsOfType = k.hitsOfType[:0]
	for _, row := range k.HitRows[lo:hi] {
		k.hitsOfType = append(k.hitsOfType, row-base)
	}
	return k.hitsOfType, k.HitSlots[lo:hi]
}

// repeatRows copies the rows of repeated seeds within the tensor of a table.
func (f *Filler) repeatRows(t *Table, dst []byte) {
	base, end := f.Drawn.FirstRow(t.Type), f.Drawn.TypeOffsets.Nodes[t.Type+1]
	for _, c := range f.Drawn.BatchRows.Copies {
		if row := c.Row - base; row >= 0 && int64(c.Row) < end {
			f.Deliver(t, dst, row, dst[int(c.Of-base)*t.Width:])
		}
	}
}

// EnterRows copies the rows of the batch that enter the cache into their slots.
func (f *Filler) EnterRows(tensors [][]byte) {
	if len(f.Step.In) == 0 {
		return
	}
	k := &f.Lookup // its hits are copied already
	for _, t := range f.Features.OnDisk {
		base := f.Drawn.FirstRow(t.Type)
		k.HitRows, k.HitSlots = k.HitRows[:0], k.HitSlots[:0]
		for _, in := range f.Step.In {
			if t.Has(f.Drawn.BatchRows.Rows[in.Pos]) {
				k.HitRows = append(k.HitRows, f.Drawn.BatchRows.TensorRow(in.Pos)-base)
				k.HitSlots = append(k.HitSlots, in.Slot)
			}
		}
		f.Features.toSlots(t, k.HitSlots, tensors[t.Index], k.HitRows)
	}
	for _, in := range f.Step.In {
		f.Features.Resident.Set(in.Slot, f.Drawn.BatchRows.Rows[in.Pos])
	}
}
