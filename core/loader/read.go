package loader

import (
	"fmt"
	"sort"
	"time"

	"freshgo/core/internal/invariants"
)

// readMissing finds out which rows of a batch are in slots, by position, and brings the others.
func (p *preparer) readMissing(slots []int32, tensors [][]byte) error {
	if err := p.lookUp(slots); err != nil {
		return err
	}
	p.loader.counters.Misses.Add(int64(len(p.lookup.cold)))
	return p.readTables(tensors, (*preparer).readCold)
}

// readTables brings the rows of a batch but for those in slots: of tables in memory and, by onDisk, of tables on disk.
func (p *preparer) readTables(tensors [][]byte, onDisk func(p *preparer, t *table, dst []byte) error) error {
	l := p.loader
	for i := range l.rows.tables {
		t := &l.rows.tables[i]
		if tensors[i] == nil || t.unused {
			continue
		}
		if err := p.gather(t, p.drawn.IDsOf(&t.Tensor), tensors[i], onDisk); err != nil {
			return fmt.Errorf("reading %s: %w", l.draw.Parts.Schema.Describe(&t.Tensor), err)
		}
	}
	return nil
}

// gather writes the rows of a table into a tensor, but for those in slots.
func (p *preparer) gather(
	t *table, ids []int64, dst []byte, onDisk func(p *preparer, t *table, dst []byte) error,
) error {
	l := p.loader
	switch {
	case t.disk == nil && t.ByEdge:
		return p.timed(func() { l.rows.gatherRows(dst, t.Memory, t.Width, ids) })
	case t.disk == nil && p.drawn.Cut.On():
		return p.timed(func() { p.gatherLoaded(dst, t, p.tableRows(t, ids)) })
	case t.disk == nil:
		return p.timed(func() { l.rows.gatherRows(dst, t.Memory, t.Width, p.tableRows(t, ids)) })
	}
	defer l.counters.Reading.Since(time.Now())
	if !t.ByEdge {
		return onDisk(p, t, dst)
	}
	return t.disk.Read(p.epoch.ctx, &p.scratch.Merger, ids, func(i int32, row []byte) error {
		copy(dst[int(i)*t.Width:], row)
		return nil
	})
}

// gatherLoaded copies the rows that are loaded out of a table in memory.
func (p *preparer) gatherLoaded(dst []byte, t *table, rows []int64) {
	loaded, base := p.drawn.Cut.Batch.LoadedOf(t.Type)
	for len(loaded) > 0 {
		n := 1
		for n < len(loaded) && loaded[n] == loaded[0]+int32(n) {
			n++
		}
		at := int(loaded[0] - base)
		p.loader.rows.gatherRows(dst[at*t.Width:(at+n)*t.Width], t.Memory, t.Width, rows[at:at+n])
		loaded = loaded[n:]
	}
}

// readCold reads the cold rows of a table.
func (p *preparer) readCold(t *table, dst []byte) error {
	k := &p.lookup
	cold, base := p.coldOf(t), p.drawn.FirstRow(t.Type)
	k.wanted = k.wanted[:0]
	for _, pos := range cold {
		k.wanted = append(k.wanted, int64(p.drawn.BatchRows.Rows[pos])-t.First)
	}
	return t.disk.Read(p.epoch.ctx, &p.scratch.Merger, k.wanted, func(i int32, row []byte) error {
		p.deliver(t, dst, p.drawn.BatchRows.TensorRow(cold[i])-base, row)
		return nil
	})
}

// deliver writes a row of a table's tensor.
func (p *preparer) deliver(t *table, dst []byte, at int32, row []byte) {
	copy(dst[int(at)*t.Width:][:t.Width], row)
	if invariants.Enabled {
		p.deliveries.add(t, at)
	}
}

// coldOf is the cold positions whose rows a table has: positions rise, and with them the types.
func (p *preparer) coldOf(t *table) []int32 {
	cold := p.lookup.cold
	before := func(end int64) int {
		return sort.Search(len(cold), func(i int) bool { return int64(p.drawn.BatchRows.Rows[cold[i]]) >= end })
	}
	return cold[before(t.First):before(t.First+t.NumRows)]
}

// deliveredTo returns, by position, whether the packs of a column delivered the row, for a batch of the given number of
// rows.
func (k *lookup) deliveredTo(column, rows int) []bool {
	return k.delivered[column*rows : (column+1)*rows]
}

// tableRows are the rows of a table that nodes of its type have.
func (p *preparer) tableRows(t *table, nodes []int64) []int64 {
	l, k := p.loader, &p.lookup
	if l.draw.Order == nil {
		return nodes
	}
	k.wanted = k.wanted[:0]
	for _, v := range nodes {
		k.wanted = append(k.wanted, int64(l.draw.Order[t.First+v])-t.First)
	}
	return k.wanted
}
