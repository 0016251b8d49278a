package loader

import "sync"

// turnstile lets batches through one at a time and in their order.
type turnstile struct {
	mu      sync.Mutex
	changed sync.Cond
	next    int64 // who may enter; guarded by mu, as is shut
	shut    bool
}

func newTurnstile(first int64) *turnstile {
	t := &turnstile{next: first}
	t.changed.L = &t.mu
	return t
}

// enter waits until every batch before i has left. It returns errStopped after shutdown.
func (t *turnstile) enter(i int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next != i && !t.shut {
		t.changed.Wait()
	}
	if t.shut {
		return errStopped
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

// shutdown makes every enter return, now and later.
func (t *turnstile) shutdown() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = true
	t.changed.Broadcast()
}
