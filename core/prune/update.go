package prune

import (
	"context"
	"fmt"

	"freshgo/core/history"
	"freshgo/core/internal/reuse"
)

// Norms are the gradient norms of a hidden layer of a batch: of computed rows and of hits, in the order of the level
// tables. Without norms of hits, hits are not judged. A layer without kept rows has none.
type Norms struct{ Computed, Hits []float32 }

// HandOver counts a batch that the consumer trains on now, and its lookups. It returns ErrCall where no batch has been
// pruned that was not handed over.
func (h *Pruner) HandOver() error {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	switch {
	case h.turns.plain:
		return nil
	case h.turns.given >= h.turns.first+h.turns.next:
		return fmt.Errorf("%w: iteration %d begins before its batch was taken", ErrCall, h.turns.given)
	}
	if d := h.decided.waiting[h.turns.given]; d != nil {
		h.decided.state.Count(d.lookups)
	}
	h.turns.given++
	return nil
}

// Update judges the embeddings of the newest batch, of iteration i, and returns the computed rows to keep, and their
// slots (FreshGNN, section 4.1). rowBytes is the size of an embedding. It waits until every batch that must not see
// this update is pruned. The result is valid until the next call.
func (h *Pruner) Update(ctx context.Context, i, rowBytes int64, norms []Norms) ([]history.Admitted, error) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	d := h.decided.waiting[i]
	if d == nil || i != h.turns.given-1 {
		return nil, noUpdate(i)
	}
	if err := d.observe(norms); err != nil {
		return nil, err
	}
	if err := h.decided.state.SetRow(rowBytes); err != nil {
		return nil, err
	}
	h.turns.wake() // whoever waits for the width of rows
	if err := h.turns.awaitPruned(ctx, i); err != nil {
		return nil, err
	}
	h.admitted = reuse.Slice(h.admitted, len(d.layers))
	err := h.decided.state.Update(i, d.layers, h.admitted)
	h.decided.forget(i)
	h.turns.done(i)
	return h.admitted, err
}

func noUpdate(i int64) error {
	return fmt.Errorf("%w: iteration %d was updated already, or has not begun", ErrCall, i)
}

// SkipUpdate ends the update of iteration i with nothing kept or judged.
func (h *Pruner) SkipUpdate(ctx context.Context, i int64) error {
	h.turns.mu.Lock()
	current := i == h.turns.given-1 && h.decided.waiting[i] != nil
	h.turns.mu.Unlock()
	if !current {
		return noUpdate(i)
	}
	return h.Skip(ctx)
}

// Skip ends the batch that was handed over last without an update. Where it has been updated already, nothing happens.
func (h *Pruner) Skip(ctx context.Context) error {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	if h.turns.plain || h.turns.updated >= h.turns.given {
		return nil
	}
	i := h.turns.given - 1
	if err := h.turns.awaitPruned(ctx, i); err != nil {
		return err
	}
	if h.decided.waiting[i] != nil {
		h.decided.forget(i)
		h.skipped++
	}
	h.turns.done(i)
	return h.decided.state.Update(i, nil, nil)
}

// Stats counts the work of the history.
type Stats struct {
	history.Stats
	Iterations int64 `json:"iterations"` // batches handed over in training epochs
	Skipped    int64 `json:"skipped"`    // of those, pruned and not updated
	Start      int64 `json:"start"`      // the first iteration that was pruned or will be
	Ahead      int64 `json:"-"`          // batches that are pruned and not handed over
}

// Stats returns the figures so far.
func (h *Pruner) Stats() (Stats, error) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	s := Stats{Stats: h.decided.state.Stats(), Iterations: h.turns.given, Skipped: h.skipped,
		Start: h.config.History.Start}
	for i := range h.decided.waiting {
		if i >= h.turns.given {
			s.Ahead++
		}
	}
	return s, nil
}
