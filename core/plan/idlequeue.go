package plan

import "freshgo/core/internal/asm"

// idleQueue lists the cached rows that have no known use, the longest idle first. It is a ring.
type idleQueue struct {
	rows    []uint32
	head, n int
}

// push appends a row to the idle ones.
func (q *idleQueue) push(row uint32) {
	at := q.head + q.n
	if at >= len(q.rows) {
		at -= len(q.rows)
	}
	q.rows[at] = row
	q.n++
}

// popSome removes at most n rows that have been idle for longest, fewer where the ring ends, and none where there are
// none. They are valid until the next push.
func (q *idleQueue) popSome(n int) []uint32 {
	some := q.rows[q.head:min(q.head+min(n, q.n), len(q.rows))]
	q.n -= len(some)
	if q.head += len(some); q.head == len(q.rows) {
		q.head = 0
	}
	return some
}

// retain removes the rows that are not cached by their word in words.
func (q *idleQueue) retain(words []uint32) {
	left := q.n
	q.n = 0
	for at := q.head; left > 0; {
		part := q.rows[at:min(at+min(block, left), len(q.rows))]
		asm.Prefetch(words, part)
		for _, row := range part {
			if words[row]&cachedBit != 0 {
				q.push(row)
			}
		}
		left -= len(part)
		if at += len(part); at == len(q.rows) {
			at = 0
		}
	}
}
