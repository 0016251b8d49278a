package loader

import (
	"fmt"
	"sort"
	"time"

	"freshgo/core/internal/invariants"
	"freshgo/core/internal/reuse"
	"freshgo/core/scratch"
)

// read brings the rows of a batch, but for those that commit copies from the cache: what its packs hold, then those of
// tables in memory and those that are cold.
func (p *preparer) read(tensors [][]byte) error {
	l, start := p.loader, time.Now()
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
	return nil
}

// readPacks copies what the packs of a planned batch hold into its tensors. A pack that fails has
// not brought its rows, which are then read from the store.
func (p *preparer) readPacks(tensors [][]byte) error {
	if p.super == nil || len(p.loader.onDisk) == 0 {
		return nil
	}
	l, k, rows := p.loader, &p.lookup, len(p.batchRows.rows)
	k.delivered = reuse.Slice(k.delivered, len(l.columns)*rows)
	clear(k.delivered)
	for _, packs := range p.super.packsFor(p.number) {
		for column, pack := range packs.columns {
			if pack == nil {
				continue
			}
			delivered := k.deliveredTo(column, rows)
			err := pack.Seal()
			if err == nil {
				err = pack.Read(p.epoch.ctx, func(pos scratch.Positions, rows []byte) error {
					p.takeFrom(column, l.columns[column], tensors, delivered, pos, rows)
					return nil
				})
			}
			if p.epoch.ctx.Err() != nil {
				return errStopped
			}
			if err != nil {
				l.counters.packErrors.Add(1)
			}
		}
	}
	return nil
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

// readPlanned reads the cold rows of a planned batch that its packs did not bring, and along with
// them rows of the same pages for later batches.
func (p *preparer) readPlanned(t *table, dst []byte) error {
	l, k, s := p.loader, &p.lookup, p.super
	cold, base, delivered := p.coldOf(t), p.base(t), k.deliveredTo(t.cached, len(p.batchRows.rows))
	k.wanted, k.from = k.wanted[:0], k.from[:0]
	for _, pos := range cold {
		if !delivered[pos] {
			k.wanted = append(k.wanted, int64(p.batchRows.rows[pos])-t.first)
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
			p.deliver(t, dst, p.batchRows.tensorRow(from)-base, row)
		} else {
			e := &p.step.Extra[^from]
			s.packs[e.Batch].add(t.cached, e.Pos, row)
		}
		return nil
	})
}

// readCold reads the cold rows of a table.
func (p *preparer) readCold(t *table, dst []byte) error {
	k := &p.lookup
	cold, base := p.coldOf(t), p.base(t)
	k.wanted = k.wanted[:0]
	for _, pos := range cold {
		k.wanted = append(k.wanted, int64(p.batchRows.rows[pos])-t.first)
	}
	return t.disk.Read(p.epoch.ctx, &p.scratch.Merger, k.wanted, func(i int32, row []byte) error {
		p.deliver(t, dst, p.batchRows.tensorRow(cold[i])-base, row)
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

// coldOf is the cold positions whose rows a table has: positions rise, and with them the types.
func (p *preparer) coldOf(t *table) []int32 {
	cold := p.lookup.cold
	before := func(end int64) int {
		return sort.Search(len(cold), func(i int) bool { return int64(p.batchRows.rows[cold[i]]) >= end })
	}
	return cold[before(t.first):before(t.first+t.numRows)]
}

// deliveredTo returns, by position, whether the packs of a column delivered the row, for a batch of the given number of
// rows.
func (k *lookup) deliveredTo(column, rows int) []bool {
	return k.delivered[column*rows : (column+1)*rows]
}

// tableRows are the rows of a table that nodes of its type have.
func (p *preparer) tableRows(t *table, nodes []int64) []int64 {
	l, k := p.loader, &p.lookup
	if l.order == nil {
		return nodes
	}
	k.wanted = k.wanted[:0]
	for _, v := range nodes {
		k.wanted = append(k.wanted, int64(l.order[t.first+v])-t.first)
	}
	return k.wanted
}

// missed are the nodes of a table, within its type, that the consumer does not hold.
func (p *preparer) missed(t *table) []int64 {
	return p.batchRows.ids[p.batchRows.bases[t.typ]:p.batchRows.bases[t.typ+1]]
}
