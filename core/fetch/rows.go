package fetch

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/internal/asm"
	"freshgo/core/internal/guard"
	"freshgo/core/internal/invariants"
	"freshgo/core/rows"
)

// Lookup holds the places of the rows of a batch, by position.
type Lookup struct {
	HitRows, HitSlots []int32 // tensor rows that are cached, and their slots
	Cold              []int32 // positions that are not
	Delivered         []bool  // by column of the cache and position: found in a pack
	hitsOfType        []int32 // the HitRows of one type, within its tensors
	Wanted            []int64 // rows to read
	From              []int32 // by wanted row: a position, or ^index of an extra row
}

// LookupBytes returns the scratch of a preparer for a number of rows: the fields of Lookup, draw.BatchRows and
// plan.Step, and the read plan's sort keys, ranges and positions.
func LookupBytes(rows int64) int64 { return rows * (4 + 4 + 4 + 1 + 8 + 4 + 4 + 4 + 8 + 2*16 + 12) }

// LookUp splits the rows of a batch into rows in slots, by position, and cold rows, once for all tables.
func (f *Filler) LookUp(slots []int32) error {
	k := &f.Lookup
	err := f.Sampling.Compute(f.Turns.Ctx, func() { k.sort(slots, &f.Drawn.BatchRows) })
	f.Counters.Hits.Add(f.countRows() - int64(len(k.Cold)))
	return err
}

// countRows counts the rows of a batch, and returns the number of rows that the consumer does not hold.
func (f *Filler) countRows() int64 {
	n, held := batch.NumRows(f.Drawn), f.Drawn.BatchRows.Missed.Held
	f.Counters.Rows.Add(n)
	f.Counters.Held.Add(held)
	return n - held
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
	for from, to := range f.Drawn.Runs(&t.Tensor, len(ids)) {
		err := t.Disk.Read(f.Turns.Ctx, &f.Scratch.Merger, ids[from:to], func(i int32, row []byte) error {
			copy(dst[(from+int(i))*t.Width:], row)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// gatherMemory copies rows from a table in memory, of the graph's edges, or of its nodes that are loaded.
func (f *Filler) gatherMemory(dst []byte, t *Table, ids []int64) {
	for from, to := range f.Drawn.Runs(&t.Tensor, len(ids)) {
		of, run := f.tableRows(t, ids[from:to]), dst[from*t.Width:to*t.Width]
		draw.Spread(f.Sampling, len(of), max(1, pieceBytes/max(1, t.Width)), func(lo, hi int) {
			rows.Gather(run[lo*t.Width:hi*t.Width], t.Memory, t.Width, of[lo:hi])
		})
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

// DeliverAll writes rows of a table's tensor, which may be narrower than the source rows.
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

// ColdOf returns the cold positions of a table's rows: positions ascend, and types with them.
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

// tableRows returns the rows of a table that nodes of its type have, or edges.
func (f *Filler) tableRows(t *Table, nodes []int64) []int64 {
	k := &f.Lookup
	if t.ByEdge || f.Sampling.Order == nil {
		return nodes
	}
	k.Wanted = k.Wanted[:0]
	for _, v := range nodes {
		k.Wanted = append(k.Wanted, int64(f.Sampling.Order[t.First+v])-t.First)
	}
	return k.Wanted
}

// CopyCached copies the rows that are in slots into the tensors of a batch, and then the rows of repeated seeds within
// them. A consumer may write to its tensors, so a cache takes its rows from them before the batch is handed over.
func (f *Filler) CopyCached(tensors [][]byte) {
	for _, t := range f.Features.OnDisk {
		dst := tensors[t.Index]
		if dst == nil {
			continue
		}
		if len(f.Lookup.HitRows) > 0 {
			hits, slots := f.HitsOf(t)
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

// HitsOf returns the rows of a table's tensor that are in the cache, and their slots.
func (f *Filler) HitsOf(t *Table) (to, slots []int32) {
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
		f.Features.ToSlots(t, k.HitSlots, tensors[t.Index], k.HitRows)
	}
	for moves := range slices.Chunk(f.Step.In, 128) {
		var slots [128]int32 // prefetched together: slots lie anywhere
		for i, in := range moves {
			slots[i] = in.Slot
		}
		asm.Prefetch(f.Features.Resident.Rows, slots[:len(moves)])
		for _, in := range moves {
			f.Features.Resident.Set(in.Slot, f.Drawn.BatchRows.Rows[in.Pos])
		}
	}
}

// fromSlots copies rows of a table out of slots, whose column may be wider.
func (f *Features) fromSlots(t *Table, dst []byte, to, slots []int32) {
	if f.Columns[t.Column] == t.Width {
		f.copyRows(dst, to, f.Slots.Table(t.Column), slots, t.Width)
		return
	}
	for i, row := range to {
		copy(dst[int(row)*t.Width:][:t.Width], f.SlotRow(t, slots[i]))
	}
}

// ToSlots copies rows of a table into slots.
func (f *Features) ToSlots(t *Table, slots []int32, src []byte, from []int32) {
	if f.Columns[t.Column] == t.Width {
		f.copyRows(f.Slots.Table(t.Column), slots, src, from, t.Width)
		return
	}
	for i, row := range from {
		copy(f.SlotRow(t, slots[i]), src[int(row)*t.Width:][:t.Width])
	}
}

// copyRows copies rows between tables in memory.
func (f *Features) copyRows(dst []byte, to []int32, src []byte, from []int32, width int) {
	Among(f.Movers, len(to), func(lo, hi int) { rows.Copy(dst, to[lo:hi], src, from[lo:hi], width) })
}

// Among splits count rows among threads, or has one do them where they are few.
func Among(threads, count int, fn func(lo, hi int)) {
	if count < threads*minShare {
		threads = 1
	}
	guard.Split(threads, count, fn)
}

// pieceBytes is the bytes of rows that a thread gathers before it looks who needs it. Arbitrary: a few tenths of a
// millisecond.
const pieceBytes = 2 << 20

// minShare is the least number of rows for a thread: a hand-over costs as much as
// copying about a hundred rows. Arbitrary above that.
const minShare = 4096
