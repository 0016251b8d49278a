package plan

import (
	"context"
	"errors"

	"freshgo/core/cache"
	"freshgo/core/mem"
)

// coldRow is a row that is read for an access; the two highest bits of at are flags.
type coldRow struct{ row, at uint32 }

const (
	flagShift   = 30
	flagLeaving = 1 << flagShift
	flagFilling = 2 << flagShift
	accessMask  = flagLeaving - 1
)

// cold is the accesses of the window to rows that are neither cached then nor set aside by an earlier plan. Of what is
// ahead, only first accesses are known to be.
type cold struct {
	records records // by batch: its cold rows, then its leavers
	without error   // why there are none: no memory, which is no reason to give the plan up
	buffer  []coldRow

	rows     []int64 // by batch: accesses in all
	packing  []int64 // of those of the superbatch, rows that a prologue could only set aside
	packingF []int64 // and that are not at hand earlier
	filling  []int64 // rows that it could read into slots
	fillingF []int64 // and that are not at hand earlier
	leaving  []int64 // accesses whose rows are at hand earlier
	keys     histogram
}

// prepare makes room for the widest batch, if there is any.
func (c *cold) prepare(w *window) {
	n := len(w.batches)
	for _, counts := range []*[]int64{&c.rows, &c.packing, &c.packingF, &c.filling, &c.fillingF, &c.leaving} {
		*counts = make([]int64, n)
	}
	if w.plain() {
		return
	}
	c.records, c.keys = make(records, n), newHistogram(w.config.NumRows)
	if c.buffer, c.without = alloc[coldRow](&w.memory, w.widest()); c.without == nil {
		w.leave.events, c.without = alloc[leaver](&w.memory, w.widest())
	}
	w.leave.wanted = w.leave.wanted && c.without == nil
}

// fills is the number of rows by batch that the prologue of a method could read into slots.
func (c *cold) fills(m method) []int64 {
	if m.forward {
		return c.fillingF
	}
	return c.filling
}

// keep puts the cold rows and the leavers of a batch away. Where there is no memory for them, no transfer is planned.
func (c *cold) keep(w *window, b int, all []coldRow, leavers []leaver) error {
	c.rows[b] = int64(len(all))
	if c.without != nil || len(all)+len(leavers) == 0 {
		return nil
	}
	for _, r := range all {
		c.keys.add(r.row)
	}
	var err error
	c.records[b], err = w.storage.Put(mem.Bytes(all), mem.Bytes(leavers))
	if errors.Is(err, mem.ErrBudget) {
		c.without, err = err, nil
		c.records.freeAll()
		w.leave.wanted = false
	}
	return err
}

// collect finds the cold accesses of a batch of the superbatch, when its step has been planned.
func (w *window) collect(b int, rows Batch, slots []int32, moves []cache.Move) error {
	c := &w.cold
	if w.plain() || c.without != nil {
		return nil
	}
	base, n := w.offsets[b], 0
	var kinds [4]int64 // by flags
	for i, slot := range slots {
		if slot >= 0 {
			continue
		}
		filling := uint32(0)
		if len(moves) > 0 && moves[0].Pos == int32(i) {
			if moves[0].Slot < 0 {
				filling = 1
			}
			moves = moves[1:]
		}
		a := base + uint32(i)
		if w.delivered.Has(int64(a)) {
			continue
		}
		flags := uint32(w.leaving.Bit(int64(a))) | filling<<1
		kinds[flags]++
		c.buffer[n] = coldRow{rows[i], a | flags<<flagShift}
		n++
	}
	c.packing[b], c.packingF[b] = kinds[0]+kinds[1], kinds[0]
	c.filling[b], c.fillingF[b] = kinds[2]+kinds[3], kinds[2]
	return c.keep(w, b, c.buffer[:n], w.leave.events)
}

// collectAhead finds the cold accesses of what is ahead.
func (w *window) collectAhead(ctx context.Context) error {
	c := &w.cold
	if c.without != nil || w.aheadCold == nil {
		return c.without
	}
	trace := w.loadRows(ctx, w.current, len(w.batches))
	defer trace.close()
	for b := w.current; b < len(w.batches); b++ {
		lo, hi := w.aheadRange(b)
		n := 0
		err := takeFrom(trace, func(rows []uint32) error {
			for i := range w.aheadCold.Within(lo, hi) {
				a := int64(w.offsets[w.current]) + i
				if !w.delivered.Has(a) {
					c.buffer[n] = coldRow{rows[i-lo], uint32(a) | uint32(w.leaving.Bit(a))<<flagShift}
					n++
				}
			}
			return nil
		})
		if err == nil {
			err = c.keep(w, b, c.buffer[:n], nil)
		}
		if err != nil {
			return err
		}
	}
	return c.without
}

// each calls visit with what is cold in one batch after the other, and with what leaves in it.
func (c *cold) each(
	ctx context.Context, h *horizon, visit func(b int, rows []coldRow, leave []leaver) error,
) error {
	all := c.records.load(ctx, h.storage, loadsAhead(h.widest()))
	defer all.close()
	for b, r := range c.records {
		if r == nil {
			continue
		}
		err := takeFrom(all, func(data []byte) error {
			n := c.rows[b] * size[coldRow]()
			return visit(b, mem.View[coldRow](data[:n]), mem.View[leaver](data[n:]))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
