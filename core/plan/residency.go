package plan

import (
	"context"
	"fmt"
	"math/bits"

	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// none is no access, no slot.
const none = ^uint32(0)

// Accesses take 30 bits. The bit above is a mark. packedBit, in next uses, says that a pack of an earlier plan holds
// the row for that access. leftBit, in residency.words once a row has left the cache, says that the row can be set
// aside for its next access.
const (
	accessBits = 30
	packedBit  = 1 << accessBits
	leftBit    = packedBit
	accessMask = packedBit - 1
)

// residency tracks the rows in the cache, and decides its changes. Its tables have some words for each slot, and 12
// bytes for 64 rows of the graph. While a plan is made there is a word for each row of the graph, or for those that it
// knows, the cached ones and those of its batches, where these are few.
//
// Slots whose rows are needed within the horizon are in buckets by the batch that needs them (buckets); all others are
// in a queue, the longest without a known use first. So an access reads and writes memory that no processor cache holds
// once, its word, when next uses are found.
type residency struct {
	numRows, capacity int64
	budget            *mem.Budget

	// While a plan is made: the rows that it knows, and for each word of this set the number of known rows before it.
	known  bitset.Set
	counts []uint32
	all    bool // every row is known
	// by known row, rising: its first access so far + 1, with packedBit; from the steps on that of rows which are not
	// cached, or of the batches ahead once they have left, with leftBit; else 0
	words []uint32
	end   uint32     // the first access of the batches ahead
	ahead bitset.Set // by part of the rows (aheadBits): batches ahead have one of them

	held      []uint32 // by slot: its row + 1, or 0
	slotTop   uint32   // slots from here on were never used
	freeSlot  uint32   // no slot before is free
	freeSlots int64    // free slots

	chunks []chunk // of buckets
	queue  idleQueue

	before    []uint32 // held, when the plan that is being made began
	beforeTop uint32   // slotTop then

	tables *mem.Block // of all but words
	block  *mem.Block // of words; nil between plans
}

func residencyBytes(numRows, capacity int64) int64 {
	return bitset.Bytes(numRows) + 4*bitset.Words(numRows) + bitset.Bytes(aheadParts(numRows)) +
		numChunks(capacity)*size[chunk]() + capacity*3*4
}

func newResidency(budget *mem.Budget, numRows, capacity int64) (*residency, error) {
	block, err := budget.Alloc(mem.FeatureCache, residencyBytes(numRows, capacity))
	if err != nil {
		return nil, err
	}
	r := &residency{numRows: numRows, capacity: capacity, budget: budget, freeSlots: capacity, tables: block}
	data := block.Bytes()
	take := func(n int64) []byte {
		part := data[:n:n]
		data = data[n:]
		return part
	}
	r.chunks = mem.View[chunk](take(numChunks(capacity) * size[chunk]())) // first, so that each is a cache line
	r.known = mem.View[uint64](take(bitset.Bytes(numRows)))
	r.ahead = mem.View[uint64](take(bitset.Bytes(aheadParts(numRows))))
	r.counts = mem.View[uint32](take(bitset.Words(numRows) * 4))
	r.queue.slots = mem.View[uint32](take(capacity * 4))
	r.held = mem.View[uint32](take(capacity * 4))
	r.before = mem.View[uint32](take(capacity * 4))
	return r, nil
}

func (r *residency) close() {
	r.forget()
	if r.tables != nil {
		r.tables.Free()
	}
	*r = residency{}
}

// fewKnown is the least share, as a divisor, of the rows of the graph from which on a plan knows all of them. To look
// up the places of fewer takes twice the processor time of a plan: 460 to 500 ms for a million accesses in place of 230
// to 280, with 111M rows and 82M accesses and slots.
const fewKnown = 4

// FewKnown returns the most accesses and slots for which a plan does not know all rows of the graph.
func FewKnown(numRows int64) int64 { return max(0, numRows/fewKnown-1) }

func knowsAll(numRows, accesses, capacity int64) bool { return accesses+capacity > FewKnown(numRows) }

// know begins a plan, with a word for each cached row and each row of the horizon, or for all rows where these may be
// many. After an error nothing has begun.
func (r *residency) know(ctx context.Context, h *horizon) error {
	r.all = knowsAll(r.numRows, int64(h.accesses()), r.capacity)
	if r.all {
		for i := range r.known {
			r.known[i] = ^uint64(0) >> max(0, 64*(int64(i)+1)-r.numRows)
		}
	} else if err := r.knowBatches(ctx, h); err != nil {
		return err
	}
	n := 0
	for i, word := range r.known {
		r.counts[i] = uint32(n)
		n += bits.OnesCount64(word)
	}
	block, err := r.budget.Alloc(mem.Trace, int64(n)*4)
	if err != nil {
		return err
	}
	r.block, r.words, r.end = block, mem.Slice[uint32](block), uint32(h.currentEnd())
	return nil
}

// knowBatches makes the cached rows and the rows of the horizon known.
func (r *residency) knowBatches(ctx context.Context, h *horizon) error {
	clear(r.known)
	for _, row := range r.held[:r.slotTop] {
		if row != 0 {
			r.known.Add(int64(row - 1))
		}
	}
	trace := h.loadRows(ctx, 0, len(h.batches))
	defer trace.close()
	for b := range h.batches {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		err := takeFrom(trace, func(rows []uint32) error {
			if err := r.check(b, rows); err != nil {
				return err
			}
			for _, row := range rows {
				r.known.Add(int64(row))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if the graph lacks a row of a batch.
func (r *residency) check(b int, rows []uint32) error {
	for _, row := range rows {
		if int64(row) >= r.numRows {
			return fmt.Errorf("plan: batch %d has row %d of %d: %w", b, row, r.numRows, ErrBatch)
		}
	}
	return nil
}

// places returns the places of known rows in words, in the memory of buffer where they are not the rows themselves.
func (r *residency) places(rows, buffer []uint32) []uint32 {
	if r.all {
		return rows
	}
	for i, row := range rows {
		buffer[i] = r.counts[row>>6] + uint32(bits.OnesCount64(r.known[row>>6]&(1<<(row&63)-1)))
	}
	return buffer[:len(rows)]
}

// forget ends a plan: rows that are not cached are not known.
func (r *residency) forget() {
	if r.block != nil {
		r.block.Free()
	}
	r.block, r.words = nil, nil
	clear(r.ahead)
}

// takeSlot returns a slot that holds nothing.
func (r *residency) takeSlot() uint32 {
	r.freeSlots--
	for r.freeSlot < r.slotTop && r.held[r.freeSlot] != 0 {
		r.freeSlot++
	}
	r.freeSlot++
	r.slotTop = max(r.slotTop, r.freeSlot)
	return r.freeSlot - 1
}

// remember notes what is cached for restore.
func (r *residency) remember() { r.beforeTop = uint32(copy(r.before, r.held[:r.slotTop])) }

// restore ends a plan that failed: what was cached when remember was called is cached, and idle.
func (r *residency) restore() {
	r.forget()
	r.clear()
	r.slotTop = uint32(copy(r.held, r.before[:r.beforeTop]))
	r.queueAll()
}

// queueAll makes all that is cached idle.
func (r *residency) queueAll() {
	for s, row := range r.held[:r.slotTop] {
		if row != 0 {
			r.queue.push(uint32(s))
			r.freeSlots--
		}
	}
}

// clear makes all slots free.
func (r *residency) clear() {
	clear(r.held[:r.slotTop])
	r.slotTop, r.freeSlot, r.freeSlots = 0, 0, r.capacity
	r.queue.head, r.queue.n = 0, 0
}
