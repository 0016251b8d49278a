package plan

import (
	"fmt"
	"math/bits"
)

// maxAccesses is how many accesses a plan can number: the two bits above are flags of the transfer.
const maxAccesses = 1 << 30

// horizon is what a plan sees: the accesses of the superbatch and of what is ahead, numbered in their order.
type horizon struct {
	batches []Batch
	current int      // the first of those ahead
	offsets []uint32 // access number of the first row of each batch, and the end
	ids     []uint32 // by access: the row's number
	next    []uint32 // by access: the next access to the row, or none
	memory  *arena   // scratch: until residency is planned

	// begins[a>>shift] is the batch of access a with its low bits cleared: the search for the batch of an access begins
	// there, and nearly always ends after one comparison.
	begins []uint32
	shift  uint
}

// perBegin is how many entries of begins there are for a batch, at least: with 32 the entry alone answers for 31
// accesses of 32.
const perBegin = 32

func newHorizon(current, ahead []Batch) (*horizon, error) {
	h := &horizon{batches: make([]Batch, 0, len(current)+len(ahead)), current: len(current)}
	h.batches = append(append(h.batches, current...), ahead...)
	h.offsets = make([]uint32, len(h.batches)+1)
	total := int64(0)
	for i, b := range h.batches {
		total += int64(len(b))
		if total > maxAccesses {
			return nil, fmt.Errorf("plan: a superbatch and what is ahead have more than %d rows: %w", maxAccesses, ErrBatch)
		}
		h.offsets[i+1] = uint32(total)
	}
	h.index()
	return h, nil
}

func (h *horizon) accesses() int   { return int(h.offsets[len(h.batches)]) }
func (h *horizon) currentEnd() int { return int(h.offsets[h.current]) }

func (h *horizon) index() {
	per := h.accesses() / (perBegin * max(len(h.batches), 1))
	h.shift = uint(bits.Len(uint(per)))
	h.begins = make([]uint32, h.accesses()>>h.shift+2)
	b := uint32(0)
	for i := range h.begins {
		a := uint32(min(i<<h.shift, h.accesses()))
		for int(b)+1 < len(h.batches) && h.offsets[b+1] <= a {
			b++
		}
		h.begins[i] = b
	}
}

// batchOf returns the batch of an access.
func (h *horizon) batchOf(a uint32) uint32 {
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
func (h *horizon) dest(a uint32) Dest {
	b := h.batchOf(a)
	return Dest{Batch: int32(b), Pos: int32(a - h.offsets[b])}
}
