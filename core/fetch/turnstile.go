package fetch

import (
	"math"
	"sync"

	"freshgo/core/draw"
)

// Turnstile lets batches through one at a time and in their order.
type Turnstile struct {
	mu      sync.Mutex
	changed sync.Cond
	next    int64 // who may enter; guarded by mu, as is end
	end     int64 // this batch and later ones do not enter
}

func NewTurnstile(first int64) *Turnstile {
	t := &Turnstile{next: first, end: math.MaxInt64}
	t.changed.L = &t.mu
	return t
}

// Enter waits until every batch before i has left. It returns draw.ErrStopped if i must not enter any more.
func (t *Turnstile) Enter(i int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next != i && i < t.end {
		t.changed.Wait()
	}
	if i >= t.end {
		return draw.ErrStopped
	}
	return nil
}

// Leave lets the next batch in.
func (t *Turnstile) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	t.changed.Broadcast()
}

// EndAt makes every enter of batch i and those after it return, now and later.
func (t *Turnstile) EndAt(i int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = min(t.end, i)
	t.changed.Broadcast()
}

// Shutdown makes every enter return, now and later.
func (t *Turnstile) Shutdown() { t.EndAt(math.MinInt64) }
