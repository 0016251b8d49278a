package guard

import (
	"iter"
	"sync/atomic"
)

// Pieces numbers pieces of work that several goroutines divide among themselves.
type Pieces struct {
	count, run int64
	next       atomic.Int64 // the first number that nobody has taken
}

// NewPieces returns the numbers from 0 to before count. A goroutine takes up to run of them at a time.
func NewPieces(count, run int64) *Pieces { return &Pieces{count: count, run: run} }

// Take returns the next run, from first to before end; an empty one if none is left.
func (p *Pieces) Take() (first, end int64) {
	end = p.next.Add(p.run)
	return min(end-p.run, p.count), min(end, p.count)
}

// Each yields the numbers of runs that no other goroutine has taken, until none is left.
func (p *Pieces) Each() iter.Seq[int64] {
	return func(yield func(number int64) bool) {
		for first, end := p.Take(); first < end; first, end = p.Take() {
			for number := first; number < end; number++ {
				if !yield(number) {
					return
				}
			}
		}
	}
}
