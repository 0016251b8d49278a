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
	own := arena{budget: b.memory.budget}
	defer own.release()
	rows, err := newSpread[coldRow](&own, b.w.storage, &b.w.cold.keys)
	if err != nil {
		return err
	}
	defer rows.free()
	err = b.w.cold.each(ctx, func(_ int, all []coldRow, _ []uint32) error {
		for _, r := range all {
			if err := rows.put(r.row, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.cuts = cuts{leaving: uint32(len(b.w.batches)), early: uint32(len(b.w.batches))}
	early, leaders := make([]float64, len(b.w.batches)), newHistogram(int64(b.w.current))
	err = b.eachLed(ctx, rows, false, func(batch, leader uint32, _ coldRow) error {
		early[batch]++
		leaders.add(leader)
		return nil
	})
	if err != nil {
		return err
	}
	if b.cuts = b.w.cut(b.method, early, b.w.room.total()); !b.cuts.fits {
		leaders = newHistogram(int64(b.w.current))
		err = b.eachLed(ctx, rows, false, func(_, leader uint32, _ coldRow) error {
			leaders.add(leader)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if b.along, err = newSpread[along](&b.memory, b.w.storage, &leaders); err != nil {
		return err
	}
	return b.eachLed(ctx, rows, true, func(_, leader uint32, r coldRow) error {
		b.count(b.w.dest(r.at & accessMask))
		return b.along.put(leader, along{leader, r.row, r.at & accessMask})
	})
}

// eachLed calls visit for every row that an earlier batch, its leader, reads along for a batch, by rising rows. rows
// has the cold rows of the superbatch. The last pass frees them.
func (b *builder) eachLed(
	ctx context.Context, rows *spread[coldRow], last bool, visit func(batch, leader uint32, r coldRow) error,
) error {
	led := make([]float64, len(b.w.batches))
	for r := range rows.counts {
		if err := b.ledIn(ctx, rows, r, last, led, visit); err != nil {
			return err
		}
	}
	return nil
}

// ledIn is eachLed for a range of rows, after ranges in which batches already lead some rows. Where the superbatch has
// none of them, nobody leads.
func (b *builder) ledIn(
	ctx context.Context, rows *spread[coldRow], r int, last bool, led []float64,
	visit func(batch, leader uint32, r coldRow) error,
) error {
	if rows.counts[r] == 0 {
		return nil
	}
	own := arena{budget: b.memory.budget}
	defer own.release()
	n := rows.counts[r]
	all, err := rows.take(ctx, r, n+int(rows.most[r]), last, &own)
	if err != nil {
		return err
	}
	from, to := rows.within(r)
	s := &sample{w: b.w, rows: b.w.cold.withAhead(sortByRow(all), from, to, all[:0]), led: led, scale: 1}
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
		all, err := b.along.take(ctx, r, 0, true, &b.read)
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
