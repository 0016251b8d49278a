package loader

import (
	"math"
	"sync"

	"freshgo/core/draw"
)

// turnstile lets batches through one at a time and in their order.
type turnstile struct {
	mu      sync.Mutex
	changed sync.Cond
	next    int64 // who may enter; guarded by mu, as is end
	end     int64 // who enters no more, nor those after it
}

func newTurnstile(first int64) *turnstile {
	t := &turnstile{next: first, end: math.MaxInt64}
	t.changed.L = &t.mu
	return t
}

// enter waits until every batch before i has left. It returns errStopped where i is one that enters no more.
func (t *turnstile) enter(i int64) error {
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

// leave lets the next batch in.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	t.changed.Broadcast()
}

// endAt makes every enter of batch i and those after it return, now and later.
func (t *turnstile) endAt(i int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = min(t.end, i)
	t.changed.Broadcast()
}

// shutdown makes every enter return, now and later.
func (t *turnstile) shutdown() { t.endAt(math.MinInt64) }
