package plan

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// block is the number of accesses that a loop handles while the next block is prefetched. 64 to 256 measured within 10
// %.
const block = 128

// nextUses finds the next access of each access of a horizon, in the tables of the residency: a pass backward before
// the steps are planned, and one forward after them.
type nextUses struct {
	cached  *residency
	horizon *horizon
	buckets *buckets
}

// find puts the next access of each access into the storage: one pass from the last batch to the first. Rows that are
// cached and needed leave the queue for the bucket of their first access. buffer has room for the widest batch.
func (u nextUses) find(ctx context.Context, buffer []uint32) error {
	h, queue := u.horizon, &u.cached.queue
	queue.compact()
	needed := queue.slots[u.cached.capacity:][:0] // the queue is in the first half
	trace := h.loadRows(ctx, 0, len(h.batches))
	slices.Reverse(trace.records)
	defer trace.close()
	for b := len(h.batches) - 1; b >= 0; b-- {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		next := buffer[:h.batches[b].Len()]
		err := takeFrom(trace, func(rows []uint32) (err error) {
			needed, err = u.findBatch(b, rows, next, needed)
			return err
		})
		if err != nil {
			return err
		}
		record := mem.Bytes(next)
		if b >= h.current {
			record = mem.Bytes(lastUses(next))
		}
		if h.next[b], err = h.storage.Put(record); err != nil {
			return err
		}
	}
	u.promote(needed)
	return nil
}

// lastUses returns the set of positions in a batch whose rows have no next access, in the memory of next.
func lastUses(next []uint32) set32 {
	words := set32(next[:bitWords(len(next))])
	for lo := 0; lo < len(next); lo += 32 {
		word := uint32(0)
		for i, use := range next[lo:min(lo+32, len(next))] {
			if use == none {
				word |= 1 << i
			}
		}
		words[lo/32] = word
	}
	return words
}

func (u nextUses) findBatch(b int, rows Batch, next, needed []uint32) ([]uint32, error) {
	r, base, end := u.cached, u.horizon.offsets[b], u.horizon.offsets[b+1]
	var slots [block]uint32
	asm.Prefetch(r.rows, rows[:min(block, len(rows))])
	for lo := 0; lo < len(rows)+block; lo += block {
		if lo < len(rows) {
			hi := min(lo+block, len(rows))
			asm.Prefetch(r.rows, rows[hi:min(hi+block, len(rows))])
			for i, row := range rows[lo:hi] {
				if int(row) >= len(r.rows) {
					return needed, fmt.Errorf("plan: batch %d has row %d of %d: %w", b, row, len(r.rows), ErrBatch)
				}
				slots[i] = r.rows[row] &^ cachedBit // of a row that is not cached: nothing, and harmless
			}
			asm.Prefetch(r.first, slots[:hi-lo])
		}
		if lo == 0 {
			continue
		}
		for i := lo - block; i < min(lo, len(rows)); i++ {
			use := &r.rows[rows[i]]
			if *use&cachedBit != 0 {
				slot := *use &^ cachedBit
				if use = &r.first[slot]; *use == 0 {
					needed = append(needed, slot)
				}
			}
			if *use != 0 && *use <= end {
				return needed, fmt.Errorf("plan: batch %d has row %d twice: %w", b, rows[i], ErrBatch)
			}
			next[i] = *use - 1
			*use = base + uint32(i) + 1
		}
	}
	return needed, nil
}

// promote moves cached rows that are needed from the queue to their buckets.
func (u nextUses) promote(slots []uint32) {
	r := u.cached
	for lo := 0; lo < len(slots); lo += block {
		hi := min(lo+block, len(slots))
		asm.Prefetch(r.first, slots[hi:min(hi+block, len(slots))])
		asm.Prefetch(r.links, slots[hi:min(hi+block, len(slots))])
		for _, s := range slots[lo:hi] {
			use := r.first[s] - 1
			r.first[s] = 0
			u.buckets.push(r.links, s, use, u.horizon.batchOf(use))
		}
	}
}

// settle ends a plan. It forgets next uses of rows ahead that are not cached, and returns cached rows that are needed
// ahead to the queue, since the next plan sees farther. (Rows without a use ahead were forgotten, or entered the queue,
// at their last access.) It calls cold for each batch ahead with the ascending positions of its rows that are not
// cached and that no earlier batch ahead needs. positions has room for the widest batch.
//
// Cached rows are met once, at their last access: this gives the order of the queue. Others are met at their first
// access, which is in the table.
func (u nextUses) settle(
	ctx context.Context, positions []uint32, cold func(b int, rows Batch, positions []uint32) error,
) error {
	h := u.horizon
	trace := h.loadRows(ctx, h.current, len(h.batches))
	uses := h.next[h.current:].load(ctx, h.storage, loadsAhead(h.widest()))
	defer trace.close()
	defer uses.close()
	for b := h.current; b < len(h.batches); b++ {
		err := takeFrom(trace, func(rows []uint32) error {
			var first []uint32
			err := takeFrom(uses, func(last []uint32) error {
				first = u.cached.settleBatch(rows, set32(last), h.offsets[b], positions[:0])
				return nil
			})
			if err != nil {
				return err
			}
			return cold(b, rows, first)
		})
		if err != nil {
			return err
		}
		h.next.free(b)
	}
	return nil
}

// settleBatch settles the rows of a batch, whose accesses begin at base, and adds the positions of first accesses to
// rows that are not cached.
func (r *residency) settleBatch(rows Batch, last set32, base uint32, first []uint32) []uint32 {
	var slots [2][block]uint32
	asm.Prefetch(r.rows, rows[:min(block, len(rows))])
	for lo := 0; lo < len(rows)+block; lo += block {
		mine, before := &slots[lo/block&1], &slots[lo/block&1^1]
		if lo < len(rows) {
			hi := min(lo+block, len(rows))
			asm.Prefetch(r.rows, rows[hi:min(hi+block, len(rows))])
			for i, row := range rows[lo:hi] {
				mine[i] = r.rows[row]
				if mine[i] == base+uint32(lo+i)+1 {
					first = append(first, uint32(lo+i))
					r.rows[row] = 0
				}
				mine[i] &^= cachedBit // of a row that is not cached: nothing, and harmless
			}
			asm.Prefetch(r.links, mine[:hi-lo])
		}
		for i := max(0, lo-block); i < min(lo, len(rows)); i++ {
			if last.has(i) && r.rows[rows[i]]&cachedBit != 0 {
				r.queue.push(before[i-(lo-block)])
			}
		}
	}
	return first
}
