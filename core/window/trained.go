package window

import (
	"context"
	"errors"
	"sort"
	"sync"

	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/fetch"
	"freshgo/core/mem"
	"freshgo/core/scratch"
)

// Tables that training changes (package embed). Each of their rows has one living copy: in the tensor of the batch that
// the consumer has, in a slot, in the pack of the batch that needs it next, among the rows that go back to the file
// (embed.Returned), or in the file. So the turn of a batch begins when it takes its rows from the slots, and ends when
// the consumer is done with it and its rows have gone on: see Batch.Commit.
//
// A row that is read ahead of a turn, by a prologue, by the page or along with other rows, may be older than the living
// copy: if a batch between the read and the turn has changed it. Then the plan knows the slot or the pack that has the
// living copy; or the row is away: it was returned since the window began, and not taken since. So a batch brings rows
// that are away in its turn, whatever the plan is. When a window begins, what was returned in the window before is in
// the file, and stale in what that window has read for this one: in an early prologue, or along with other rows. Stale
// rows are read again in the turn too. They are few, since a plan keeps or forwards what the next window needs.
//
// Where a history prunes batches, plans are for the batches as they are drawn, never for a forecast of their pruning.
// So a plan knows each row that a batch may need, and no such row waits for a later batch, or in a slot that the batch
// does not know. A row that pruning has taken out of the batch for which it waits in a pack is returned in the turn of
// that batch, and a row whose slot is vacated in its Commit. No prologue runs early: it waits for Commits, a Commit for
// the update before it, and that update for batches of windows that the inspector publishes after the prologue.

// trained is the tables of a loader that training changes.
type trained struct {
	features *fetch.Features
	tables   []trainedTable
	// inTurn: batches read their rows in their turns, not ahead of them. Then a row can be forwarded to the very next
	// batch, where the cache cannot keep the rows of the batches in flight.
	inTurn bool
	hand   inHand // inTurn only
	step   stepSlots
}

// trainedTable is a table, and its rows on their way back.
type trainedTable struct {
	*fetch.Table
	back   *embed.Returned
	before embed.Moved // when the loader was opened
}

// openTrained opens what the tables need for the life of a loader. Their memory was counted before (draw.SizesOf).
func openTrained(m *draw.Sampling, features *fetch.Features) (*trained, error) {
	flight := int64(max(m.Split.Prefetch, 1)) * m.Demand.Nodes
	all := &trained{features: features, inTurn: len(features.Trained) > 0 && m.Split.CacheRows < flight}
	for _, t := range features.Trained {
		back, err := embed.NewReturned(t.Trained, mem.NewBudget(0), m.Options.ReturnedRoom())
		if err != nil {
			return nil, err
		}
		m.OnClose(back.Close)
		all.tables = append(all.tables, trainedTable{t, back, t.Trained.Moved()})
	}
	return all, nil
}

// lose records an error after which rows are in no file, and returns it.
func (t *trainedTable) lose(err error) error {
	if err != nil {
		t.Trained.Lose(err)
	}
	return err
}

// local returns the row of the table that is a row of the graph.
func (t *trainedTable) local(row uint32) uint32 { return uint32(int64(row) - t.First) }

// eachOwn calls visit with the table's rows of a batch and their records in the batch's tensor.
func (t *trainedTable) eachOwn(f *fetch.Filler, visit func(row uint32, record []byte)) {
	records, base := f.Tensors[t.Index], f.Drawn.FirstRow(t.Type)
	for pos, row := range f.Drawn.BatchRows.Rows {
		if at := f.Drawn.BatchRows.TensorRow(int32(pos)); at >= 0 && t.Has(row) {
			visit(row, records[int(at-base)*t.Width:][:t.Width])
		}
	}
}

// lose records an error after which rows of any table may be in no file.
func (a *trained) lose(err error) {
	for i := range a.tables {
		_ = a.tables[i].lose(err)
	}
}

// err returns why a table cannot be trained, or nil.
func (a *trained) err() error {
	for i := range a.tables {
		if err := a.tables[i].Trained.Err(); err != nil {
			return err
		}
	}
	return nil
}

// settle writes the rows that are on their way back into the files. No row is away afterwards. If packs that were read
// before are still used, rows that were away are stale.
func (a *trained) settle(used bool) error {
	if err := a.returnHand(nil); err != nil {
		return err
	}
	for i := range a.tables {
		t := &a.tables[i]
		if err := t.lose(t.back.Settle(used)); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the rows that are on their way back into the files. They stay away.
func (a *trained) flush() error {
	for i := range a.tables {
		t := &a.tables[i]
		if err := t.lose(t.back.Flush()); err != nil {
			return err
		}
	}
	return nil
}

// returnSlot returns the rows in a slot that have changed.
func (a *trained) returnSlot(slot int32) error {
	row := a.features.Resident.Rows[slot]
	if row == fetch.Vacant {
		return nil
	}
	for i := range a.tables {
		t := &a.tables[i]
		if !t.Has(row) {
			continue
		}
		if record := a.features.SlotRow(t.Table, slot); embed.Changed(record) {
			if err := t.lose(t.back.Add(t.local(row), record)); err != nil {
				return err
			}
		}
	}
	return nil
}

// returnSlots returns all rows in slots that have changed. The slots keep them.
func (a *trained) returnSlots() (err error) {
	a.features.Resident.All(func(slot int32, row uint32) {
		if err == nil {
			err = a.returnSlot(slot)
		}
		for i := range a.tables {
			if t := &a.tables[i]; t.Has(row) {
				embed.Unmark(a.features.SlotRow(t.Table, slot), t.local(row))
			}
		}
	})
	return err
}

// forwardSlot puts the rows in a slot aside for a batch. Rows of tables that training changes are returned where the
// pack does not take them; then the slot is empty.
func (a *trained) forwardSlot(packs *batchPacks, pos int32, slot int32) error {
	row := a.features.Resident.Rows[slot]
	for column := range a.features.Columns {
		if packs.add(column, pos, a.features.Slots.Row(column, int64(slot))) {
			continue
		}
		for i := range a.tables {
			if t := &a.tables[i]; t.Column == column && t.Has(row) {
				if err := t.lose(t.back.Add(t.local(row), a.features.SlotRow(t.Table, slot))); err != nil {
					return err
				}
			}
		}
	}
	if len(a.tables) > 0 {
		a.features.Resident.Clear(slot)
	}
	return nil
}

// span is the positions of a table's rows in a batch.
type span struct{ lo, hi int32 }

// spans returns the span of each table in a batch of these rows, which ascend by type.
func (a *trained) spans(rows []uint32) (spans []span) {
	before := func(end int64) int32 {
		return int32(sort.Search(len(rows), func(i int) bool { return int64(rows[i]) >= end }))
	}
	for i := range a.tables {
		t := &a.tables[i]
		spans = append(spans, span{before(t.First), before(t.First + t.NumRows)})
	}
	return spans
}

// drain brings the rows back that wait in windows which will not be executed further. Afterwards every row is in its
// file or in a slot, unless the table has lost it.
func (a *trained) drain(windows []*superbatch) {
	for _, s := range windows {
		for k, packs := range s.packs {
			if a.returnPacked(packs, s.spans[k], func(int32) bool { return true }) != nil {
				return // the table says so from now on
			}
		}
	}
	_ = a.settle(false) // likewise
}

// returnPacked returns the changed rows that wait in the packs of a batch, at the positions that it lacks.
func (a *trained) returnPacked(packs *batchPacks, spans []span, lacks func(pos int32) bool) error {
	for i := range a.tables {
		t := &a.tables[i]
		pack := packs.column(t.Column)
		if pack == nil || errors.Is(pack.Seal(), scratch.ErrClosed) {
			continue // of a batch that was made
		}
		var mu sync.Mutex
		own, width := spans[i], a.features.Columns[t.Column]
		err := pack.Read(context.Background(), func(at scratch.Positions, data []byte) error {
			mu.Lock()
			defer mu.Unlock()
			for i := range at.Len() {
				record := data[i*width:][:t.Width]
				if pos := at.At(i); pos < own.lo || pos >= own.hi || !lacks(pos) || !embed.Changed(record) {
					continue
				}
				if row := embed.Row(record); !t.back.Away(row) && !t.back.Stale(row) { // else PutRows has written it since
					if err := t.back.Add(row, record); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if errors.Is(err, scratch.ErrClosed) {
			continue
		}
		if err := t.lose(err); err != nil {
			return err
		}
	}
	return nil
}

// returnPruned returns the rows that wait for a batch and that pruning has taken out of it.
func (a *trained) returnPruned(w *Batch, f *fetch.Filler) error {
	if !w.lacks.Load() {
		return nil
	}
	spans := a.spans(f.Drawn.BatchRows.Rows)
	lacks := func(pos int32) bool { return f.Drawn.BatchRows.TensorRow(pos) < 0 }
	for _, packs := range w.super.packsFor(w.number) {
		if err := a.returnPacked(packs, spans, lacks); err != nil {
			return err
		}
	}
	return nil
}

// fillTrained is Fill where training changes rows: the turn of the batch lasts until Commit.
func (w *Batch) fillTrained(f *fetch.Filler, i int64, tensors [][]byte) error {
	c := w.inspector.cache
	read := func() error {
		c.idleGate.enter()
		defer c.idleGate.leave()
		return w.read(f, tensors)
	}
	enter := func() error { return f.Turns.Cache.Enter(i) }
	steps := []func() error{read, enter}
	if c.trained.inTurn {
		steps = []func() error{enter, read}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	c.idleGate.enter()
	defer c.idleGate.leave()
	for _, step := range []func() error{
		c.trained.err,
		func() error { return c.trained.returnPruned(w, f) },
		func() error { return w.bringAway(f, tensors) },
		func() error {
			return f.Timed(func() {
				f.CopyCached(tensors)
				keepConstant(f, tensors, w.staying(f))
			})
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for i := range c.trained.tables {
		t := c.trained.tables[i].Table
		hits, _ := f.HitsOf(t)
		f.Counters.TableRows.Add(int64(len(f.ColdOf(t)) + len(hits)))
	}
	return w.keepTaken(f, tensors)
}

// WriteBack writes rows that go back to tables into the files while the consumer has the batch, where the next batches
// would otherwise have to wait for that. Elsewhere they go in the order of the file when the next window begins. Tables
// say what they have lost.
func (w *Batch) WriteBack() {
	all := w.inspector.cache.trained
	if !all.inTurn {
		return
	}
	for i := range all.tables {
		if t := &all.tables[i]; t.back.Spills() && t.lose(t.back.Flush()) != nil {
			return
		}
	}
}

// bringAway brings the rows of a batch that are away or stale, in place of older ones that were read ahead. They stay
// away until Commit.
func (w *Batch) bringAway(f *fetch.Filler, tensors [][]byte) error {
	for i := range w.inspector.cache.trained.tables {
		t := &w.inspector.cache.trained.tables[i]
		k, dst, base := &f.Lookup, tensors[t.Index], f.Drawn.FirstRow(t.Type)
		k.Wanted, k.From = k.Wanted[:0], k.From[:0]
		delivered, inTurn := k.DeliveredTo(t.Column, len(f.Drawn.BatchRows.Rows)), w.inspector.cache.trained.inTurn
		spilled := false
		for _, pos := range f.ColdOf(t.Table) {
			row, at := t.local(f.Drawn.BatchRows.Rows[pos]), f.Drawn.BatchRows.TensorRow(pos)-base
			away := t.back.Away(row)
			if away || t.back.Stale(row) {
				f.Counters.TableRowsLate.Add(1)
			}
			if away && t.back.Copy(row, dst[int(at)*t.Width:][:t.Width]) || !away && !t.back.Stale(row) {
				continue
			}
			if inTurn && !delivered[pos] && !t.back.Spilled(row) {
				continue // the file had it when it was read, in this turn
			}
			spilled = spilled || away
			k.Wanted, k.From = append(k.Wanted, int64(row)), append(k.From, at)
		}
		if len(k.Wanted) == 0 {
			continue
		}
		if spilled {
			if err := t.lose(t.back.Flush()); err != nil {
				return err
			}
		}
		err := t.Disk.Read(f.Turns.Ctx, &f.Scratch.Merger, k.Wanted, func(i int32, row []byte) error {
			copy(dst[int(k.From[i])*t.Width:], row)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
