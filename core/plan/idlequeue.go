package plan

// idleQueue lists the slots of cached rows that have no known use, the longest idle first. It is a ring.
type idleQueue struct {
	slots   []uint32
	head, n int
}

// push appends a slot to the idle ones.
func (q *idleQueue) push(slot uint32) {
	at := q.head + q.n
	if at >= len(q.slots) {
		at -= len(q.slots)
	}
	q.slots[at] = slot
	q.n++
}

// popSome removes at most n slots that have been idle for longest, fewer where the ring ends, and none where there are
// none. They are valid until the next push.
func (q *idleQueue) popSome(n int) []uint32 {
	some := q.slots[q.head:min(q.head+min(n, q.n), len(q.slots))]
	q.n -= len(some)
	if q.head += len(some); q.head == len(q.slots) {
		q.head = 0
	}
	return some
}
