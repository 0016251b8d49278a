package loader

import (
	"slices"
	"sort"

	"freshgo/core/internal/reuse"
	"freshgo/core/plan"
)

// Where the rows of one table are among those of a batch, whose nodes may be of several types.

// base is the tensor row, counted over all types, where the rows of a table begin.
func (p *preparer) base(t *table) int32 { return int32(p.sections.ofRows()[t.typ]) }

// coldOf is the cold positions whose rows a table has: positions rise, and with them the types.
func (p *preparer) coldOf(t *table) []int32 {
	cold := p.lookup.cold
	before := func(end int64) int {
		return sort.Search(len(cold), func(i int) bool { return int64(p.roster.rows[cold[i]]) >= end })
	}
	return cold[before(t.first):before(t.first+t.numRows)]
}

// hitsOf is the rows of a table's tensor that are in the cache, and their slots.
func (p *preparer) hitsOf(t *table) (to, slots []int32) {
	k, of := &p.lookup, p.sections.ofRows()
	if len(of) == 2 {
		return k.hitRows, k.hitSlots // of one type: all rows
	}
	base := p.base(t)
	lo, _ := slices.BinarySearch(k.hitRows, base)
	hi, _ := slices.BinarySearch(k.hitRows, int32(of[t.typ+1]))
	k.hitsOfType = k.hitsOfType[:0]
	for _, row := range k.hitRows[lo:hi] {
		k.hitsOfType = append(k.hitsOfType, row-base)
	}
	return k.hitsOfType, k.hitSlots[lo:hi]
}

// repeatRows copies the rows of repeated seeds within the tensor of a table.
func (p *preparer) repeatRows(t *table, dst []byte) {
	base, end := p.base(t), p.sections.nodes[t.typ+1]
	for _, c := range p.roster.copies {
		if row := c.row - base; row >= 0 && int64(c.row) < end {
			copy(dst[int(row)*t.width:][:t.width], dst[int(c.of-base)*t.width:])
		}
	}
}

// forwards says whether a table has the row that is forwarded.
func (p *preparer) forwards(t *table, f plan.Forward) bool {
	if f.From >= 0 {
		return p.loader.hasRow(t, p.loader.resident.rows[f.From])
	}
	return p.loader.hasRow(t, p.roster.rows[^f.From])
}

// hasRow says whether a table has a row that some table of its column has.
func (l *Loader) hasRow(t *table, row uint32) bool {
	return int64(row) >= t.first && int64(row) < t.first+t.numRows
}

// slotRow is the row of a table in a slot of the cache.
func (l *Loader) slotRow(t *table, slot int32) []byte {
	return l.cached.Row(t.cached, int64(slot))[:t.width]
}

// fromSlots copies rows of a table out of slots, whose column may be wider.
func (l *Loader) fromSlots(t *table, dst []byte, to, slots []int32) {
	if l.columns[t.cached] == t.width {
		l.copyRows(dst, to, l.cached.Table(t.cached), slots, t.width)
		return
	}
	for i, row := range to {
		copy(dst[int(row)*t.width:][:t.width], l.slotRow(t, slots[i]))
	}
}

// toSlots copies rows of a table into slots.
func (l *Loader) toSlots(t *table, slots []int32, src []byte, from []int32) {
	if l.columns[t.cached] == t.width {
		l.copyRows(l.cached.Table(t.cached), slots, src, from, t.width)
		return
	}
	for i, row := range from {
		copy(l.slotRow(t, slots[i]), src[int(row)*t.width:][:t.width])
	}
}

// deliveredTo says, by position, what the packs of a column brought for a batch of so many rows.
func (k *lookup) deliveredTo(column, rows int) []bool {
	return k.delivered[column*rows : (column+1)*rows]
}

// readPacks copies what the packs of a planned batch hold into its tensors. A pack that fails has
// not brought its rows, which are then read from the store.
func (p *preparer) readPacks(tensors [][]byte) error {
	if p.super == nil || len(p.loader.onDisk) == 0 {
		return nil
	}
	l, k, rows := p.loader, &p.lookup, len(p.roster.rows)
	k.delivered = reuse.Slice(k.delivered, len(l.columns)*rows)
	clear(k.delivered)
	for _, packs := range p.super.packsFor(p.number) {
		for column, pack := range packs.columns {
			if pack == nil {
				continue
			}
			delivered := k.deliveredTo(column, rows)
			err := pack.Seal()
			if err == nil {
				err = pack.Read(p.epoch.ctx, func(pos int32, row []byte) error {
					// Different positions of a batch: no two calls write the same.
					to := p.roster.tensorRow(pos)
					if t := l.tableOf(column, p.roster.rows[pos]); t != nil && to >= 0 {
						copy(tensors[t.index][int(to-p.base(t))*t.width:][:t.width], row)
						delivered[pos] = true
					}
					return nil
				})
			}
			if p.epoch.ctx.Err() != nil {
				return errStopped
			}
			if err != nil {
				l.counters.packErrors.Add(1)
			}
		}
	}
	return nil
}

// tableOf is the table in a column that has a row, or nil.
func (l *Loader) tableOf(column int, row uint32) *table {
	for _, t := range l.onDisk {
		if t.cached == column && l.hasRow(t, row) {
			return t
		}
	}
	return nil
}

// rowsOf is those of some rows that a table has, as it counts them, and where they were in the
// list; nil: each in its place.
func (l *Loader) rowsOf(t *table, rows []int64) (places, of []int64) {
	if t.numRows == l.parts.numNodes {
		return nil, rows
	}
	places = []int64{}
	for i, row := range rows {
		if l.hasRow(t, uint32(row)) {
			places, of = append(places, int64(i)), append(of, row-t.first)
		}
	}
	return places, of
}

// fillsOf is those of some fills, which rise by row, whose rows a table has.
func (l *Loader) fillsOf(t *table, fills []plan.Fill) []plan.Fill {
	lo, hi := l.within(t, len(fills), func(i int) uint32 { return fills[i].Row })
	return fills[lo:hi]
}

// extrasOf is the same of rows for packs.
func (l *Loader) extrasOf(t *table, extras []plan.Extra) []plan.Extra {
	lo, hi := l.within(t, len(extras), func(i int) uint32 { return extras[i].Row })
	return extras[lo:hi]
}

func (l *Loader) within(t *table, n int, row func(i int) uint32) (lo, hi int) {
	before := func(end int64) int { return sort.Search(n, func(i int) bool { return int64(row(i)) >= end }) }
	return before(t.first), before(t.first + t.numRows)
}
