package prune

import (
	"context"
	"slices"
	"sync"
)

// turns keeps the order in which the batches of an epoch are pruned and updated: see the package comment.
type turns struct {
	mu      sync.Mutex // guards what follows, and the decisions of the Pruner
	waiters []*waiter
	lag     int64 // Config.History.Lag
	first   int64 // iteration of the epoch's batch 0, which may lie before its start
	count   int64 // batches of the epoch
	next    int64 // the batch that is pruned next
	updated int64 // every iteration before it has been updated
	given   int64 // every iteration before it has been handed over
	failed  int64 // the first batch that could not be made
	plain   bool  // the epoch neither reads nor writes the history
	shut    bool  // the epoch has stopped
}

// begin starts an epoch of count batches at batch from. Whatever was handed over has been updated, or never will be.
func (t *turns) begin(from, count int64, plain bool) {
	t.first, t.count, t.next = t.given-from, count, from
	t.plain, t.shut, t.failed = plain, false, count
	t.updated = t.given
}

// running reports whether batches of an epoch that uses the history are still to be handed over.
func (t *turns) running() bool { return !t.plain && !t.shut && t.given < t.first+t.count }

// waiter is one call of wait.
type waiter struct {
	until func() bool   // seen by the holder of mu
	ready chan struct{} // closed when that holds
}

// wait waits for a condition that the holder of mu may see, until ctx ends.
func (t *turns) wait(ctx context.Context, until func() bool) error {
	for !until() {
		if err := ctx.Err(); err != nil {
			return err
		}
		w := &waiter{until: until, ready: make(chan struct{})}
		t.waiters = append(t.waiters, w)
		t.mu.Unlock()
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
		t.mu.Lock()
		t.waiters = slices.DeleteFunc(t.waiters, func(other *waiter) bool { return other == w })
	}
	return nil
}

// wake wakes the waiters whose condition now holds. The others stay asleep: an update changes the turn of one batch,
// and a batch takes little time compared with waking all that are prepared.
func (t *turns) wake() {
	t.waiters = slices.DeleteFunc(t.waiters, func(w *waiter) bool {
		if !w.until() {
			return false
		}
		close(w.ready)
		return true
	})
}

// awaitTurn waits until a batch is the one to be pruned. It returns ErrStopped where the epoch has stopped.
func (t *turns) awaitTurn(ctx context.Context, index int64) error {
	err := t.wait(ctx, func() bool {
		return t.shut || t.next == index && (t.plain || t.updated >= t.first+index-t.lag)
	})
	if err == nil && t.shut {
		return ErrStopped
	}
	return err
}

// awaitPruned waits until all batches are pruned that must be before the update of iteration i, unless no more batches
// are pruned.
func (t *turns) awaitPruned(ctx context.Context, i int64) error {
	last := min(i-t.first+t.lag+1, t.count)
	return t.wait(ctx, func() bool { return t.next >= min(last, t.failed) || t.shut })
}

// done counts an iteration as updated.
func (t *turns) done(i int64) {
	t.updated = i + 1
	t.wake()
}
