package plan

import (
	"fmt"
	"math/bits"
)

// MaxAccesses is the most accesses that a plan can number: the two bits above are marks, and one more than an access
// fits as well.
const MaxAccesses = accessMask

// horizon numbers the accesses that a plan knows, in their order: of the superbatch, and of the batches ahead.
type horizon struct {
	index
	batches []Rows
	current int     // the first batch ahead
	next    records // by batch of the superbatch: of each access the next one to its row, or none
	storage Storage
}

// index maps accesses to batches.
type index struct {
	offsets []uint32 // access number of the first row of each batch, and the end

	// begins[a>>shift] is the batch of access a with its low bits cleared: the search for the batch of an access begins
	// there, and nearly always ends after one comparison.
	begins []uint32
	shift  uint
}

// perBegin is the least number of entries of begins for a batch: with 32 the entry alone answers for 31 accesses of 32.
const perBegin = 32

func newHorizon(current, ahead []Rows) (*horizon, error) {
	h := &horizon{batches: make([]Rows, 0, len(current)+len(ahead)), current: len(current)}
	h.batches = append(append(h.batches, current...), ahead...)
	h.offsets = make([]uint32, len(h.batches)+1)
	h.next = make(records, len(h.batches))
	total := int64(0)
	for i, b := range h.batches {
		total += int64(b.Len())
		if total > MaxAccesses {
			return nil, fmt.Errorf("plan: a superbatch and what is ahead have more than %d rows: %w", MaxAccesses, ErrBatch)
		}
		h.offsets[i+1] = uint32(total)
	}
	h.prepare()
	return h, nil
}

// leastDivided is the least number of batches of a superbatch for which a plan of half of them is better than a plan
// without a transfer. Arbitrary.
const leastDivided = 16

// divisible reports whether fewer batches are to be planned where the storage has no room for a transfer.
func divisible(h *horizon) bool {
	_, inMemory := h.storage.(memory)
	return !inMemory && h.current >= leastDivided
}

func (h *index) accesses() int     { return int(h.offsets[len(h.offsets)-1]) }
func (h *horizon) currentEnd() int { return int(h.offsets[h.current]) }

// widest is the number of rows of the largest batch.
func (h *horizon) widest() (n int) {
	for _, b := range h.batches {
		n = max(n, b.Len())
	}
	return n
}

func (h *index) prepare() {
	batches := len(h.offsets) - 1
	per := h.accesses() / (perBegin * max(batches, 1))
	h.shift = uint(bits.Len(uint(per)))
	h.begins = make([]uint32, h.accesses()>>h.shift+2)
	b := uint32(0)
	for i := range h.begins {
		a := uint32(min(i<<h.shift, h.accesses()))
		for int(b)+1 < batches && h.offsets[b+1] <= a {
			b++
		}
		h.begins[i] = b
	}
}

// batchOf returns the batch of an access.
func (h *index) batchOf(a uint32) uint32 {
	lo, hi := h.begins[a>>h.shift], h.begins[a>>h.shift+1]
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if h.offsets[mid] <= a {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// dest returns the batch and position of an access.
func (h *index) dest(a uint32) Dest {
	b := h.batchOf(a)
	return Dest{Batch: int32(b), Pos: int32(a - h.offsets[b])}
}
