package plan

import (
	"math/bits"

	"freshgo/core/cache"
	"freshgo/core/mem"
)

// none is no access, no slot, no number.
const none = ^uint32(0)

// idle, in link.next, marks a slot whose row has no known use; it is not the number of a slot, since slots are int32.
const idle = none - 1

// known is a row that is cached or in the horizon. Rows are known by numbers, so that these tables have the size of
// what is known rather than of the graph.
type known struct {
	row  uint32 // none: the number is free, and what the index says of it is out of date
	slot int32  // or cache.Miss
	use  uint32 // while a plan is made: its first access in the horizon, or none. Between plans none.
}

// link is the row in a slot.
type link struct {
	known uint32
	next  uint32 // slot in the same bucket, or none; idle
	use   uint32 // in a bucket: the access that needs the row next; idle: where the slot stands in the queue
}

// residency is what the cache holds, and by which rules it changes.
//
// Slots whose rows are needed within the horizon are in buckets by the batch that needs them (buckets); all others
// stand in a queue, the longest without a known use first. Entries of the queue are not removed when a use becomes
// known: an entry counts only while its slot says that it stands there. So no list is linked both ways, and no step
// touches the neighbours of what it moves: those would miss every cache.
type residency struct {
	budget   *mem.Budget
	capacity int64

	index    []uint32 // by row of the graph: its number + 1, or 0
	known    []known
	numbered bitset // by number; given out from the lowest on, so that what is new to a plan lies close together
	cursor   int    // word of numbered: all bits before are set

	links     []link // by slot
	slotTop   uint32 // slots from here on were never used
	freeSlot  uint32 // the first of those given back, linked by next, or none
	freeSlots int64  // how many hold nothing

	queue []uint32 // slots, idle since longest first; head <= tail <= len
	head  int
	tail  int

	touched bitset // by slot: read or written by a step of the plan that is being made

	tables, numbers *mem.Block // of everything but known; of known
}

// queueFactor is how many entries the queue has for a slot: with 2, moving the valid ones to its front costs two steps
// for each entry added.
const queueFactor = 2

func residencyBytes(numRows, capacity int64) int64 {
	return numRows*4 + capacity*(size[link]()+4*queueFactor) + int64(bitsetWords(int(capacity)))*8
}

func newResidency(budget *mem.Budget, numRows, capacity int64) (*residency, error) {
	block, err := budget.Alloc(mem.FeatureCache, residencyBytes(numRows, capacity))
	if err != nil {
		return nil, err
	}
	r := &residency{budget: budget, capacity: capacity, freeSlot: none, freeSlots: capacity, tables: block}
	data := block.Bytes()
	take := func(n int64) []byte {
		part := data[:n:n]
		data = data[n:]
		return part
	}
	r.touched = mem.View[uint64](take(int64(bitsetWords(int(capacity))) * 8)) // first, so that it is aligned
	r.links = mem.View[link](take(capacity * size[link]()))
	r.queue = mem.View[uint32](take(capacity * 4 * queueFactor))
	r.index = mem.View[uint32](take(numRows * 4))
	if err := r.makeNumbers(capacity); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// numberBytes is the memory of so many numbers.
func numberBytes(n int64) int64 { return n*size[known]() + int64(bitsetWords(int(n)))*8 }

// grow makes room for more numbers: a quarter more, but not more than one for every slot and every other row of a
// horizon with so many accesses. It is called when all numbers are taken, so that the tables have the size of what is
// known and not of what might be.
func (r *residency) grow(accesses int) error {
	n := int64(len(r.known))
	n = min(max(n+n/4, n+int64(accesses)/8, n+64), r.capacity+int64(min(accesses, len(r.index))))
	return r.makeNumbers(n)
}

func (r *residency) makeNumbers(n int64) error {
	block, err := r.budget.Alloc(mem.FeatureCache, numberBytes(n))
	if err != nil {
		return err
	}
	words := int64(bitsetWords(int(n))) * 8
	numbered, bigger := mem.View[uint64](block.Bytes()[:words]), mem.View[known](block.Bytes()[words:])
	copy(numbered, r.numbered)
	for i := copy(bigger, r.known); i < len(bigger); i++ {
		bigger[i].row = none
	}
	if r.numbers != nil {
		r.numbers.Free()
	}
	r.numbers, r.known, r.numbered = block, bigger, numbered
	r.cursor = 0
	return nil
}

func (r *residency) close() {
	for _, block := range []*mem.Block{r.tables, r.numbers} {
		if block != nil {
			block.Free()
		}
	}
	*r = residency{}
}

// lookUp returns the number of a row, or none.
func (r *residency) lookUp(row uint32) uint32 {
	if n := r.index[row]; int(n) < len(r.known) && r.known[n].row == row {
		return n
	}
	return none
}

// number gives a row that is not known its number, or none when all are taken.
func (r *residency) number(row uint32) uint32 {
	for ; r.cursor < len(r.numbered); r.cursor++ {
		if word := ^r.numbered[r.cursor]; word != 0 {
			n := uint32(r.cursor<<6 + bits.TrailingZeros64(word))
			if int(n) >= len(r.known) {
				break
			}
			r.numbered[r.cursor] |= word & -word
			r.known[n] = known{row: row, slot: cache.Miss, use: none}
			r.index[row] = n
			return n
		}
	}
	return none
}

// forget takes the number of a row back.
func (r *residency) forget(n uint32) {
	r.known[n] = known{row: none, slot: cache.Miss, use: none}
	r.numbered.clear(n)
	r.cursor = min(r.cursor, int(n>>6))
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

// enqueue makes a slot idle, as the last of those that are.
func (r *residency) enqueue(s uint32) {
	if r.tail == len(r.queue) {
		r.compact()
	}
	l := &r.links[s]
	l.next, l.use = idle, uint32(r.tail)
	r.queue[r.tail] = s
	r.tail++
}

// compact moves the valid entries of the queue to its front. There are at most capacity of them, half of its length.
func (r *residency) compact() {
	n := 0
	for at := r.head; at < r.tail; at++ {
		s := r.queue[at]
		if l := &r.links[s]; l.next == idle && l.use == uint32(at) {
			r.queue[n] = s
			l.use = uint32(n)
			n++
		}
	}
	r.head, r.tail = 0, n
}

// dequeue returns the slot that has been idle for longest, or none.
func (r *residency) dequeue() uint32 {
	for r.head < r.tail {
		s := r.queue[r.head]
		l := &r.links[s]
		r.head++
		if l.next == idle && l.use == uint32(r.head-1) {
			return s
		}
	}
	r.head, r.tail = 0, 0
	return none
}

// clear forgets all that is cached.
func (r *residency) clear() {
	for w, word := range r.numbered {
		for ; word != 0; word &= word - 1 {
			r.forget(uint32(w<<6 + bits.TrailingZeros64(word)))
		}
	}
	r.cursor = 0
	r.slotTop, r.freeSlot, r.freeSlots = 0, none, r.capacity
	r.head, r.tail = 0, 0
}
