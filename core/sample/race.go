package sample

import (
	"math"

	"freshgo/core/mem"
)

// race keeps the runners with the smallest keys, in a heap with the largest on top. Equal keys rank by offset. Keys of
// exponential races are the bits of a nonnegative float64, which sort like the numbers.
type race struct {
	small [scanLimit + 1]runner // for fanouts up to scanLimit
	buf   buffer[runner]        // for larger ones
	heap  []runner
	room  int
}

type runner struct {
	key    uint64
	offset int64
}

func (a runner) before(b runner) bool { return a.key < b.key || a.key == b.key && a.offset < b.offset }

func (r *race) grow(budget *mem.Budget, n int) error {
	if n <= len(r.small) {
		return nil
	}
	return r.buf.grow(budget, mem.Trace, int64(n), 0)
}

// start begins a race with room for n runners, for which grow has made room.
func (r *race) start(n int) {
	r.room = n
	if n <= len(r.small) {
		r.heap = r.small[:0]
	} else {
		r.heap = r.buf.data[:0]
	}
}

// full reports whether n runners have arrived, so that only a runner ahead of the last one can enter.
func (r *race) full() bool { return len(r.heap) == r.room }

// add enters a runner. In a full race it replaces the last one, if it is ahead of it.
func (r *race) add(a runner) {
	if len(r.heap) < r.room {
		r.heap = append(r.heap, a)
		for i := len(r.heap) - 1; i > 0; {
			up := (i - 1) / 2
			if !r.heap[up].before(a) {
				break
			}
			r.heap[i], r.heap[up] = r.heap[up], a
			i = up
		}
		return
	}
	if len(r.heap) > 0 && a.before(r.heap[0]) {
		r.sink(a)
	}
}

// sink replaces the last one by a.
func (r *race) sink(a runner) {
	heap := r.heap
	i := 0
	for {
		down := 2*i + 1
		if down >= len(heap) {
			break
		}
		if down+1 < len(heap) && heap[down].before(heap[down+1]) {
			down++
		}
		if !a.before(heap[down]) {
			break
		}
		heap[i] = heap[down]
		i = down
	}
	heap[i] = a
}

// last removes and returns the last one.
func (r *race) last() runner {
	top, end := r.heap[0], len(r.heap)-1
	a := r.heap[end]
	if r.heap = r.heap[:end]; end > 0 {
		r.sink(a)
	}
	return top
}

// exponential converts uniform bits to a draw from the exponential distribution with mean 1, greater than 0. Divided by
// rates w_i, the smallest of several draws is number i with probability w_i / sum of w (Efraimidis and Spirakis,
// Weighted random sampling with a reservoir, 2006).
func exponential(x uint64) float64 {
	return -logarithm((float64(x>>11) + 0.5) * 0x1p-53)
}

// arrival returns the key of a runner with weight w, above 0, in an exponential race.
func arrival(e float64, w float64) uint64 { return math.Float64bits(e / w) }
