package loader

import (
	"fmt"
	"time"

	"freshgo/core/internal/invariants"
	"freshgo/core/internal/reuse"
)

// fill turns edge positions into edge numbers and gathers all rows, in two
// stages. Several batches at a time read what is on disk; what is in the cache is
// copied, and the cache changed, by one batch at a time and in their order.
func (p *preparer) fill(b *Batch) error {
	l := p.loader
	if err := p.numberEdges(); err != nil {
		return err
	}
	tensors, err := p.rowTensors(b)
	if err != nil {
		return err
	}
	if invariants.Enabled {
		p.deliveries.begin(p)
	}
	if err := p.resolve(b, tensors); err != nil {
		return err
	}
	if p.super != nil {
		l.planned.lull.enter()
		defer l.planned.lull.leave()
	}
	start := time.Now()
	if err := p.readPacks(tensors); err != nil {
		return err
	}
	for i := range l.tables {
		t := &l.tables[i]
		if tensors[i] == nil || t.unused {
			continue
		}
		if err := p.gather(t, p.idsOf(t), tensors[i]); err != nil {
			return fmt.Errorf("reading %s: %w", l.parts.types.describe(&t.tensor), err)
		}
	}
	if p.super != nil {
		l.planned.timeline.add(spanReading, p.number, start)
		p.super.done(p.number)
	}
	if err := p.commit(b, tensors); err != nil {
		return err
	}
	return p.finish(tensors)
}

// finish turns stored rows into those that the batch delivers, and clears those that pruning has left unread.
func (p *preparer) finish(tensors [][]byte) error {
	for i := range p.loader.tables {
		t := &p.loader.tables[i]
		unread := p.cut.On() && !t.byEdge
		if tensors[i] == nil || t.narrow == nil && !unread {
			continue
		}
		err := p.timed(func() {
			if t.narrow != nil {
				t.narrow.Widen(p.wide[i])
			}
			if unread {
				p.clearUnloaded(p.wide[i], t)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rowTensors appends the tensors of the graph to the batch, and returns where their rows are to be put as they are
// stored: at the end of each, from where finish spreads those of fewer bytes. It is nil for tensors that the batch goes
// without.
func (p *preparer) rowTensors(b *Batch) ([][]byte, error) {
	l := p.loader
	tensors := make([][]byte, len(l.tables))
	p.wide = reuse.Slice(p.wide, len(l.tables))
	for i := range l.tables {
		t := &l.tables[i]
		if t.byEdge && !p.ids.edges[t.typ].numbered {
			continue
		}
		count := int64(len(p.idsOf(t)))
		if !t.byEdge { // the consumer may hold rows of some nodes
			count = p.sections.rows[t.typ+1] - p.sections.rows[t.typ]
		}
		var err error
		if p.wide[i], err = p.addTensor(b, t.label, t.dtype, append([]int64{count}, t.rowShape...)); err != nil {
			return nil, err
		}
		tensors[i] = p.wide[i][int64(len(p.wide[i]))-count*int64(t.width):]
	}
	return tensors, nil
}

// idsOf are the ids that a table has rows of.
func (p *preparer) idsOf(t *table) []int64 {
	if t.byEdge {
		return p.ids.edges[t.typ].numbers
	}
	return p.ids.nodes[t.typ]
}

// resolve finds out where the rows of a batch are, once for all tables.
func (p *preparer) resolve(b *Batch, tensors [][]byte) error {
	l, k := p.loader, &p.lookup
	found := int64(len(p.batch.Nodes)) // but for those that are cold
	if p.cut.On() {
		found = int64(len(p.cut.Batch.Loaded()))
	}
	l.counters.rows.Add(found)
	if l.options.Held != nil {
		found -= p.roster.held
		l.counters.held.Add(p.roster.held)
	}
	if len(l.onDisk) == 0 {
		l.counters.hits.Add(found)
		return nil
	}
	switch {
	case p.super != nil: // planned
	case l.policy == nil, p.apart && (l.online || l.hot != nil):
		p.step.Slots = nil
	case l.online:
		if err := p.epoch.decided.enter(b.Index); err != nil {
			return err
		}
		l.policy.Step(p.roster.rows, &p.step.Step)
		p.epoch.decided.leave()
	default:
		l.policy.Step(p.roster.rows, &p.step.Step)
		if l.hot != nil {
			l.hot.Take(p.step.Slots, p.placeIn(tensors))
		}
	}
	err := p.loader.compute(p.epoch.ctx, func() { k.sort(p.step.Slots, &p.roster) })
	l.counters.hits.Add(found - int64(len(k.cold)))
	if p.super == nil {
		l.counters.misses.Add(int64(len(k.cold)))
	}
	return err
}

// gather writes the rows of a table into a tensor, but for those that commit
// copies from the cache.
func (p *preparer) gather(t *table, ids []int64, dst []byte) error {
	l := p.loader
	switch {
	case t.disk == nil && t.byEdge:
		return p.timed(func() { l.gatherRows(dst, t.memory, t.width, ids) })
	case t.disk == nil && p.cut.On():
		return p.timed(func() { p.gatherLoaded(dst, t, p.tableRows(t, ids)) })
	case t.disk == nil && l.options.Held != nil:
		return p.timed(func() { l.gatherRows(dst, t.memory, t.width, p.tableRows(t, p.missed(t))) })
	case t.disk == nil:
		return p.timed(func() { l.gatherRows(dst, t.memory, t.width, p.tableRows(t, ids)) })
	}
	start := time.Now()
	defer since(&l.counters.reading, start)
	width := t.width
	if t.byEdge {
		return t.disk.Read(p.epoch.ctx, &p.scratch.Merger, ids, func(i int32, row []byte) error {
			copy(dst[int(i)*width:], row)
			return nil
		})
	}
	if p.super != nil {
		return p.readPlanned(t, dst)
	}
	return p.readCold(t, dst)
}

// readCold reads the cold rows of a table.
func (p *preparer) readCold(t *table, dst []byte) error {
	k := &p.lookup
	cold, base := p.coldOf(t), p.base(t)
	k.wanted = k.wanted[:0]
	for _, pos := range cold {
		k.wanted = append(k.wanted, int64(p.roster.rows[pos])-t.first)
	}
	return t.disk.Read(p.epoch.ctx, &p.scratch.Merger, k.wanted, func(i int32, row []byte) error {
		p.deliver(t, dst, p.roster.tensorRow(cold[i])-base, row)
		return nil
	})
}

// deliver writes a row of a table's tensor.
func (p *preparer) deliver(t *table, dst []byte, at int32, row []byte) {
	copy(dst[int(at)*t.width:][:t.width], row)
	if invariants.Enabled {
		p.deliveries.add(t, at)
	}
}

// readPlanned reads the cold rows of a planned batch that its packs did not bring, and along with
// them rows of the same pages for later batches.
func (p *preparer) readPlanned(t *table, dst []byte) error {
	l, k, s := p.loader, &p.lookup, p.super
	cold, base, delivered := p.coldOf(t), p.base(t), k.deliveredTo(t.cached, len(p.roster.rows))
	k.wanted, k.from = k.wanted[:0], k.from[:0]
	for _, pos := range cold {
		if !delivered[pos] {
			k.wanted = append(k.wanted, int64(p.roster.rows[pos])-t.first)
			k.from = append(k.from, pos)
		}
	}
	if t.cached == 0 { // a row counts once, whatever tables it is in
		l.counters.misses.Add(int64(len(k.wanted)))
		l.counters.packed.Add(int64(len(cold) - len(k.wanted)))
	}
	for i, e := range p.step.Extra {
		if s.packs[e.Batch].empty() || !t.has(e.Row) {
			continue
		}
		k.wanted = append(k.wanted, int64(e.Row)-t.first)
		k.from = append(k.from, ^int32(i))
	}
	return t.disk.Read(p.epoch.ctx, &p.scratch.Merger, k.wanted, func(i int32, row []byte) error {
		if from := k.from[i]; from >= 0 {
			p.deliver(t, dst, p.roster.tensorRow(from)-base, row)
		} else {
			e := &p.step.Extra[^from]
			s.packs[e.Batch].add(t.cached, e.Pos, row)
		}
		return nil
	})
}

// commit copies what is cached into the tensors and then changes the cache, when
// every batch before has done so. A consumer may write to its tensors, so the
// cache takes its rows from them before the batch is handed over.
func (p *preparer) commit(b *Batch, tensors [][]byte) error {
	l := p.loader
	if len(l.onDisk) == 0 {
		return nil
	}
	if l.changing() && !p.apart {
		if err := p.epoch.turn.enter(b.Index); err != nil {
			return err
		}
		defer p.epoch.turn.leave()
	}
	blind := p.super != nil && p.super.inspector.isBlind(p.number)
	if blind {
		if err := p.repair(tensors); err != nil {
			return err
		}
	}
	return p.timed(func() {
		for _, t := range l.onDisk {
			dst := tensors[t.index]
			if len(p.lookup.hitRows) > 0 && l.hot == nil {
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
		if l.hot != nil && !p.apart {
			l.hot.BringBack(p.lookup.cold, p.roster.rows, p.placeIn(tensors))
		} else if invariants.Enabled {
			p.deliveries.check(p)
		}
		if !blind && !p.apart {
			p.change(tensors)
		}
	})
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
	k := &p.lookup // what it found is copied already
	for _, t := range l.onDisk {
		base := p.base(t)
		k.hitRows, k.hitSlots = k.hitRows[:0], k.hitSlots[:0]
		for _, in := range p.step.In {
			if t.has(p.roster.rows[in.Pos]) {
				k.hitRows = append(k.hitRows, p.roster.tensorRow(in.Pos)-base)
				k.hitSlots = append(k.hitSlots, in.Slot)
			}
		}
		l.toSlots(t, k.hitSlots, tensors[t.index], k.hitRows)
	}
	for _, in := range p.step.In {
		l.resident.set(in.Slot, p.roster.rows[in.Pos])
	}
}

// gatherLoaded copies the rows that are loaded out of a table in memory.
func (p *preparer) gatherLoaded(dst []byte, t *table, rows []int64) {
	loaded, base := p.cut.Batch.LoadedOf(t.typ)
	for len(loaded) > 0 {
		n := 1
		for n < len(loaded) && loaded[n] == loaded[0]+int32(n) {
			n++
		}
		at := int(loaded[0] - base)
		p.loader.gatherRows(dst[at*t.width:(at+n)*t.width], t.memory, t.width, rows[at:at+n])
		loaded = loaded[n:]
	}
}

// clearUnloaded zeroes the rows of a node tensor that are not loaded. Seeds are, so that none of these was copied.
func (p *preparer) clearUnloaded(dst []byte, t *table) {
	next, width := 0, int(t.delivered())
	loaded, base := p.cut.Batch.LoadedOf(t.typ)
	for _, at := range loaded {
		clear(dst[next*width : int(at-base)*width])
		next = int(at-base) + 1
	}
	clear(dst[next*width:])
}

// timed computes and counts the time as gathering.
func (p *preparer) timed(fn func()) error {
	return p.loader.compute(p.epoch.ctx, func() {
		start := time.Now()
		fn()
		since(&p.loader.counters.gathering, start)
	})
}
