package plan

import (
	"cmp"
	"context"
	"slices"
)

// along is a row that is read along: by which step, and for which access.
type along struct{ leader, row, at uint32 }

// readAlong finds which step reads which rows along for later ones. Pages that lie in two ranges of rows are read for
// each.
func (b *builder) readAlong(ctx context.Context) error {
	b.cuts = cuts{leaving: uint32(len(b.w.batches)), early: uint32(len(b.w.batches))}
	early := make([]float64, len(b.w.batches))
	err := b.eachLed(ctx, func(batch, _ uint32, _ coldRow) error {
		early[batch]++
		return nil
	})
	if err != nil {
		return err
	}
	b.cuts = b.w.cut(b.method, early, b.w.room.total())
	leaders := newHistogram(int64(b.w.current))
	err = b.eachLed(ctx, func(_, leader uint32, _ coldRow) error {
		leaders.add(leader)
		return nil
	})
	if err != nil {
		return err
	}
	if b.along, err = newSpread[along](&b.memory, b.w.storage, &leaders); err != nil {
		return err
	}
	return b.eachLed(ctx, func(_, leader uint32, r coldRow) error {
		b.counted(b.w.dest(r.at & accessMask))
		return b.along.put(leader, along{leader, r.row, r.at & accessMask})
	})
}

// eachLed calls visit for every row that an earlier batch, its leader, reads along for a batch, by rising rows.
func (b *builder) eachLed(ctx context.Context, visit func(batch, leader uint32, r coldRow) error) error {
	own := arena{budget: b.memory.budget}
	defer own.release()
	rows, err := newSpread[coldRow](&own, b.w.storage, &b.w.cold.keys)
	if err != nil {
		return err
	}
	defer rows.free()
	err = b.w.cold.all(ctx, everywhere, func(r coldRow) error { return rows.put(r.row, r) })
	led := make([]float64, len(b.w.batches))
	for r := 0; r < len(rows.counts) && err == nil; r++ {
		err = b.ledIn(ctx, rows, r, led, visit)
	}
	return err
}

// ledIn is eachLed for a range of rows, after ranges in which batches already lead some rows.
func (b *builder) ledIn(
	ctx context.Context, rows *spread[coldRow], r int, led []float64,
	visit func(batch, leader uint32, r coldRow) error,
) error {
	own := arena{budget: b.memory.budget}
	defer own.release()
	all, err := rows.take(ctx, r, &own)
	if err != nil || len(all) == 0 {
		return err
	}
	s := &sample{w: b.w, rows: sortByRow(all), led: led, scale: 1}
	if s.batch, err = alloc[uint32](&own, len(s.rows)); err != nil {
		return err
	}
	for i, c := range s.rows {
		s.batch[i] = b.w.batchOf(c.at & accessMask)
	}
	s.leaders(b.method, b.cuts, func(i int, leader uint32) {
		if err == nil {
			err = visit(s.batch[i], leader, s.rows[i])
		}
	})
	return err
}

// readBy adds to a step the rows that it reads along.
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
		b.step.extra = append(b.step.extra, coldRow{e.row, e.at})
		b.extra = b.extra[1:]
	}
	return nil
}
