package plan

import (
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// none is no access, no slot.
const none = ^uint32(0)

// cachedBit, in residency.rows, marks a row that is cached: below it is its slot.
const cachedBit = 1 << 31

// Accesses take 30 bits. The bit above is a mark. packedBit, in next uses, says that a pack of an earlier plan holds
// the row for that access. leftBit, in residency.rows once a row has left the cache, says that the row can be set aside
// for its next access; alone it stands for an access of the superbatch.
const (
	accessBits = 30
	packedBit  = 1 << accessBits
	leftBit    = packedBit
	accessMask = packedBit - 1
)

// residency tracks the rows in the cache, and decides its changes. Its tables have a word for each row of the graph and
// some for each slot, for a window of any length.
//
// Cached rows that are needed within the horizon are in buckets by the batch that needs them (buckets); all others are
// in a queue, the longest without a known use first. Buckets and queue have the rows themselves, one after another, and
// nothing by slot: a row that is needed again costs one access to memory that no processor cache holds, to its word.
type residency struct {
	capacity int64

	// by row of the graph: its slot with cachedBit; else, while a plan is made, its first access so far (of cached rows
	// too, until the steps), or from the steps on its next, + 1, with packedBit or leftBit; else 0
	rows  []uint32
	ahead bitset.Set // by part of rows (aheadBits): batches ahead have one of them

	held      []uint32 // by slot: its row + 1, or 0
	slotTop   uint32   // slots from here on were never used
	freeSlot  uint32   // no slot before is free
	freeSlots int64    // free slots

	chunks []chunk // of buckets
	queue  idleQueue

	before    []uint32 // held, when the plan that is being made began
	beforeTop uint32   // slotTop then

	tables *mem.Block // of all
}

func residencyBytes(numRows, capacity int64) int64 {
	return numRows*4 + bitset.Bytes(aheadParts(numRows)) +
		numChunks(capacity)*size[chunk]() + capacity*3*4
}

func newResidency(budget *mem.Budget, numRows, capacity int64) (*residency, error) {
	block, err := budget.Alloc(mem.FeatureCache, residencyBytes(numRows, capacity))
	if err != nil {
		return nil, err
	}
	r := &residency{capacity: capacity, freeSlots: capacity, tables: block}
	data := block.Bytes()
	take := func(n int64) []byte {
		part := data[:n:n]
		data = data[n:]
		return part
	}
	r.chunks = mem.View[chunk](take(numChunks(capacity) * size[chunk]())) // first, so that each is a cache line
	r.ahead = mem.View[uint64](take(bitset.Bytes(aheadParts(numRows))))
	r.queue.rows = mem.View[uint32](take(capacity * 4))
	r.held = mem.View[uint32](take(capacity * 4))
	r.before = mem.View[uint32](take(capacity * 4))
	r.rows = mem.View[uint32](take(numRows * 4))
	return r, nil
}

func (r *residency) close() {
	if r.tables != nil {
		r.tables.Free()
	}
	*r = residency{}
}

// slotOf returns the slot of a row, or false.
func (r *residency) slotOf(row uint32) (uint32, bool) {
	v := r.rows[row]
	return v &^ cachedBit, v&cachedBit != 0
}

// put assigns a row to a slot.
func (r *residency) put(s, row uint32) {
	r.rows[row] = cachedBit | s
	r.held[s] = row + 1
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

// remember keeps a copy of the cached rows for remembered.
func (r *residency) remember() { r.beforeTop = uint32(copy(r.before, r.held[:r.slotTop])) }

// remembered yields the slots and rows that were cached when remember was called.
func (r *residency) remembered(yield func(slot int32, row uint32)) {
	for s, row := range r.before[:r.beforeTop] {
		if row != 0 {
			yield(int32(s), row-1)
		}
	}
}

// clear forgets all that is cached. Between plans nothing else is known.
func (r *residency) clear() {
	for _, row := range r.held[:r.slotTop] {
		if row != 0 {
			r.rows[row-1] = 0
		}
	}
	r.empty()
}

// wipe is clear after a plan that was given up half-way.
func (r *residency) wipe() {
	clear(r.rows)
	clear(r.ahead)
	r.empty()
}

func (r *residency) empty() {
	clear(r.held[:r.slotTop])
	r.slotTop, r.freeSlot, r.freeSlots = 0, 0, r.capacity
	r.queue.head, r.queue.n = 0, 0
}
