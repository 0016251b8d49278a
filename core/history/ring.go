package history

import (
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// slot is the state of one embedding row, half a cache line.
type slot struct {
	admitted   int64 // iteration
	node       uint32
	prev, next int32  // in the list of its bucket, or -1
	need       uint32 // expected number of uses: see prices
	bucket     uint16 // of the entry's rate, or 0
	pins       uint16 // batches that rely on the row
	layer      uint8  // of the entry, or 0: the slot has none
	_          [3]byte
}

const slotSize = 32

// numBuckets is for rates; see bucketOf.
const numBuckets = 1024

// ring holds the embeddings of the buffer (section 4.2): slots 0 to top-1, entries in the order of their admission.
//
// Entries are in lists by the bucket of their savings, or all in one list if the policy does not weigh them; each list
// is in the order of admission, so expired entries are at the heads. If no slot is free and there is no room to grow,
// the oldest entry of the lowest bucket is evicted: with one bucket this is the paper's ring, whose header overwrites
// the oldest rows, without the rows that its reset left behind. A new entry takes the lowest free slot, like a header
// that is reset at every iteration: the region ends as low as possible. Rejected: a cursor that continues from its last
// position, which spreads entries over the region.
type ring struct {
	slots []slot
	free  bitset.Set // slots below top that hold nothing and are not pinned
	low   int32      // no slot before it is free
	top   int32      // slots from here on hold nothing and are not pinned
	live  int64
	holes int64 // bits set in free

	heads, tails [numBuckets]int32
	filled       bitset.Set // lists that are not empty
}

func slotBytes(n int64) int64 { return n*slotSize + bitset.Bytes(n) }

func (r *ring) init(data []byte, n int64) {
	r.slots = mem.View[slot](data[:n*slotSize])
	r.free = mem.View[uint64](data[n*slotSize:])
	r.filled = bitset.New(numBuckets)
	for b := range numBuckets {
		r.heads[b], r.tails[b] = -1, -1
	}
}

// lowest returns the first bucket from b on that is not empty, or numBuckets.
func (r *ring) lowest(b int) int {
	if found := r.filled.Next(int64(b)); found >= 0 {
		return int(found)
	}
	return numBuckets
}

// link puts an entry at the end of its bucket.
func (r *ring) link(at int32) {
	s := &r.slots[at]
	b := s.bucket
	s.prev, s.next = r.tails[b], -1
	if s.prev >= 0 {
		r.slots[s.prev].next = at
	} else {
		r.heads[b] = at
		r.filled.Add(int64(b))
	}
	r.tails[b] = at
	r.live++
}

func (r *ring) unlink(at int32) {
	s := &r.slots[at]
	b := s.bucket
	if s.prev >= 0 {
		r.slots[s.prev].next = s.next
	} else {
		r.heads[b] = s.next
	}
	if s.next >= 0 {
		r.slots[s.next].prev = s.prev
	} else {
		r.tails[b] = s.prev
	}
	if r.heads[b] < 0 {
		r.filled.Remove(int64(b))
	}
	r.live--
}

// release makes a slot free.
func (r *ring) release(at int32) {
	r.free.Add(int64(at))
	r.low = min(r.low, at)
	r.holes++
}

// claim takes a slot out of the free ones.
func (r *ring) claim(at int32) {
	r.free.Remove(int64(at))
	r.holes--
}

func (r *ring) isFree(at int32) bool { return r.free.Has(int64(at)) }

// takeFree returns the lowest free slot, or -1.
func (r *ring) takeFree() int32 {
	if r.holes == 0 {
		return -1
	}
	r.low = int32(r.free.Next(int64(r.low)))
	r.claim(r.low)
	return r.low
}

// reach makes the region at least top slots long.
func (r *ring) reach(top int32) {
	for ; r.top < top; r.top++ {
		r.release(r.top)
	}
}

// shrink frees the free slots at the top.
func (r *ring) shrink() {
	for r.top > 0 && r.isFree(r.top-1) {
		r.top--
		r.claim(r.top)
	}
}

// pins are the slots that batches rely on, by iteration.
type pins struct {
	held  map[int64][]int32
	spare [][]int32
}

// Pin keeps rows until Unpin for the same iteration, even after their entries end. It may be called several times.
func (h *History) Pin(i int64, slots []int32) {
	if len(slots) == 0 {
		return
	}
	list, held := h.pinned.held[i]
	if n := len(h.pinned.spare); !held && n > 0 {
		list = h.pinned.spare[n-1][:0]
		h.pinned.spare = h.pinned.spare[:n-1]
	}
	for _, at := range slots {
		s := &h.entries.slots[at]
		if s.pins++; s.pins == 0 {
			panic("history: 65536 batches rely on one slot")
		}
		// Only a restored run pins slots without entries, which were pinned when the state was saved.
		h.entries.reach(at + 1)
		if h.entries.isFree(at) {
			h.entries.claim(at)
		}
	}
	if h.pinned.held == nil {
		h.pinned.held = map[int64][]int32{}
	}
	h.pinned.held[i] = append(list, slots...)
}

// Pinnable reports whether a slot can hold a row, of a node at a layer for iteration i, that was pinned when the state
// was saved: its entry is there, or the slot has none, because the entry ended while a batch relied on the row.
func (h *History) Pinnable(i int64, layer int, node int64, slot int32) bool {
	return slot >= 0 && slot < h.entries.numSlots && (h.entries.slots[slot].layer == 0 || h.Find(i, layer, node) == slot)
}

// Unpin ends the pins of an iteration. Without any it does nothing.
func (h *History) Unpin(i int64) {
	list, held := h.pinned.held[i]
	if !held {
		return
	}
	delete(h.pinned.held, i)
	for _, at := range list {
		s := &h.entries.slots[at]
		if s.pins--; s.pins == 0 && s.layer == 0 {
			h.entries.release(at)
		}
	}
	h.pinned.spare = append(h.pinned.spare, list)
	h.entries.shrink()
}
