package window

import (
	"fmt"
	"time"

	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/fetch"
	"freshgo/core/internal/asm"
	"freshgo/core/internal/reuse"
	"freshgo/core/plan"
	"freshgo/core/scratch"
)

// Fill executes the step of a batch (Ginex, section 3.3): rows come from slots, from the packs that earlier batches
// filled, and from the store; then the slots change as planned, and rows that leave go to the packs of later batches.
func (w *Batch) Fill(f *fetch.Filler, i int64, tensors [][]byte) error {
	if len(f.Features.Trained) > 0 {
		return w.fillTrained(f, i, tensors)
	}
	w.inspector.cache.idleGate.enter()
	defer w.inspector.cache.idleGate.leave()
	if err := w.read(f, tensors); err != nil {
		return err
	}
	w.super.closePacks(w.number)

	if err := f.Turns.Cache.Enter(i); err != nil {
		return err
	}
	defer f.Turns.Cache.Leave()
	if w.super.inspector.isPlanLost(w.number) {
		if err := w.repair(f, tensors); err != nil {
			return err
		}
		return f.Timed(func() { f.CopyCached(tensors) })
	}
	return f.Timed(func() {
		f.CopyCached(tensors)
		defer w.inspector.cache.timeline.add(spanUpdating, w.number, time.Now())
		w.setAside(f, tensors)
		for _, slot := range w.adapted.Vacate {
			f.Features.Resident.Clear(slot)
		}
		f.EnterRows(tensors)
	})
}

// read brings the rows of a batch that are in no slot.
func (w *Batch) read(f *fetch.Filler, tensors [][]byte) error {
	if err := f.LookUp(f.Step.Slots); err != nil {
		return err
	}
	start := time.Now()
	if err := w.readPacks(f, tensors); err != nil {
		return err
	}
	if err := f.ReadTables(tensors, w.readRows); err != nil {
		return err
	}
	w.inspector.cache.timeline.add(spanReading, w.number, start)
	w.super.done()
	return nil
}

// readPacks copies the rows of a batch's packs into its tensors. If a pack fails, its rows are read from the store.
func (w *Batch) readPacks(f *fetch.Filler, tensors [][]byte) error {
	k, rows := &f.Lookup, len(f.Drawn.BatchRows.Rows)
	k.Delivered = reuse.Zeros(k.Delivered, len(f.Features.Columns)*rows)
	w.lacks.Store(false)
	w.takeFromHand(f, tensors)
	for _, packs := range w.super.packsFor(w.number) {
		for column, pack := range packs.columns {
			if pack == nil {
				continue
			}
			delivered := k.DeliveredTo(column, rows)
			err := pack.Seal()
			if err == nil {
				err = pack.Read(f.Turns.Ctx, func(pos scratch.Positions, rows []byte) error {
					w.takeFrom(f, column, f.Features.Columns[column], tensors, delivered, pos, rows)
					return nil
				})
			}
			if f.Turns.Ctx.Err() != nil {
				return draw.ErrStopped
			}
			if err != nil {
				f.Counters.PackErrors.Add(1)
				if len(f.Features.Trained) > 0 {
					w.inspector.cache.trained.lose(err)
					return err
				}
			}
		}
	}
	return nil
}

// takeFrom copies the rows of a pack, of the given width, into the tensors of the batch, except for delivered ones.
func (w *Batch) takeFrom(f *fetch.Filler, column, width int, tensors [][]byte, delivered []bool,
	pos scratch.Positions, data []byte) {
	var places, to, from [256]int32 // on the stack; a chunk of wide rows has fewer
	var t *fetch.Table
	n := 0
	for i := range pos.Len() {
		if i%len(places) == 0 { // prefetched together: a pack has rows in the order in which they were put in
			here := places[:min(len(places), pos.Len()-i)]
			for k := range here {
				here[k] = pos.At(i + k)
			}
			if w.moved {
				moveTo(w.now, here)
			}
			asm.Prefetch(delivered, here)
			asm.Prefetch(f.Drawn.BatchRows.Rows, here)
		}
		at := places[i%len(places)]
		if delivered[at] { // by the plan before; one that came to be after a failure did not count on that
			continue
		}
		of := t
		if row := f.Drawn.BatchRows.Rows[at]; of == nil || !of.Has(row) {
			of = f.Features.TableOf(column, row)
		}
		row := f.Drawn.BatchRows.TensorRow(at)
		if of == nil || row < 0 {
			if of != nil && of.Trained != nil && embed.Changed(data[i*width:][:of.Width]) {
				w.lacks.Store(true)
			}
			continue
		}
		if n == len(to) || of != t && n > 0 {
			f.DeliverAll(t, tensors[t.Index], to[:n], data, from[:n], width)
			n = 0
		}
		t = of
		to[n], from[n] = row-f.Drawn.FirstRow(t.Type), int32(i)
		n++
		delivered[at] = true // different positions of a batch: no two calls write the same
	}
	if n > 0 {
		f.DeliverAll(t, tensors[t.Index], to[:n], data, from[:n], width)
	}
}

// moveTo replaces positions of a plan by the positions that the rows have now.
func moveTo(now, positions []int32) {
	asm.Prefetch(now, positions)
	for k, pos := range positions {
		positions[k] = now[pos]
	}
}

// readRows reads the cold rows of a table that the batch's packs did not have, and along with them rows of the same
// pages for later batches.
func (w *Batch) readRows(f *fetch.Filler, t *fetch.Table, dst []byte) error {
	k, s := &f.Lookup, w.super
	cold, base, delivered := f.ColdOf(t), f.Drawn.FirstRow(t.Type), k.DeliveredTo(t.Column, len(f.Drawn.BatchRows.Rows))
	k.Wanted, k.From = k.Wanted[:0], k.From[:0]
	for _, pos := range cold {
		if !delivered[pos] {
			k.Wanted = append(k.Wanted, int64(f.Drawn.BatchRows.Rows[pos])-t.First)
			k.From = append(k.From, pos)
		}
	}
	if t.Column == 0 { // a row counts once for all its tables
		f.Counters.Misses.Add(int64(len(k.Wanted)))
		f.Counters.Packed.Add(int64(len(cold) - len(k.Wanted)))
	}
	for i, e := range f.Step.Extra {
		if s.packs[e.Batch].empty() || !t.Has(e.Row) {
			continue
		}
		k.Wanted = append(k.Wanted, int64(e.Row)-t.First)
		k.From = append(k.From, ^int32(i))
	}
	return t.Disk.Read(f.Turns.Ctx, &f.Scratch.Merger, k.Wanted, func(i int32, row []byte) error {
		if from := k.From[i]; from >= 0 {
			f.Deliver(t, dst, f.Drawn.BatchRows.TensorRow(from)-base, row)
		} else {
			e := &f.Step.Extra[^from]
			s.packs[e.Batch].add(t.Column, e.Pos, row)
		}
		return nil
	})
}

// repair reads the rows of a batch without a plan that are not in the slots where its step expects them.
func (w *Batch) repair(f *fetch.Filler, tensors [][]byte) error {
	k := &f.Lookup
	k.HitRows, k.HitSlots, k.Cold = k.HitRows[:0], k.HitSlots[:0], k.Cold[:0]
	for i, slot := range f.Step.Slots {
		to := f.Drawn.BatchRows.TensorRow(int32(i))
		switch {
		case slot < 0 || to < 0:
		case f.Features.Resident.Rows[slot] == f.Drawn.BatchRows.Rows[i]:
			k.HitRows, k.HitSlots = append(k.HitRows, to), append(k.HitSlots, slot)
		default:
			k.Cold = append(k.Cold, int32(i))
		}
	}
	if len(k.Cold) == 0 {
		return nil
	}
	f.Counters.Hits.Add(-int64(len(k.Cold)))
	f.Counters.Misses.Add(int64(len(k.Cold)))
	for _, t := range f.Features.OnDisk {
		if tensors[t.Index] == nil {
			continue
		}
		if err := f.ReadCold(t, tensors[t.Index]); err != nil {
			return fmt.Errorf("reading %s: %w", f.Sampling.Parts.Schema.Describe(&t.Tensor), err)
		}
	}
	return nil
}

// setAside copies the rows of a step that leave to their packs.
func (w *Batch) setAside(f *fetch.Filler, tensors [][]byte) {
	leave := f.Step.Forward
	fetch.Among(f.Features.Movers, len(leave), func(lo, hi int) {
		var slots, own rowCopies
		for leave := leave[lo:hi]; len(leave) > 0; {
			n := 1 // rows of one pack follow each other
			for n < len(leave) && leave[n].Batch == leave[0].Batch {
				n++
			}
			packs := w.super.packs[leave[0].Batch]
			for _, t := range f.Features.OnDisk {
				w.leaving(f, t, leave[:n], &slots, &own)
				if !packs.addRows(t.Column, slots, f.Features.Slots.Table(t.Column), f.Features.Columns[t.Column]) {
					w.refuse(t, leave[:n], true)
				}
				if !packs.addRows(t.Column, own, tensors[t.Index], t.Width) {
					w.refuse(t, leave[:n], false)
				}
			}
			leave = leave[n:]
		}
	})
}

// leaving finds the rows that a table has: in slots, or in the batch's own tensor.
func (w *Batch) leaving(f *fetch.Filler, t *fetch.Table, leave []plan.Forward, slots, own *rowCopies) {
	slots.clear()
	own.clear()
	base, all := f.Drawn.FirstRow(t.Type), t.HasAll(f.Sampling.Parts.NumNodes)
	for _, row := range leave {
		switch {
		case !all && !forwards(f, t, row):
		case row.From >= 0:
			slots.add(row.Pos, row.From)
		default:
			own.add(row.Pos, f.Drawn.BatchRows.TensorRow(^row.From)-base)
		}
	}
}

// forwards reports whether a table has the row that is forwarded.
func forwards(f *fetch.Filler, t *fetch.Table, row plan.Forward) bool {
	if row.From >= 0 {
		return t.Has(f.Features.Resident.Rows[row.From])
	}
	return t.Has(f.Drawn.BatchRows.Rows[^row.From])
}
