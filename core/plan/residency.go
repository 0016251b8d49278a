package plan

import (
	"freshgo/core/internal/asm"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// none is no access, no slot.
const none = ^uint32(0)

// idle, in link.next, marks a slot whose row has no known use; it is not the number of a slot, since slots are int32.
const idle = none - 1

// sought, in link.next, marks a slot whose row the backward pass has found in a batch.
const sought = none - 2

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

// link is the row in a slot.
type link struct {
	row  uint32
	next uint32 // slot in the same bucket, or none; idle; sought
	// in a bucket: the access that needs the row next; idle: where the slot stands in the queue; sought: the first access
	// so far, + 1
	use uint32
}

// residency tracks the rows in the cache, and decides its changes. Its tables have a word for each row of the graph and
// some for each slot, for a window of any length.
//
// Slots whose rows are needed within the horizon are in buckets by the batch that needs them (buckets); all others are
// in a queue, the longest without a known use first. No list is linked both ways, and no step touches the neighbours of
// a moved entry: these would miss every processor cache.
type residency struct {
	capacity int64

	// by row of the graph: its slot with cachedBit; else, while a plan is made, its first access so far, or from the
	// steps on its next, + 1, with packedBit or leftBit; else 0
	rows  []uint32
	ahead bitset.Set // by part of rows (aheadBits): batches ahead have one of them

	links     []link // by slot
	slotTop   uint32 // slots from here on were never used
	freeSlot  uint32 // the first free slot, linked by next, or none
	freeSlots int64  // free slots

	queue idleQueue

	touched bitset.Set // by slot: read or written by a step of the plan that is being made
	before  []uint32   // by slot: its row when the plan that is being made began, or none

	tables *mem.Block // of all
}

func residencyBytes(numRows, capacity int64) int64 {
	return numRows*4 + bitset.Bytes(aheadParts(numRows)) +
		capacity*(size[link]()+4*(queueFactor+1)) + bitset.Bytes(capacity)
}

func newResidency(budget *mem.Budget, numRows, capacity int64) (*residency, error) {
	block, err := budget.Alloc(mem.FeatureCache, residencyBytes(numRows, capacity))
	if err != nil {
		return nil, err
	}
	r := &residency{capacity: capacity, freeSlot: none, freeSlots: capacity, tables: block}
	data := block.Bytes()
	take := func(n int64) []byte {
		part := data[:n:n]
		data = data[n:]
		return part
	}
	r.touched = mem.View[uint64](take(bitset.Bytes(capacity))) // first, so that they are aligned
	r.ahead = mem.View[uint64](take(bitset.Bytes(aheadParts(numRows))))
	r.links = mem.View[link](take(capacity * size[link]()))
	r.queue = idleQueue{links: r.links, slots: mem.View[uint32](take(capacity * 4 * queueFactor))}
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
	r.links[s].row = row
}

// takeSlot returns a slot that holds nothing.
func (r *residency) takeSlot() uint32 {
	r.freeSlots--
	if s := r.freeSlot; s != none {
		r.freeSlot = r.links[s].next
		return s
	}
	r.slotTop++
	return r.slotTop - 1
}

// each yields all slots and their rows. Empty slots have an empty row.
func (r *residency) each(yield func(slot int32, row uint32)) {
	var rows [block]uint32
	for first := uint32(0); first < r.slotTop; first += block {
		links := r.links[first:min(first+block, r.slotTop)]
		for i := range links {
			rows[i] = links[i].row
		}
		asm.Prefetch(r.rows, rows[:len(links)])
		for i, row := range rows[:len(links)] {
			s := first + uint32(i)
			if at, cached := r.slotOf(row); cached && at == s {
				yield(int32(s), row)
			}
		}
	}
}

// remember keeps a copy of the cached rows for restore.
func (r *residency) remember() {
	for s := range r.before {
		r.before[s] = none
	}
	r.each(func(slot int32, row uint32) { r.before[slot] = row })
}

// remembered yields the rows that were cached when remember was called.
func (r *residency) remembered(yield func(slot int32, row uint32)) {
	for s, row := range r.before {
		if row != none {
			yield(int32(s), row)
		}
	}
}

// clear forgets all that is cached. Between plans nothing else is known.
func (r *residency) clear() {
	r.each(func(_ int32, row uint32) { r.rows[row] = 0 })
	r.empty()
}

// wipe is clear after a plan that was given up half-way.
func (r *residency) wipe() {
	clear(r.rows)
	clear(r.ahead)
	r.empty()
}

func (r *residency) empty() {
	r.slotTop, r.freeSlot, r.freeSlots = 0, none, r.capacity
	r.queue.head, r.queue.tail = 0, 0
}
