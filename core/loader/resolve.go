package loader

import (
	"freshgo/core/draw"
)

// lookup holds the places of the rows of a batch, by position.
type lookup struct {
	hitRows, hitSlots []int32 // tensor rows that are cached, and their slots
	cold              []int32 // positions that are not
	delivered         []bool  // by column of the cache and position: found in a pack
	hitsOfType        []int32 // the hitRows of one type, within its tensors
	wanted            []int64 // rows to read
	from              []int32 // what each of wanted is: a position, or ^index of an extra row
}

// lookupBytes is the scratch of a preparer, per row looked up: the fields of
// lookup, batchRows and step, and the read plan's sort keys, ranges and positions.
func lookupBytes(rows int64) int64 { return rows * (4 + 4 + 4 + 1 + 8 + 4 + 4 + 4 + 8 + 2*16 + 12) }

// lookUp sorts the rows of a batch into those in slots, by position, and those that are cold, once for all tables.
func (p *preparer) lookUp(slots []int32) error {
	k := &p.lookup
	err := p.loader.draw.Compute(p.epoch.ctx, func() { k.sort(slots, &p.drawn.BatchRows) })
	p.loader.counters.Hits.Add(p.drawn.CountRows() - int64(len(k.cold)))
	return err
}

func (k *lookup) sort(slots []int32, r *draw.BatchRows) {
	k.hitRows, k.hitSlots, k.cold = k.hitRows[:0], k.hitSlots[:0], k.cold[:0]
	for i := range r.Rows {
		if r.TensorRow(int32(i)) < 0 {
			continue // pruned
		}
		if i < len(slots) && slots[i] >= 0 {
			k.hitRows = append(k.hitRows, r.TensorRow(int32(i)))
			k.hitSlots = append(k.hitSlots, slots[i])
		} else {
			k.cold = append(k.cold, int32(i))
		}
	}
}
