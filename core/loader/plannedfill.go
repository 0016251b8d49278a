package loader

import (
	"fmt"
	"freshgo/core/batch"
	"time"

	"freshgo/core/draw"
	"freshgo/core/internal/reuse"
	"freshgo/core/plan"
	"freshgo/core/scratch"
)

// fill executes the step of a batch (Ginex, section 3.3): rows come from slots, from the packs that earlier batches
// filled, and from the store; then the slots change as planned, and rows that leave go to the packs of later batches.
func (c *plannedCache) fill(p *preparer, b *batch.Batch, tensors [][]byte) error {
	c.idleGate.enter()
	defer c.idleGate.leave()
	w := &p.window
	if err := p.lookUp(p.step.Slots); err != nil {
		return err
	}
	start := time.Now()
	if err := c.readPacks(p, tensors); err != nil {
		return err
	}
	if err := p.readTables(tensors, c.readRows); err != nil {
		return err
	}
	c.timeline.add(spanReading, w.number, start)
	w.super.done(w.number)

	if err := p.epoch.turn.enter(b.Index); err != nil {
		return err
	}
	defer p.epoch.turn.leave()
	if w.super.inspector.isPlanLost(w.number) {
		if err := c.repair(p, tensors); err != nil {
			return err
		}
		return p.timed(func() { p.copyCached(tensors) })
	}
	return p.timed(func() {
		p.copyCached(tensors)
		c.setAside(p, tensors)
		for _, slot := range w.adapted.Vacate {
			c.loader.rows.resident.clear(slot)
		}
		p.enterRows(tensors)
	})
}

// readPacks copies what the packs of a batch hold into its tensors. A pack that fails has not brought its rows, which
// are then read from the store.
func (c *plannedCache) readPacks(p *preparer, tensors [][]byte) error {
	l, k, rows := c.loader, &p.lookup, len(p.drawn.BatchRows.Rows)
	k.delivered = reuse.Slice(k.delivered, len(l.rows.columns)*rows)
	clear(k.delivered)
	for _, packs := range p.window.super.packsFor(p.window.number) {
		for column, pack := range packs.columns {
			if pack == nil {
				continue
			}
			delivered := k.deliveredTo(column, rows)
			err := pack.Seal()
			if err == nil {
				err = pack.Read(p.epoch.ctx, func(pos scratch.Positions, rows []byte) error {
					c.takeFrom(p, column, l.rows.columns[column], tensors, delivered, pos, rows)
					return nil
				})
			}
			if p.epoch.ctx.Err() != nil {
				return draw.ErrStopped
			}
			if err != nil {
				l.counters.PackErrors.Add(1)
			}
		}
	}
	return nil
}

// readRows reads the cold rows of a table that the packs of the batch did not bring, and along with them rows of the
// same pages for later batches.
func (c *plannedCache) readRows(p *preparer, t *table, dst []byte) error {
	l, k, s := c.loader, &p.lookup, p.window.super
	cold, base, delivered := p.coldOf(t), p.drawn.FirstRow(t.Type), k.deliveredTo(t.cached, len(p.drawn.BatchRows.Rows))
	k.wanted, k.from = k.wanted[:0], k.from[:0]
	for _, pos := range cold {
		if !delivered[pos] {
			k.wanted = append(k.wanted, int64(p.drawn.BatchRows.Rows[pos])-t.First)
			k.from = append(k.from, pos)
		}
	}
	if t.cached == 0 { // a row counts once, whatever tables it is in
		l.counters.Misses.Add(int64(len(k.wanted)))
		l.counters.Packed.Add(int64(len(cold) - len(k.wanted)))
	}
	for i, e := range p.step.Extra {
		if s.packs[e.Batch].empty() || !t.has(e.Row) {
			continue
		}
		k.wanted = append(k.wanted, int64(e.Row)-t.First)
		k.from = append(k.from, ^int32(i))
	}
	return t.disk.Read(p.epoch.ctx, &p.scratch.Merger, k.wanted, func(i int32, row []byte) error {
		if from := k.from[i]; from >= 0 {
			p.deliver(t, dst, p.drawn.BatchRows.TensorRow(from)-base, row)
		} else {
			e := &p.step.Extra[^from]
			s.packs[e.Batch].add(t.cached, e.Pos, row)
		}
		return nil
	})
}

// repair reads the rows of a batch without a plan that are not in the slots where its step expects them.
func (c *plannedCache) repair(p *preparer, tensors [][]byte) error {
	l, k := c.loader, &p.lookup
	k.hitRows, k.hitSlots, k.cold = k.hitRows[:0], k.hitSlots[:0], k.cold[:0]
	for i, slot := range p.step.Slots {
		to := p.drawn.BatchRows.TensorRow(int32(i))
		switch {
		case slot < 0 || to < 0:
		case l.rows.resident.rows[slot] == p.drawn.BatchRows.Rows[i]:
			k.hitRows, k.hitSlots = append(k.hitRows, to), append(k.hitSlots, slot)
		default:
			k.cold = append(k.cold, int32(i))
		}
	}
	if len(k.cold) == 0 {
		return nil
	}
	l.counters.Hits.Add(-int64(len(k.cold)))
	l.counters.Misses.Add(int64(len(k.cold)))
	for _, t := range l.rows.onDisk {
		if tensors[t.index] == nil {
			continue
		}
		if err := p.readCold(t, tensors[t.index]); err != nil {
			return fmt.Errorf("reading %s: %w", l.draw.Parts.Schema.Describe(&t.Tensor), err)
		}
	}
	return nil
}

// setAside copies the rows of a step that leave to their packs.
func (c *plannedCache) setAside(p *preparer, tensors [][]byte) {
	l, leave := c.loader, p.step.Forward
	if len(leave) == 0 {
		return
	}
	start := time.Now()
	among(l.rows.movers, len(leave), func(lo, hi int) {
		var slots, own rowCopies
		for leave := leave[lo:hi]; len(leave) > 0; {
			n := 1 // rows of one pack follow each other: a plan evicts the rows with the farthest next use first
			for n < len(leave) && leave[n].Batch == leave[0].Batch {
				n++
			}
			packs := p.window.super.packs[leave[0].Batch]
			for _, t := range l.rows.onDisk {
				c.leaving(p, t, leave[:n], &slots, &own)
				packs.addRows(t.cached, slots, l.rows.cached.Table(t.cached), l.rows.columns[t.cached])
				packs.addRows(t.cached, own, tensors[t.index], t.Width)
			}
			leave = leave[n:]
		}
	})
	c.timeline.add(spanPacking, p.window.number, start)
}

// leaving finds those rows that a table has: in slots, or in the batch's own tensor.
func (c *plannedCache) leaving(p *preparer, t *table, leave []plan.Forward, slots, own *rowCopies) {
	slots.clear()
	own.clear()
	base, all := p.drawn.FirstRow(t.Type), t.hasAll(p.loader.draw.Parts.NumNodes)
	for _, f := range leave {
		switch {
		case !all && !forwards(p, t, f):
		case f.From >= 0:
			slots.add(f.Pos, f.From)
		default:
			own.add(f.Pos, p.drawn.BatchRows.TensorRow(^f.From)-base)
		}
	}
}

// forwards reports whether a table has the row that is forwarded.
func forwards(p *preparer, t *table, f plan.Forward) bool {
	if f.From >= 0 {
		return t.has(p.loader.rows.resident.rows[f.From])
	}
	return t.has(p.drawn.BatchRows.Rows[^f.From])
}
