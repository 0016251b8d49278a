package loader

import (
	"fmt"
	"slices"
	"time"

	"freshgo/core/internal/invariants"
	"freshgo/core/plan"
)

// commit copies cached rows into the tensors and then changes the cache, after
// every batch before has done so. A consumer may write to its tensors, so the
// cache takes its rows from them before the batch is handed over.
func (p *preparer) commit(b *Batch, tensors [][]byte) error {
	l := p.loader
	if len(l.onDisk) == 0 {
		return nil
	}
	if l.changing() && !p.onDemand {
		if err := p.epoch.turn.enter(b.Index); err != nil {
			return err
		}
		defer p.epoch.turn.leave()
	}
	planLost := p.super != nil && p.super.inspector.isPlanLost(p.number)
	if planLost {
		if err := p.repair(tensors); err != nil {
			return err
		}
	}
	return p.timed(func() {
		for _, t := range l.onDisk {
			dst := tensors[t.index]
			if len(p.lookup.hitRows) > 0 {
				hits, slots := p.hitsOf(t)
				l.fromSlots(t, dst, hits, slots)
				if invariants.Enabled {
					for _, row := range hits {
						p.deliveries.add(t, row)
					}
				}
			}
			p.repeatRows(t, dst)
		}
		if invariants.Enabled {
			p.deliveries.check(p)
		}
		if !planLost && !p.onDemand {
			p.change(tensors)
		}
	})
}

// repair reads the rows of a batch without a plan that are not in the slots where its step expects them.
func (p *preparer) repair(tensors [][]byte) error {
	l, k := p.loader, &p.lookup
	k.hitRows, k.hitSlots, k.cold = k.hitRows[:0], k.hitSlots[:0], k.cold[:0]
	for i, slot := range p.step.Slots {
		to := p.batchRows.tensorRow(int32(i))
		switch {
		case slot < 0 || to < 0:
		case l.resident.rows[slot] == p.batchRows.rows[i]:
			k.hitRows, k.hitSlots = append(k.hitRows, to), append(k.hitSlots, slot)
		default:
			k.cold = append(k.cold, int32(i))
		}
	}
	if len(k.cold) == 0 {
		return nil
	}
	l.counters.hits.Add(-int64(len(k.cold)))
	l.counters.misses.Add(int64(len(k.cold)))
	for _, t := range l.onDisk {
		if tensors[t.index] == nil {
			continue
		}
		if err := p.readCold(t, tensors[t.index]); err != nil {
			return fmt.Errorf("reading %s: %w", l.parts.types.describe(&t.tensor), err)
		}
	}
	return nil
}

// hitsOf returns the rows of a table's tensor that are in the cache, and their slots.
func (p *preparer) hitsOf(t *table) (to, slots []int32) {
	k, of := &p.lookup, p.typeOffsets.rows
	if len(of) == 2 {
		return k.hitRows, k.hitSlots // of one type: all rows
	}
	base := p.base(t)
	lo, _ := slices.BinarySearch(k.hitRows, base)
	hi, _ := slices.BinarySearch(k.hitRows, int32(of[t.typ+1]))
	k.hitsOfType = k.hitsOfType[:0]
	for _, row := range k.hitRows[lo:hi] {
		k.hitsOfType = append(k.hitsOfType, row-base)
	}
	return k.hitsOfType, k.hitSlots[lo:hi]
}

// repeatRows copies the rows of repeated seeds within the tensor of a table.
func (p *preparer) repeatRows(t *table, dst []byte) {
	base, end := p.base(t), p.typeOffsets.nodes[t.typ+1]
	for _, c := range p.batchRows.copies {
		if row := c.row - base; row >= 0 && int64(c.row) < end {
			p.deliver(t, dst, row, dst[int(c.of-base)*t.width:])
		}
	}
}

// change applies the step: rows that leave go to their packs, then rows of the
// batch enter.
func (p *preparer) change(tensors [][]byte) {
	l := p.loader
	p.setAside(tensors)
	for _, slot := range p.adapted.Vacate {
		l.resident.clear(slot)
	}
	if len(p.step.In) == 0 {
		return
	}
	k := &p.lookup // its hits are copied already
	for _, t := range l.onDisk {
		base := p.base(t)
		k.hitRows, k.hitSlots = k.hitRows[:0], k.hitSlots[:0]
		for _, in := range p.step.In {
			if t.has(p.batchRows.rows[in.Pos]) {
				k.hitRows = append(k.hitRows, p.batchRows.tensorRow(in.Pos)-base)
				k.hitSlots = append(k.hitSlots, in.Slot)
			}
		}
		l.toSlots(t, k.hitSlots, tensors[t.index], k.hitRows)
	}
	for _, in := range p.step.In {
		l.resident.set(in.Slot, p.batchRows.rows[in.Pos])
	}
}

// setAside copies the rows of a step that leave to their packs.
func (p *preparer) setAside(tensors [][]byte) {
	l, leave := p.loader, p.step.Forward
	if len(leave) == 0 {
		return
	}
	start := time.Now()
	among(l.movers, len(leave), func(lo, hi int) {
		var slots, own rowCopies
		for leave := leave[lo:hi]; len(leave) > 0; {
			n := 1 // rows of one pack follow each other: a plan evicts the rows with the farthest next use first
			for n < len(leave) && leave[n].Batch == leave[0].Batch {
				n++
			}
			packs := p.super.packs[leave[0].Batch]
			for _, t := range l.onDisk {
				p.leaving(t, leave[:n], &slots, &own)
				packs.addRows(t.cached, slots, l.cached.Table(t.cached), l.columns[t.cached])
				packs.addRows(t.cached, own, tensors[t.index], t.width)
			}
			leave = leave[n:]
		}
	})
	l.planned.timeline.add(spanPacking, p.number, start)
}

// leaving finds those rows that a table has: in slots, or in the batch's own tensor.
func (p *preparer) leaving(t *table, leave []plan.Forward, slots, own *rowCopies) {
	slots.clear()
	own.clear()
	base, all := p.base(t), t.hasAll(p.loader.parts.numNodes)
	for _, f := range leave {
		switch {
		case !all && !p.forwards(t, f):
		case f.From >= 0:
			slots.add(f.Pos, f.From)
		default:
			own.add(f.Pos, p.batchRows.tensorRow(^f.From)-base)
		}
	}
}

// forwards reports whether a table has the row that is forwarded.
func (p *preparer) forwards(t *table, f plan.Forward) bool {
	if f.From >= 0 {
		return t.has(p.loader.resident.rows[f.From])
	}
	return t.has(p.batchRows.rows[^f.From])
}
