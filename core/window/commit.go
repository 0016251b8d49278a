package window

import (
	"cmp"
	"time"

	"freshgo/core/embed"
	"freshgo/core/fetch"
	"freshgo/core/internal/bitset"
	"freshgo/core/internal/reuse"
	"freshgo/core/plan"
)

// Commit ends the turn of a batch whose rows training changes: from its tensors, which the consumer may have changed,
// rows go to slots, to the packs of later batches, or back to their tables. endsStep: see put.go.
func (w *Batch) Commit(f *fetch.Filler, endsStep bool) error {
	defer f.Turns.Cache.Leave()
	w.inspector.cache.idleGate.enter()
	defer w.inspector.cache.idleGate.leave()
	tensors := f.Tensors
	var failed error
	w.inspector.cache.trained.hand.drop() // its rows go on from the batch's own tensor
	err := f.Timed(func() {
		defer w.inspector.cache.timeline.add(spanUpdating, w.number, time.Now())
		w.keepHits(f, tensors)
		w.setAside(f, tensors)
		if failed = w.returnRest(f, tensors); failed == nil {
			f.EnterRows(tensors)
		}
	})
	if err = cmp.Or(err, failed); err != nil {
		w.inspector.cache.trained.lose(err)
		return err
	}
	w.super.closePacks(w.number)
	w.inspector.cache.trained.step.add(f, endsStep)
	return nil
}

// keepHits marks the rows of the batch as changed, which no longer are away or stale, and copies those that were in
// slots back into them.
func (w *Batch) keepHits(f *fetch.Filler, tensors [][]byte) {
	for i := range w.inspector.cache.trained.tables {
		t := &w.inspector.cache.trained.tables[i]
		t.eachOwn(f, func(row uint32, record []byte) {
			embed.Mark(record, t.local(row))
			t.back.Take(t.local(row))
		})
		if len(f.Lookup.HitRows) > 0 {
			hits, slots := f.HitsOf(t.Table)
			f.Features.ToSlots(t.Table, slots, tensors[t.Index], hits)
		}
	}
}

// refusal is rows of a table that a pack did not take.
type refusal struct {
	table *fetch.Table
	leave []plan.Forward
	slots bool // those in slots, else those of the batch's own tensor
}

// refuse records rows that a pack did not take, where their table would lose them. Movers call it side by side.
func (w *Batch) refuse(t *fetch.Table, leave []plan.Forward, slots bool) {
	if t.Trained == nil {
		return // whoever needs them reads them
	}
	w.refusing.Lock()
	defer w.refusing.Unlock()
	w.refused = append(w.refused, refusal{t, leave, slots})
}

// returnRest returns the rows of tables that leave and are in no pack: rows that packs refused, rows in slots that
// others enter or that are vacated, and the batch's own rows.
func (w *Batch) returnRest(f *fetch.Filler, tensors [][]byte) error {
	all, rows := w.inspector.cache.trained, f.Drawn.BatchRows.Rows
	staying := w.staying(f)
	for i := range all.tables {
		t := &all.tables[i]
		dst, base := tensors[t.Index], f.Drawn.FirstRow(t.Type)
		own := func(pos int32) []byte { return dst[int(f.Drawn.BatchRows.TensorRow(pos)-base)*t.Width:][:t.Width] }
		var failed error
		give := func(row uint32, record []byte) { failed = cmp.Or(failed, t.lose(t.back.Add(t.local(row), record))) }
		for _, r := range w.refused {
			for _, row := range r.leave {
				switch {
				case r.table != t.Table || row.From >= 0 != r.slots || !forwards(f, t.Table, row):
				case r.slots:
					give(f.Features.Resident.Rows[row.From], f.Features.SlotRow(t.Table, row.From))
				default:
					give(rows[^row.From], own(^row.From))
				}
			}
		}
		for _, pos := range f.ColdOf(t.Table) {
			if !all.inTurn && !staying.Has(int64(pos)) {
				give(rows[pos], own(pos))
			}
		}
		if failed != nil {
			return failed
		}
	}
	if all.inTurn {
		w.leaveInHand(f, tensors, staying)
	}
	w.refused = w.refused[:0]
	for _, row := range f.Step.Forward {
		if row.From >= 0 {
			f.Features.Resident.Clear(row.From)
		}
	}
	for _, in := range f.Step.In {
		if err := all.returnSlot(in.Slot); err != nil {
			return err
		}
	}
	for _, slot := range w.adapted.Vacate {
		if err := all.returnSlot(slot); err != nil {
			return err
		}
		f.Features.Resident.Clear(slot)
	}
	return nil
}

// keepConstant copies the rows at the positions that stay, of tables that training does not change, before the consumer
// has the batch.
func keepConstant(f *fetch.Filler, tensors [][]byte, staying bitset.Set) {
	for _, t := range f.Features.OnDisk {
		if t.Trained != nil {
			continue
		}
		src, dst, base := tensors[t.Index], f.Tensors[t.Index], f.Drawn.FirstRow(t.Type)
		for _, pos := range f.ColdOf(t) {
			if staying.Has(int64(pos)) {
				at := int(f.Drawn.BatchRows.TensorRow(pos)-base) * t.Width
				copy(dst[at:at+t.Width], src[at:])
			}
		}
	}
}

// staying returns the cold positions whose rows enter slots or go to packs.
func (w *Batch) staying(f *fetch.Filler) bitset.Set {
	w.stays = reuse.Zeros(w.stays, int(bitset.Words(int64(len(f.Drawn.BatchRows.Rows)))))
	for _, in := range f.Step.In {
		w.stays.Add(int64(in.Pos))
	}
	for _, row := range f.Step.Forward {
		if row.From < 0 {
			w.stays.Add(int64(^row.From))
		}
	}
	return w.stays
}
