package fetch

import "freshgo/core/draw"

// Lookup holds the places of the rows of a batch, by position.
type Lookup struct {
	HitRows, HitSlots []int32 // tensor rows that are cached, and their slots
	Cold              []int32 // positions that are not
	Delivered         []bool  // by column of the cache and position: found in a pack
	hitsOfType        []int32 // the hitRows of one type, within its tensors
	Wanted            []int64 // rows to read
	From              []int32 // what each of wanted is: a position, or ^index of an extra row
}

// LookupBytes is the scratch of a preparer, per row looked up: the fields of
// lookup, batchRows and step, and the read plan's sort keys, ranges and positions.
func LookupBytes(rows int64) int64 { return rows * (4 + 4 + 4 + 1 + 8 + 4 + 4 + 4 + 8 + 2*16 + 12) }

// LookUp sorts the rows of a batch into those in slots, by position, and those that are cold, once for all tables.
func (f *Filler) LookUp(slots []int32) error {
	k := &f.Lookup
	err := f.Sampling.Compute(f.Turns.Ctx, func() { k.sort(slots, &f.Drawn.BatchRows) })
	f.Counters.Hits.Add(f.Drawn.CountRows() - int64(len(k.Cold)))
	return err
}

func (k *Lookup) sort(slots []int32, r *draw.BatchRows) {
	k.HitRows, k.HitSlots, k.Cold = k.HitRows[:0], k.HitSlots[:0], k.Cold[:0]
	for i := range r.Rows {
		if r.TensorRow(int32(i)) < 0 {
			continue // pruned
		}
		if i < len(slots) && slots[i] >= 0 {
			k.HitRows = append(k.HitRows, r.TensorRow(int32(i)))
			k.HitSlots = append(k.HitSlots, slots[i])
		} else {
			k.Cold = append(k.Cold, int32(i))
		}
	}
}
