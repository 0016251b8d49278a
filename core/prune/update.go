package prune

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/history"
)

// Norms are the gradient norms of a hidden layer of a batch: those of the rows that were computed and of those that the
// history gave, in the order of the level tables. Without norms of the latter, these are not judged. Of a layer of
// which nothing is to be kept there are none.
type Norms struct{ Computed, Hits []float32 }

// HandOver counts a batch that the consumer takes, and what was found for it.
func (h *Pruner) HandOver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plain {
		return
	}
	if d := h.waiting[h.given]; d != nil {
		h.state.Count(d.lookups)
	}
	h.given++
}

// Update judges the embeddings of the batch that was handed over last, that of iteration i: which of the computed rows
// are kept, and where (FreshGNN, section 4.1). rowBytes is the size of an embedding. It waits until every batch has
// been pruned that may not know of it yet. What it returns is valid until the next call.
func (h *Pruner) Update(ctx context.Context, i, rowBytes int64, norms []Norms) ([]history.Admitted, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.waiting[i]
	if d == nil || i != h.given-1 {
		return nil, noUpdate(i)
	}
	if err := d.observe(norms); err != nil {
		return nil, err
	}
	if err := h.state.SetRow(rowBytes); err != nil {
		return nil, err
	}
	h.wake() // whoever waits for the width of rows
	if err := h.awaitPruned(ctx, i); err != nil {
		return nil, err
	}
	h.admitted = slices.Grow(h.admitted[:0], len(d.layers))[:len(d.layers)]
	err := h.state.Update(i, d.layers, h.admitted)
	h.forget(i)
	h.done(i)
	return h.admitted, err
}

// observe takes the norms of the rows that were decided on.
func (d *decision) observe(norms []Norms) error {
	if len(norms) != len(d.layers) {
		return fmt.Errorf("%w: norms are of %d hidden layers, expected %d", ErrCall, len(norms), len(d.layers))
	}
	for l, n := range norms {
		o := &d.layers[l]
		none := len(n.Computed) == 0 && len(n.Hits) == 0
		if !none && (len(n.Computed) != len(o.Nodes) || len(n.Hits) != 0 && len(n.Hits) != len(o.HitNodes)) {
			return fmt.Errorf("%w: layer %d has %d and %d norms, expected %d of computed rows and %d of hits", ErrCall,
				l+1, len(n.Computed), len(n.Hits), len(o.Nodes), len(o.HitNodes))
		}
		o.Norms, o.HitNorms = n.Computed, n.Hits
	}
	return nil
}

func noUpdate(i int64) error {
	return fmt.Errorf("%w: iteration %d was updated already, or has not begun", ErrCall, i)
}

// SkipUpdate ends the update of iteration i with nothing kept or judged.
func (h *Pruner) SkipUpdate(ctx context.Context, i int64) error {
	h.mu.Lock()
	current := i == h.given-1 && h.waiting[i] != nil
	h.mu.Unlock()
	if !current {
		return noUpdate(i)
	}
	return h.Skip(ctx)
}

// Skip ends the batch that was handed over last without an update. Where it has been updated already, nothing happens.
func (h *Pruner) Skip(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plain || h.updated >= h.given {
		return nil
	}
	i := h.given - 1
	if err := h.awaitPruned(ctx, i); err != nil {
		return err
	}
	if h.waiting[i] != nil {
		h.forget(i)
		h.skipped++
	}
	h.done(i)
	return h.state.Update(i, nil, nil)
}

// awaitPruned waits until no batch is left that must be pruned before the update of iteration i, unless no more batches
// are pruned.
func (h *Pruner) awaitPruned(ctx context.Context, i int64) error {
	last := min(i-h.first+h.config.History.Lag+1, h.count)
	return h.wait(ctx, func() bool { return h.next >= min(last, h.failed) || h.shut })
}

// done counts an iteration as updated.
func (h *Pruner) done(i int64) {
	h.updated = i + 1
	h.wake()
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
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{Stats: h.state.Stats(), Iterations: h.given, Skipped: h.skipped, Start: h.config.History.Start}
	for i := range h.waiting {
		if i >= h.given {
			s.Ahead++
		}
	}
	return s, nil
}
