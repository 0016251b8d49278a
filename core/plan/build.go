package plan

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// builder writes a method into the plan.
type builder struct {
	w *window
	method
	cuts   cuts
	memory arena
	rows   []int32    // by batch: the rows of its pack
	filled bitset.Set // slots that the prologue fills for the current step

	scanned *spread[coldRow] // the rows that the prologue reads
	along   *spread[along]   // what steps read along
	extra   []along          // the rows of these, a range by step
	taken   int              // the ranges of along that were
	read    arena            // of extra
	early   []Forward        // the rows that the prologue sets aside
	leavers *loads           // of the superbatch, where they are set aside and have to be looked at
	whole   bool             // all leavers are set aside, and counted
	step    built
}

// built is the delta of the current step.
type built struct {
	filled  set32 // of the marked moves, those that the prologue makes
	forward set32 // of the leavers, those that the step sets aside
	all     bool  // it sets all of them aside
	extra   []coldRow
}

// build writes a method into the plan. Without memory for it, the plan is left unchanged.
func (w *window) build(ctx context.Context, m method) error {
	if m == (method{}) {
		return nil
	}
	b := builder{w: w, method: m, memory: arena{budget: w.memory.budget}, read: arena{budget: w.memory.budget}}
	defer b.memory.release()
	err := b.all(ctx)
	b.free()
	if err != nil {
		for i := range w.plan.deltas {
			w.plan.deltas[i].free()
		}
		w.plan.deltas = nil
		w.plan.Prologue.free()
		w.plan.Prologue = Prologue{}
		w.held.free()
		return err
	}
	if m.forward {
		w.plan.leavers, w.cold.leavers = w.cold.leavers, nil
	}
	for dest, n := range b.rows {
		if n > 0 {
			w.plan.Packs = append(w.plan.Packs, PackSize{Dest: int32(dest), Rows: n})
		}
	}
	return nil
}

func (b *builder) free() {
	if b.scanned != nil {
		b.scanned.free()
	}
	if b.along != nil {
		b.along.free()
	}
	b.read.release()
}

func (b *builder) all(ctx context.Context) error {
	b.rows = make([]int32, len(b.w.batches))
	b.filled = bitset.New(b.w.config.Capacity)
	var err error
	switch {
	case b.w.sharesPages(b.method):
		err = b.readAlong(ctx)
	case b.scan:
		early, limit := b.w.scanned(b.method)
		b.cuts = b.w.cut(b.method, early, limit)
		b.scanned, err = newSpread[coldRow](&b.memory, b.w.storage, &b.w.cold.keys)
	default:
		b.cuts = b.w.cut(b.method, nil, 0)
	}
	if err != nil {
		return err
	}
	b.countLeavers()
	b.w.plan.deltas = make([]delta, b.w.current)
	if b.forward {
		b.leavers = b.lookedAt().load(ctx, b.w.storage, loadsAhead(b.w.widest()))
		defer b.leavers.close()
	}
	err = b.w.cold.each(ctx, func(batch int, rows []coldRow, slots []uint32) error {
		return b.delta(ctx, batch, rows, slots)
	})
	if err != nil {
		return err
	}
	if err := b.flushEarly(); err != nil {
		return err
	}
	if b.scan {
		return b.sortScanned(ctx)
	}
	return nil
}

// delta makes the delta of a step.
func (b *builder) delta(ctx context.Context, batch int, rows []coldRow, slots []uint32) error {
	s := &b.step
	s.filled, s.forward, s.extra, s.all = s.filled[:0], s.forward[:0], s.extra[:0], false
	if b.scan {
		if err := b.scanBatch(batch, rows, slots); err != nil {
			return err
		}
	}
	switch {
	case !b.forward || b.w.cold.leavers[batch] == nil:
	case !b.looksAt(batch):
		s.all = true
	default:
		if err := takeFrom(b.leavers, b.setAside); err != nil {
			return err
		}
		if len(s.forward) == 0 {
			b.w.cold.leavers.free(batch)
		}
	}
	if b.along != nil {
		if err := b.readBy(ctx, uint32(batch)); err != nil {
			return err
		}
	}
	b.w.plan.deltas[batch].all = s.all
	if len(s.filled)+len(s.forward)+len(s.extra) == 0 {
		return nil
	}
	record, err := b.w.storage.Put(mem.Bytes(s.filled), mem.Bytes(s.forward), mem.Bytes(s.extra))
	b.w.plan.deltas[batch] = delta{record, len(s.filled), len(s.forward), len(s.extra), s.all}
	return err
}

// countLeavers counts all leavers into the packs of their batches where there is room for all: the residency has
// counted them, and noted the positions of those that batches ahead need.
func (b *builder) countLeavers() {
	c := &b.w.cold
	if b.whole = b.forward && int(b.cuts.leaving) == len(b.w.batches); !b.whole {
		c.leave.ahead.free()
		return
	}
	for dest, n := range c.leaving {
		b.rows[dest] += int32(n)
	}
	for i := range c.leave.ahead {
		unite(&b.w.held[i], &c.leave.ahead[i])
	}
}

// looksAt reports whether the leavers of a batch have to be looked at one by one: some are not set aside, or leave
// slots that the prologue may fill.
func (b *builder) looksAt(batch int) bool {
	return !b.whole || b.scan && !b.w.plan.Early && b.w.cold.filling[batch] > 0
}

// lookedAt returns the records of the leavers that have to be looked at.
func (b *builder) lookedAt() records {
	of := slices.Clone(b.w.cold.leavers[:b.w.current])
	for batch := range of {
		if !b.looksAt(batch) {
			of[batch] = nil
		}
	}
	return of
}

// count counts a row into the pack of its batch.
func (b *builder) count(d Dest) {
	b.rows[d.Batch]++
	if int(d.Batch) >= b.w.current {
		ahead := int(d.Batch) - b.w.current
		b.w.held.add(b.memory.budget, ahead, b.w.batches[d.Batch].Len(), d.Pos)
	}
}

// scanBatch moves from a step to the prologue the rows that the prologue reads for it: for its slots, which slots
// lists, and for its pack.
func (b *builder) scanBatch(batch int, rows []coldRow, slots []uint32) error {
	clear(b.filled)
	marked := 0
	for _, r := range rows {
		a := r.at & accessMask
		fills := r.at&flagFilling != 0
		if fills {
			marked++
		}
		switch {
		case b.forward && r.at&flagLeaving != 0 && uint32(batch) < b.cuts.leaving:
			continue
		case !fills || b.w.plan.Early:
			if uint32(batch) >= b.cuts.early {
				continue
			}
			b.count(b.w.dest(a))
			r.at = a
		default:
			slot := slots[marked-1]
			b.step.filled.put(marked - 1)
			b.filled.Add(int64(slot))
			r.at = flagFilling | slot
		}
		if err := b.scanned.put(r.row, r); err != nil {
			return err
		}
	}
	return nil
}

// setAside adds to a step the rows that it sets aside. A row that leaves a slot which the prologue fills is set aside
// before.
func (b *builder) setAside(leave []leaver) error {
	for i, e := range leave {
		to := b.w.dest(e.access)
		if uint32(to.Batch) >= b.cuts.leaving {
			continue
		}
		if !b.whole {
			b.count(to)
		}
		if e.from < 0 || !b.filled.Has(int64(e.from)) {
			b.step.forward.put(i)
			continue
		}
		if b.early = append(b.early, Forward{e.from, to}); int64(len(b.early))*size[Forward]() >= spreadBytes {
			if err := b.flushEarly(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) flushEarly() error {
	if len(b.early) == 0 {
		return nil
	}
	record, err := b.w.storage.Put(mem.Bytes(b.early))
	if err != nil {
		return err
	}
	b.w.plan.Prologue.forwards, b.early = append(b.w.plan.Prologue.forwards, record), b.early[:0]
	return nil
}

// sortScanned sorts the rows of the prologue in file order.
func (b *builder) sortScanned(ctx context.Context) error {
	p := &b.w.plan.Prologue
	slotPages := int64(max(b.w.config.SlotBytes/ssd.PageBytes, 1))
	p.HolePages = ssd.DefaultHole
	if b.w.priced {
		p.HolePages = scanPrice(b.w.config.Device, slotPages).hole(slotPages)
	}
	ahead := b.w.cold.readsAhead(b.method)
	for r, n := range b.scanned.counts {
		if n == 0 && !ahead {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		own := arena{budget: b.memory.budget}
		rows, err := b.sorted(ctx, r, ahead, &own)
		if err == nil && len(rows) > 0 {
			var record Record
			if record, err = b.w.storage.Put(mem.Bytes(rows)); err == nil {
				p.pieces = append(p.pieces, record)
			}
		}
		own.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// sorted returns the rows of a range that the prologue reads, rising. It adds those of the batches ahead, and counts
// them into their packs.
func (b *builder) sorted(ctx context.Context, r int, ahead bool, a *arena) ([]coldRow, error) {
	room := 0
	if ahead {
		room = b.scanned.counts[r] + int(b.scanned.most[r])
	}
	memory, err := b.scanned.take(ctx, r, room, true, a)
	if err != nil {
		return nil, err
	}
	rows := sortByRow(memory)
	if !ahead {
		return rows, nil
	}
	from, to := b.scanned.within(r)
	rows = b.w.cold.withAhead(rows, from, to, memory[:0])
	kept := rows[:0]
	for _, c := range rows {
		if access := c.at & accessMask; c.at&flagFilling == 0 && int(access) >= b.w.currentEnd() {
			if c.at&flagLeaving != 0 || b.w.batchOf(access) >= b.cuts.early {
				continue
			}
			b.count(b.w.dest(access))
		}
		kept = append(kept, c)
	}
	return kept, nil
}
