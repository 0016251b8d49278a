package plan

import (
	"context"
	"fmt"

	"freshgo/core/internal/asm"
)

// block is how many accesses a loop handles while the memory for the next block is on its way. 64 to 256 measured
// within 10 %.
const block = 128

// scan numbers every row of the horizon and finds the next access of each: one pass from the last batch to the first.
// Rows that are cached and needed leave the queue for the bucket of their first access.
func (r *residency) scan(ctx context.Context, h *horizon, k *buckets) error {
	total := h.accesses()
	var err error
	if h.ids, err = alloc[uint32](h.memory, total); err != nil {
		return err
	}
	if h.next, err = alloc[uint32](h.memory, total); err != nil {
		return err
	}
	needed, err := alloc[uint32](h.memory, int(min(int64(total), r.capacity-r.freeSlots)))
	if err != nil {
		return err
	}
	needed = needed[:0]
	for b := len(h.batches) - 1; b >= 0; b-- {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		if err := r.scanBatch(h, b, &needed); err != nil {
			return err
		}
	}
	r.promote(h, k, needed)
	return nil
}

func (r *residency) scanBatch(h *horizon, b int, needed *[]uint32) error {
	rows, base, end := h.batches[b], h.offsets[b], h.offsets[b+1]
	ids, next := h.ids[base:end], h.next[base:end]
	asm.Prefetch(r.index, rows[:min(block, len(rows))])
	for lo := 0; lo < len(rows)+block; lo += block {
		if lo < len(rows) {
			hi := min(lo+block, len(rows))
			asm.Prefetch(r.index, rows[hi:min(hi+block, len(rows))])
			for i, row := range rows[lo:hi] {
				if int(row) >= len(r.index) {
					return fmt.Errorf("plan: batch %d has row %d of %d: %w", b, row, len(r.index), ErrBatch)
				}
				ids[lo+i] = r.index[row]
			}
			asm.Prefetch(r.known, ids[lo:hi])
		}
		if lo == 0 {
			continue
		}
		for i := lo - block; i < min(lo, len(rows)); i++ {
			n := ids[i]
			if int(n) >= len(r.known) || r.known[n].row != rows[i] {
				if n = r.number(rows[i]); n == none {
					if err := r.grow(h.accesses()); err != nil {
						return err
					}
					n = r.number(rows[i])
				}
				ids[i] = n
			}
			k := &r.known[n]
			use := k.use
			if use < end {
				return fmt.Errorf("plan: batch %d has row %d twice: %w", b, k.row, ErrBatch)
			}
			next[i] = use
			k.use = base + uint32(i)
			if use == none && k.slot >= 0 {
				*needed = append(*needed, n)
			}
		}
	}
	return nil
}

// promote moves cached rows that are needed from the queue to their buckets.
func (r *residency) promote(h *horizon, k *buckets, numbers []uint32) {
	var slots [block]int32
	for lo := 0; lo < len(numbers); lo += block {
		hi := min(lo+block, len(numbers))
		asm.Prefetch(r.known, numbers[hi:min(hi+block, len(numbers))])
		part := numbers[lo:hi]
		for i, n := range part {
			slots[i] = r.known[n].slot
		}
		asm.Prefetch(r.links, slots[:len(part)])
		for i, n := range part {
			use := r.known[n].use
			k.push(r.links, uint32(slots[i]), use, h.batchOf(use))
		}
	}
}

// settle ends a plan. What is ahead and not cached is forgotten, and what is cached and needed by it goes back to the
// queue, since the next plan sees farther. (Rows that nothing ahead needs have been forgotten, or have got to the
// queue, at their last access.) It calls cold for those that are first accessed by what is ahead and not cached.
//
// Every row is met once, at its last access: the order of the queue follows from that.
func (r *residency) settle(h *horizon, cold func(access uint32)) {
	var buffers [2][block]uint32
	full, part := buffers[0][:0], buffers[1][:0]
	begin := uint32(h.currentEnd())
	for i, next := range h.next[begin:] {
		if next != none {
			continue
		}
		if part = append(part, h.ids[int(begin)+i]); len(part) == block {
			asm.Prefetch(r.known, part)
			r.settleRows(full, begin, cold)
			full, part = part, full[:0]
		}
	}
	r.settleRows(full, begin, cold)
	r.settleRows(part, begin, cold)
}

func (r *residency) settleRows(numbers []uint32, ahead uint32, cold func(access uint32)) {
	for _, n := range numbers {
		k := &r.known[n]
		if k.slot >= 0 {
			k.use = none
			r.enqueue(uint32(k.slot))
			continue
		}
		if k.use >= ahead {
			cold(k.use)
		}
		r.forget(n)
	}
}
