package plan

import "math/bits"

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
	all  []coldRow // by access; there is room behind it for as many again
	ends []int     // by batch: the end of its accesses in all

	rows     []int64 // by batch: accesses in all
	packing  []int64 // of those of the superbatch, rows that a prologue could only set aside
	packingF []int64 // and that are not at hand earlier
	leaving  []int64 // accesses whose rows are at hand earlier
}

// unmark makes the slots of marked moves plain, and remembers them in filling.
func (w *window) unmark() {
	for b := range w.plan.Steps {
		in := w.plan.Steps[b].In
		for i, m := range in {
			if m.Slot < 0 {
				in[i].Slot = ^m.Slot
				w.filling.set(w.offsets[b] + uint32(m.Pos))
			}
		}
	}
}

// collect finds the cold accesses of the window.
func (w *window) collect() error {
	n := len(w.batches)
	c := &w.cold
	c.ends = make([]int, n)
	c.rows, c.packing, c.packingF, c.leaving = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for _, e := range w.leave.events.items {
		if !w.delivered.has(e.access) {
			w.leaving.set(e.access)
			c.leaving[w.batchOf(e.access)]++
		}
	}
	most := int(w.missed)
	for _, word := range w.aheadCold {
		most += bits.OnesCount64(word)
	}
	all, err := alloc[coldRow](w.horizon.memory, 2*most)
	if err != nil {
		return err
	}
	c.all = all[:0]
	for b := range w.plan.Steps {
		w.collectBatch(b)
		w.plan.Choice.ColdRows += c.rows[b]
	}
	b := w.current
	for i, word := range w.aheadCold {
		for ; word != 0; word &= word - 1 {
			a := uint32(w.currentEnd() + i<<6 + bits.TrailingZeros64(word))
			for w.offsets[b+1] <= a {
				b++
			}
			if w.delivered.has(a) {
				continue
			}
			at := a
			if w.leaving.has(a) {
				at |= flagLeaving
			}
			c.all = append(c.all, coldRow{w.batches[b][a-w.offsets[b]], at})
			c.rows[b]++
		}
	}
	end := 0
	for b, rows := range c.rows {
		end += int(rows)
		c.ends[b] = end
	}
	return nil
}

func (w *window) collectBatch(b int) {
	c := &w.cold
	base, rows, n := w.offsets[b], w.batches[b], len(c.all)
	all := c.all[:cap(c.all)]
	var kinds [4]int64 // by flags
	for i, slot := range w.plan.Steps[b].Slots {
		a := base + uint32(i)
		if slot >= 0 || w.delivered.has(a) {
			continue
		}
		flags := w.leaving.bit(a) | w.filling.bit(a)<<1
		kinds[flags]++
		all[n] = coldRow{rows[i], a | flags<<flagShift}
		n++
	}
	c.rows[b] = int64(n - len(c.all))
	c.packing[b] = kinds[0] + kinds[1]
	c.packingF[b] = kinds[0]
	c.all = all[:n]
}

// sorted returns those cold rows that take says yes to, and which it may change, in the order of the file; rows of the
// same number stay in the order of their accesses. All others are lost.
func (c *cold) sorted(take func(b int, r coldRow) (coldRow, bool)) []coldRow {
	n, begin := 0, 0
	for b, end := range c.ends {
		for _, r := range c.all[begin:end] {
			if r, ok := take(b, r); ok {
				c.all[n] = r
				n++
			}
		}
		begin = end
	}
	return sortByRow(c.all[:n:cap(c.all)])
}
