package plan

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// block is the number of accesses that a loop handles while the next block is prefetched. 64 to 256 measured within 10
// %.
const block = 128

// nextUses finds the next access of each access of a horizon, in the tables of the residency: a pass backward before
// the steps are planned. settle ends it after them.
type nextUses struct {
	cached  *residency
	horizon *horizon
	buckets *buckets
	packed  func(b int) bitset.Set // positions of a batch that packs of earlier plans hold; nil: none
}

// find puts the next access of each access of the superbatch into the storage: one pass from the last batch to the
// first. Rows that are cached and needed leave the queue for the bucket of their first access. buffer has room for the
// widest batch.
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
		if b >= h.current {
			continue // only the first accesses of the batches ahead count, which are in the tables
		}
		if h.next[b], err = h.storage.Put(mem.Bytes(next)); err != nil {
			return err
		}
	}
	u.promote(needed)
	return nil
}

func (u nextUses) findBatch(b int, rows Batch, next, needed []uint32) ([]uint32, error) {
	r, base, end, packed := u.cached, u.horizon.offsets[b], u.horizon.offsets[b+1], u.packed(b)
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
			if b >= u.horizon.current {
				for _, row := range rows[lo:hi] {
					r.ahead.Add(int64(row >> aheadBits))
				}
			}
			asm.Prefetch(r.links, slots[:hi-lo])
		}
		if lo == 0 {
			continue
		}
		for i := lo - block; i < min(lo, len(rows)); i++ {
			use := &r.rows[rows[i]]
			if *use&cachedBit != 0 {
				slot := *use &^ cachedBit
				l := &r.links[slot]
				if use = &l.use; l.next == idle {
					l.next, l.use = sought, 0
					needed = append(needed, slot)
				}
			}
			if *use != 0 && *use&accessMask <= end {
				return needed, fmt.Errorf("plan: batch %d has row %d twice: %w", b, rows[i], ErrBatch)
			}
			next[i] = *use - 1
			*use = base + uint32(i) + 1
			if packed != nil {
				*use |= uint32(packed.Bit(int64(i))) << accessBits
			}
		}
	}
	return needed, nil
}

// promote moves cached rows that are needed from the queue to their buckets.
func (u nextUses) promote(slots []uint32) {
	r := u.cached
	for lo := 0; lo < len(slots); lo += block {
		hi := min(lo+block, len(slots))
		asm.Prefetch(r.links, slots[hi:min(hi+block, len(slots))])
		for _, s := range slots[lo:hi] {
			use := r.links[s].use - 1
			u.buckets.push(r.links, s, use, u.horizon.batchOf(use&accessMask))
		}
	}
}
