package plan

import (
	"context"
	"fmt"
	"slices"

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
	h, needed := u.horizon, u.cached.needed()[:0]
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

// findBatch adds to needed the cached rows that no later batch has, with their slots. Their words then have accesses,
// as words of rows that are not cached.
func (u nextUses) findBatch(b int, rows Batch, next []uint32, needed []entry) ([]entry, error) {
	r, base, end, packed := u.cached, u.horizon.offsets[b], u.horizon.offsets[b+1], u.packed(b)
	ahead := b >= u.horizon.current
	if err := r.check(b, rows); err != nil {
		return needed, err
	}
	var at places
	coming := r.find(rows, 0, &at)
	for lo := 0; lo < len(rows); lo += block {
		here := coming
		coming = r.find(rows[lo+len(here):], lo/block+1, &at)
		for k, place := range here {
			i := lo + k
			row, use := rows[i], r.words[place]
			if use&cachedBit != 0 {
				needed = append(needed, entry{row, use})
				use = 0
			}
			switch {
			case use == 0 && ahead:
				r.ahead.Add(int64(row >> aheadBits))
			case use != 0 && use&accessMask <= end:
				return needed, fmt.Errorf("plan: batch %d has row %d twice: %w", b, row, ErrBatch)
			}
			next[i] = use - 1
			use = base + uint32(i) + 1
			if packed != nil {
				use |= uint32(packed.Bit(int64(i))) << accessBits
			}
			r.words[place] = use
		}
	}
	return needed, nil
}

// promote moves cached rows that are needed from the queue to their buckets, and gives them back their slots.
func (u nextUses) promote(needed []entry) {
	r := u.cached
	r.retain()
	var at places
	var rows [block]uint32
	for lo := 0; lo < len(needed); lo += block {
		some := needed[lo:min(lo+block, len(needed))]
		for i, e := range some {
			rows[i] = e.row
		}
		for i, place := range r.find(rows[:len(some)], 0, &at) {
			e, use := some[i], r.words[place]-1
			r.words[place] = e.use // its slot
			u.buckets.push(entry{e.row, use}, u.horizon.batchOf(use&accessMask))
		}
	}
}
