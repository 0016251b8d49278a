package plan

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

// retain removes from the queue the rows whose words are not those of cached rows.
func (r *residency) retain() {
	q, left := &r.queue, r.queue.n
	var at places
	q.n = 0
	for from := q.head; left > 0; {
		part := q.rows[from:min(from+min(block, left), len(q.rows))]
		for i, place := range r.find(part, 0, &at) {
			if r.words[place]&cachedBit != 0 {
				q.push(part[i])
			}
		}
		left -= len(part)
		if from += len(part); from == len(q.rows) {
			from = 0
		}
	}
}
