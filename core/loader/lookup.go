package loader

import (
	"slices"
	"sort"

	"freshgo/core/plan"
	"freshgo/core/prune"
)

// Where the rows of a batch are, and those of one table among them: its nodes may be of several types.

// lookup is where the rows of a batch are, by position.
type lookup struct {
	hitRows, hitSlots []int32 // tensor rows that are cached, and their slots
	cold              []int32 // positions that are not
	delivered         []bool  // by column of the cache and position: found in a pack
	hitsOfType        []int32 // those of hitRows that are of one type, within its tensors
	wanted            []int64 // rows to read
	from              []int32 // what each of wanted is: a position, or ^index of an extra row
}

// lookupBytes is the scratch of a preparer, per row looked up: the fields of
// lookup, roster and step, and the read plan's sort keys, ranges and positions.
func lookupBytes(rows int64) int64 { return rows * (4 + 4 + 4 + 1 + 8 + 4 + 4 + 4 + 8 + 2*16 + 12) }

func (k *lookup) sort(slots []int32, r *roster) {
	k.hitRows, k.hitSlots, k.cold = k.hitRows[:0], k.hitSlots[:0], k.cold[:0]
	for i := range r.rows {
		if r.tensorRow(int32(i)) < 0 {
			continue // pruned
		}
		if i < len(slots) && slots[i] >= 0 {
			k.hitRows = append(k.hitRows, r.tensorRow(int32(i)))
			k.hitSlots = append(k.hitSlots, slots[i])
		} else {
			k.cold = append(k.cold, int32(i))
		}
	}
}

// base is the tensor row, counted over all types, where the rows of a table begin.
func (p *preparer) base(t *table) int32 { return int32(p.sections.rows[t.typ]) }

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
	k, of := &p.lookup, p.sections.rows
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
			p.deliver(t, dst, row, dst[int(c.of-base)*t.width:])
		}
	}
}

// forwards says whether a table has the row that is forwarded.
func (p *preparer) forwards(t *table, f plan.Forward) bool {
	if f.From >= 0 {
		return t.has(p.loader.resident.rows[f.From])
	}
	return t.has(p.roster.rows[^f.From])
}

// deliveredTo says, by position, what the packs of a column brought for a batch of so many rows.
func (k *lookup) deliveredTo(column, rows int) []bool {
	return k.delivered[column*rows : (column+1)*rows]
}

// tableRows are the rows of a table that nodes of its type have.
func (p *preparer) tableRows(t *table, nodes []int64) []int64 {
	l, k := p.loader, &p.lookup
	if l.order == nil {
		return nodes
	}
	k.wanted = k.wanted[:0]
	for _, v := range nodes {
		k.wanted = append(k.wanted, int64(l.order[t.first+v])-t.first)
	}
	return k.wanted
}

// missed are the nodes of a table, within its type, that the consumer does not hold.
func (p *preparer) missed(t *table) []int64 {
	return p.roster.ids[p.roster.bases[t.typ]:p.roster.bases[t.typ+1]]
}

// placeIn is where the rows of tables go in the tensors of the batch at hand: a prune.Place.
func (p *preparer) placeIn(tensors [][]byte) prune.Place {
	return func(table int, pos int32) []byte {
		t, r := p.loader.onDisk[table], &p.roster
		if !t.has(r.rows[pos]) {
			return nil
		}
		at := int(r.tensorRow(pos)-p.base(t)) * t.width
		return tensors[t.index][at : at+t.width]
	}
}
