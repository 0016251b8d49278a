package fetch

import (
	"fmt"
	"sort"
	"time"

	"freshgo/core/draw"
	"freshgo/core/internal/invariants"
	"freshgo/core/rows"
)

// readMissing finds out which rows of a batch are in slots, by position, and brings the others.
func (f *Filler) readMissing(slots []int32, tensors [][]byte) error {
	if err := f.LookUp(slots); err != nil {
		return err
	}
	f.Counters.Misses.Add(int64(len(f.Lookup.Cold)))
	return f.ReadTables(tensors, (*Filler).ReadCold)
}

// ReadTables brings the rows of a batch but for those in slots: of tables in memory and, by onDisk, of tables on disk.
func (f *Filler) ReadTables(tensors [][]byte, onDisk func(f *Filler, t *Table, dst []byte) error) error {
	for i := range f.Features.Tables {
		t := &f.Features.Tables[i]
		if tensors[i] == nil || t.unused {
			continue
		}
		if err := f.gather(t, f.Drawn.IDsOf(&t.Tensor), tensors[i], onDisk); err != nil {
			return fmt.Errorf("reading %s: %w", f.Sampling.Parts.Schema.Describe(&t.Tensor), err)
		}
	}
	return nil
}

// gather writes the rows of a table into a tensor, but for those in slots.
func (f *Filler) gather(
	t *Table, ids []int64, dst []byte, onDisk func(f *Filler, t *Table, dst []byte) error,
) error {
	if t.Disk == nil {
		return f.Timed(func() { f.gatherMemory(dst, t, ids) })
	}
	defer f.Counters.Reading.Since(time.Now())
	if !t.ByEdge {
		return onDisk(f, t, dst)
	}
	return t.Disk.Read(f.Turns.Ctx, &f.Scratch.Merger, ids, func(i int32, row []byte) error {
		copy(dst[int(i)*t.Width:], row)
		return nil
	})
}

// gatherMemory copies rows out of a table in memory: all of edges, and of nodes those that are loaded.
func (f *Filler) gatherMemory(dst []byte, t *Table, ids []int64) {
	if t.ByEdge {
		f.Features.gatherRows(dst, t.Memory, t.Width, ids)
		return
	}
	rows := f.tableRows(t, ids)
	for from, to := range f.Drawn.Cut.LoadedRuns(t.Type, len(rows)) {
		f.Features.gatherRows(dst[from*t.Width:to*t.Width], t.Memory, t.Width, rows[from:to])
	}
}

// ReadCold reads the cold rows of a table.
func (f *Filler) ReadCold(t *Table, dst []byte) error {
	k := &f.Lookup
	cold, base := f.ColdOf(t), f.Drawn.FirstRow(t.Type)
	k.Wanted = k.Wanted[:0]
	for _, pos := range cold {
		k.Wanted = append(k.Wanted, int64(f.Drawn.BatchRows.Rows[pos])-t.First)
	}
	return t.Disk.Read(f.Turns.Ctx, &f.Scratch.Merger, k.Wanted, func(i int32, row []byte) error {
		f.Deliver(t, dst, f.Drawn.BatchRows.TensorRow(cold[i])-base, row)
		return nil
	})
}

// Deliver writes a row of a table's tensor.
func (f *Filler) Deliver(t *Table, dst []byte, at int32, row []byte) {
	copy(dst[int(at)*t.Width:][:t.Width], row)
	if invariants.Enabled {
		f.deliveries.add(t, at)
	}
}

// DeliverAll writes rows of a table's tensor, which may be narrower than those that they come from.
func (f *Filler) DeliverAll(t *Table, dst []byte, to []int32, src []byte, from []int32, width int) {
	if t.Width != width {
		for i, row := range to {
			f.Deliver(t, dst, row, src[int(from[i])*width:][:t.Width])
		}
		return
	}
	rows.Copy(dst, to, src, from, width)
	if invariants.Enabled {
		for _, row := range to {
			f.deliveries.add(t, row)
		}
	}
}

// ColdOf is the cold positions whose rows a table has: positions rise, and with them the types.
func (f *Filler) ColdOf(t *Table) []int32 {
	cold := f.Lookup.Cold
	before := func(end int64) int {
		return sort.Search(len(cold), func(i int) bool { return int64(f.Drawn.BatchRows.Rows[cold[i]]) >= end })
	}
	return cold[before(t.First):before(t.First+t.NumRows)]
}

// DeliveredTo returns, by position, whether the packs of a column delivered the row, for a batch of the given number of
// rows.
func (k *Lookup) DeliveredTo(column, rows int) []bool {
	return k.Delivered[column*rows : (column+1)*rows]
}

// tableRows are the rows of a table that nodes of its type have.
func (f *Filler) tableRows(t *Table, nodes []int64) []int64 {
	k := &f.Lookup
	if f.Sampling.Order == nil {
		return nodes
	}
	k.Wanted = k.Wanted[:0]
	for _, v := range nodes {
		k.Wanted = append(k.Wanted, int64(f.Sampling.Order[t.First+v])-t.First)
	}
	return k.Wanted
}

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
