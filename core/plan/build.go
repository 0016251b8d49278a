package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// builder writes a method into the plan.
type builder struct {
	*window
	method
	cuts   cuts
	memory arena
	rows   []int32 // by batch: what is put into its pack
	filled bitset  // slots that the prologue fills for the step at hand

	scanned *spread[coldRow] // what the prologue reads
	along   *spread[along]   // what steps read along
	extra   []along          // of those, a range by step
	taken   int              // the ranges of along that were
	read    arena            // of extra
	early   []Forward        // what the prologue sets aside
	step    built
}

// along is a row that is read along: by which step, and for which access.
type along struct{ leader, row, at uint32 }

// built is the delta of the step at hand.
type built struct {
	filled  []int32
	forward []Forward
	extra   []Extra
}

// build writes a method into the plan. Where there is no memory for what it needs, the plan is left as it was.
func (w *window) build(ctx context.Context, m method) error {
	if m == (method{}) {
		return nil
	}
	b := builder{window: w, method: m, memory: arena{budget: w.memory.budget}, read: arena{budget: w.memory.budget}}
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
		clear(w.aheadHeld)
		return err
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
	b.rows = make([]int32, len(b.batches))
	b.filled = make(bitset, bitsetWords(int(b.config.Capacity)))
	var err error
	switch {
	case b.sharesPages(b.method):
		err = b.readAlong(ctx)
	case b.scan:
		early, limit := b.window.scanned(b.method)
		b.cuts = b.cut(b.method, early, limit)
		b.scanned, err = newSpread[coldRow](&b.memory, b.storage, &b.cold.keys)
	default:
		b.cuts = b.cut(b.method, nil, 0)
	}
	if err != nil {
		return err
	}
	b.plan.deltas = make([]delta, b.current)
	err = b.cold.each(ctx, func(batch int, rows []coldRow, leave []leaver) error {
		if batch >= b.current {
			return nil
		}
		return b.delta(ctx, batch, rows, leave)
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

// delta makes that of a step.
func (b *builder) delta(ctx context.Context, batch int, rows []coldRow, leave []leaver) error {
	s := &b.step
	s.filled, s.forward, s.extra = s.filled[:0], s.forward[:0], s.extra[:0]
	if b.scan {
		if err := b.scanBatch(ctx, batch, rows); err != nil {
			return err
		}
	}
	if b.forward {
		if err := b.setAside(leave); err != nil {
			return err
		}
	}
	if b.along != nil {
		if err := b.readBy(ctx, uint32(batch)); err != nil {
			return err
		}
	}
	if len(s.filled)+len(s.forward)+len(s.extra) == 0 {
		return nil
	}
	record, err := b.storage.Put(mem.Bytes(s.filled), mem.Bytes(s.forward), mem.Bytes(s.extra))
	b.plan.deltas[batch] = delta{record, len(s.filled), len(s.forward), len(s.extra)}
	return err
}

// atHand tells whether the row of an access, which a batch needs, is set aside earlier.
func (b *builder) atHand(batch, a uint32) bool {
	return b.forward && batch < b.cuts.leaving && b.leaving.has(a)
}

// counted counts a row into the pack of its batch.
func (b *builder) counted(d Dest) Dest {
	b.rows[d.Batch]++
	if int(d.Batch) >= b.current {
		b.aheadHeld.set(b.offsets[d.Batch] + uint32(d.Pos) - b.offsets[b.current])
	}
	return d
}

// scanBatch takes from a step what the prologue reads for it: rows for its slots, and for its pack.
func (b *builder) scanBatch(ctx context.Context, batch int, rows []coldRow) error {
	n := int(b.offsets[batch+1] - b.offsets[batch])
	clear(b.filled)
	return loaded(ctx, b.plan.steps[batch], func(data []byte) error {
		moves := mem.View[cache.Move](data[4*n:])
		k := 0
		for _, r := range rows {
			a := r.at & accessMask
			switch {
			case b.forward && r.at&flagLeaving != 0 && uint32(batch) < b.cuts.leaving:
				continue
			case r.at&flagFilling == 0:
				if uint32(batch) >= b.cuts.early {
					continue
				}
				b.counted(b.dest(a))
				r.at = a
			default:
				for moves[k].Pos < int32(a-b.offsets[batch]) {
					k++
				}
				slot := ^moves[k].Slot
				b.step.filled = append(b.step.filled, int32(k))
				b.filled.set(uint32(slot))
				r.at = flagFilling | uint32(slot)
			}
			if err := b.scanned.put(r.row, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// setAside gives a step what it sets aside. What leaves a slot that the prologue fills is set aside before.
func (b *builder) setAside(leave []leaver) error {
	for _, e := range leave {
		if !b.atHand(b.batchOf(e.access), e.access) {
			continue
		}
		f := Forward{From: e.from, Dest: b.counted(b.dest(e.access))}
		if e.from < 0 || !b.filled.has(uint32(e.from)) {
			b.step.forward = append(b.step.forward, f)
			continue
		}
		if b.early = append(b.early, f); int64(len(b.early))*size[Forward]() >= spreadBytes {
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
	record, err := b.storage.Put(mem.Bytes(b.early))
	if err != nil {
		return err
	}
	b.plan.Prologue.forwards, b.early = append(b.plan.Prologue.forwards, record), b.early[:0]
	return nil
}

// sortScanned puts what the prologue reads in the order of the file.
func (b *builder) sortScanned(ctx context.Context) error {
	p := &b.plan.Prologue
	slotPages := int64(max(b.config.SlotBytes/ssd.PageBytes, 1))
	p.HolePages = ssd.DefaultHole
	if b.priced {
		p.HolePages = scanPrice(b.config.Device, slotPages).hole(slotPages)
	}
	for r, n := range b.scanned.counts {
		if n == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		own := arena{budget: b.memory.budget}
		rows, err := b.scanned.take(ctx, r, &own)
		if err == nil {
			var record Record
			if record, err = b.storage.Put(mem.Bytes(sortByRow(rows))); err == nil {
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

// readAlong finds which step reads which rows along for later ones. Pages that lie in two ranges of rows are read for
// each.
func (b *builder) readAlong(ctx context.Context) error {
	b.cuts = cuts{leaving: uint32(len(b.batches)), early: uint32(len(b.batches))}
	early := make([]float64, len(b.batches))
	err := b.eachLed(ctx, func(batch, _ uint32, _ coldRow) error {
		early[batch]++
		return nil
	})
	if err != nil {
		return err
	}
	b.cuts = b.cut(b.method, early, b.room.total())
	leaders := newHistogram(int64(b.current))
	err = b.eachLed(ctx, func(_, leader uint32, _ coldRow) error {
		leaders.add(leader)
		return nil
	})
	if err != nil {
		return err
	}
	if b.along, err = newSpread[along](&b.memory, b.storage, &leaders); err != nil {
		return err
	}
	return b.eachLed(ctx, func(_, leader uint32, r coldRow) error {
		b.counted(b.dest(r.at & accessMask))
		return b.along.put(leader, along{leader, r.row, r.at & accessMask})
	})
}

// eachLed calls visit for every row that an earlier batch, its leader, reads along for a batch, by rising rows.
func (b *builder) eachLed(ctx context.Context, visit func(batch, leader uint32, r coldRow) error) error {
	own := arena{budget: b.memory.budget}
	defer own.release()
	rows, err := newSpread[coldRow](&own, b.storage, &b.cold.keys)
	if err != nil {
		return err
	}
	defer rows.free()
	err = b.cold.each(ctx, func(_ int, all []coldRow, _ []leaver) error {
		for _, r := range all {
			if err := rows.put(r.row, r); err != nil {
				return err
			}
		}
		return nil
	})
	for r := 0; r < len(rows.counts) && err == nil; r++ {
		err = b.ledIn(ctx, rows, r, visit)
	}
	return err
}

func (b *builder) ledIn(
	ctx context.Context, rows *spread[coldRow], r int, visit func(batch, leader uint32, r coldRow) error,
) error {
	own := arena{budget: b.memory.budget}
	defer own.release()
	all, err := rows.take(ctx, r, &own)
	if err != nil || len(all) == 0 {
		return err
	}
	s := &sample{window: b.window, rows: sortByRow(all), scale: 1}
	if s.batch, err = alloc[uint32](&own, len(s.rows)); err != nil {
		return err
	}
	for i, c := range s.rows {
		s.batch[i] = b.batchOf(c.at & accessMask)
	}
	s.leaders(b.method, b.cuts, func(i int, leader uint32) {
		if err == nil {
			err = visit(s.batch[i], leader, s.rows[i])
		}
	})
	return err
}

// readBy gives a step what it reads along.
func (b *builder) readBy(ctx context.Context, step uint32) error {
	if r := int(b.along.rangeOf[step>>b.along.shift]); r >= b.taken {
		b.read.release()
		all, err := b.along.take(ctx, r, &b.read)
		if err != nil {
			return err
		}
		b.extra, b.taken = all, r+1
		slices.SortStableFunc(b.extra, func(x, y along) int { return cmp.Compare(x.leader, y.leader) })
	}
	for len(b.extra) > 0 && b.extra[0].leader <= step {
		e := b.extra[0]
		b.step.extra = append(b.step.extra, Extra{Row: e.row, Dest: b.dest(e.at)})
		b.extra = b.extra[1:]
	}
	return nil
}
