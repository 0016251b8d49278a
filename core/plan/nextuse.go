package plan

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

const (
	// Words are prefetched in strides of 8, 32 accesses before their turn: 16 ns an access, where blocks of 128 took 26. A
	// processor has room for 10 to 50 lines on their way, and waits where a burst fills it.
	stride, reach = 8, 32

	// block is the number of entries of loops that prefetch a whole block.
	block = 128
)

// nextUses finds the next access of each access of a horizon, in the tables of the residency: a pass backward before
// the steps are planned. settle ends it after them.
type nextUses struct {
	cached  *residency
	horizon *horizon
	buckets *buckets
	packed  func(b int) bitset.Set // positions of a batch that packs of earlier plans hold; nil: none
}

// find puts the next access of each access of the superbatch into the storage: one pass from the last batch to the
// first. Slots of rows that are needed leave the queue for the bucket of their first access. Both buffers have room for
// the widest batch.
func (u nextUses) find(ctx context.Context, buffer, places []uint32) error {
	h := u.horizon
	trace := h.loadRows(ctx, 0, len(h.batches))
	slices.Reverse(trace.records)
	defer trace.close()
	for b := len(h.batches) - 1; b >= 0; b-- {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		next := buffer[:h.batches[b].Len()]
		err := takeFrom(trace, func(rows []uint32) error { return u.findBatch(b, rows, next, places) })
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
	u.promote()
	return nil
}

// findBatch finds the next access of each row of a batch, and leaves its own access in the table.
func (u nextUses) findBatch(b int, rows Batch, next, buffer []uint32) error {
	r, base, end, packed := u.cached, u.horizon.offsets[b], u.horizon.offsets[b+1], u.packed(b)
	ahead := b >= u.horizon.current
	words, at := r.words, r.places(rows, buffer)
	next = next[:len(at)]
	asm.Prefetch(words, at[:min(reach, len(at))])
	for lo := 0; lo < len(at); lo += stride {
		hi := min(lo+stride, len(at))
		asm.Prefetch(words, at[min(lo+reach, len(at)):min(hi+reach, len(at))])
		for i := lo; i < hi; i++ {
			if int(at[i]) >= len(words) {
				return r.check(b, rows)
			}
			use := words[at[i]]
			if use != 0 && use&accessMask <= end {
				return fmt.Errorf("plan: batch %d has row %d twice: %w", b, rows[i], ErrBatch)
			}
			next[i] = use - 1
			use = base + uint32(i) + 1
			if packed != nil {
				use |= uint32(packed.Bit(int64(i))) << accessBits
			}
			words[at[i]] = use
			if ahead {
				r.ahead.Add(int64(rows[i] >> aheadBits))
			}
		}
	}
	return nil
}

// promote moves the slots of cached rows that are needed from the queue, which has all of them, to their buckets. The
// table forgets these rows' accesses: it keeps those to rows that are not cached.
func (u nextUses) promote() {
	r := u.cached
	var slots, rows, buffer [block]uint32
	for left := r.queue.n; left > 0; {
		n := copy(slots[:], r.queue.popSome(min(block, left)))
		left -= n
		asm.Prefetch(r.held, slots[:n])
		for i, s := range slots[:n] {
			rows[i] = r.held[s] - 1
		}
		at := r.places(rows[:n], buffer[:])
		asm.Prefetch(r.words, at)
		for i, place := range at {
			use := r.words[place] - 1
			if use == none {
				r.queue.push(slots[i])
				continue
			}
			r.words[place] = 0
			u.buckets.push(entry{slots[i], use}, u.horizon.batchOf(use&accessMask))
		}
	}
}
