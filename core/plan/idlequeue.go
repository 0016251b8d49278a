package plan

import "freshgo/core/internal/asm"

// idleQueue lists the slots whose rows have no known use, the longest idle first. Entries are not removed when a use
// becomes known: an entry counts only while its slot points back at it.
type idleQueue struct {
	links      []link   // of the residency
	slots      []uint32 // head <= tail <= len
	head, tail int
}

// queueFactor is the number of queue entries for each slot: with 2, moving the valid entries to the front costs two
// steps for each entry added.
const queueFactor = 2

// push appends a slot to the idle ones.
func (q *idleQueue) push(s uint32) {
	if q.tail == len(q.slots) {
		q.compact()
	}
	l := &q.links[s]
	l.next, l.use = idle, uint32(q.tail)
	q.slots[q.tail] = s
	q.tail++
}

// compact moves the valid entries to the front. There are at most as many as slots, half of the length.
func (q *idleQueue) compact() {
	n := 0
	for at := q.head; at < q.tail; at++ {
		if (at-q.head)%block == 0 {
			asm.Prefetch(q.links, q.slots[at:min(at+block, q.tail)])
		}
		s := q.slots[at]
		if l := &q.links[s]; l.next == idle && l.use == uint32(at) {
			q.slots[n] = s
			l.use = uint32(n)
			n++
		}
	}
	q.head, q.tail = 0, n
}

// popSome pops up to len(out) slots, and returns their number.
func (q *idleQueue) popSome(out []uint32) (n int) {
	asm.Prefetch(q.links, q.slots[q.head:min(q.head+len(out), q.tail)])
	for ; n < len(out); n++ {
		if out[n] = q.pop(); out[n] == none {
			break
		}
	}
	return n
}

// pop returns the slot that has been idle for longest, or none.
func (q *idleQueue) pop() uint32 {
	for q.head < q.tail {
		s := q.slots[q.head]
		l := &q.links[s]
		q.head++
		if l.next == idle && l.use == uint32(q.head-1) {
			return s
		}
	}
	q.head, q.tail = 0, 0
	return none
}
