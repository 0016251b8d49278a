package loader

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/history"
)

// Norms are the gradient norms of a hidden layer of a batch: those of the rows
// that were computed and of those that history gave, in the order of Levels.
type Norms struct{ Computed, Hits []float32 }

// UpdateHistory judges the embeddings of the batch that was handed over last, that
// of iteration i: which of the computed rows are kept, and where (FreshGNN, section
// 4.1). rowBytes is the size of an embedding. It waits until every batch has been
// pruned that may not know of it yet. What it returns is valid until the next call.
func (l *Loader) UpdateHistory(ctx context.Context, i, rowBytes int64, norms []Norms) ([]history.Admitted, error) {
	h := l.past
	if h == nil {
		return nil, errNoHistory
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.waiting[i]
	if d == nil || i != h.given-1 {
		return nil, fmt.Errorf("%w: iteration %d awaits no update of the history", ErrOption, i)
	}
	if len(norms) != len(d.layers) {
		return nil, fmt.Errorf("%w: norms of %d hidden layers, expected %d", ErrOption, len(norms), len(d.layers))
	}
	for l, n := range norms {
		o := &d.layers[l]
		if len(n.Computed) != len(o.Nodes) || len(n.Hits) != len(o.HitNodes) {
			return nil, fmt.Errorf("%w: layer %d has %d and %d norms, expected %d of computed rows and %d of hits", ErrOption,
				l+1, len(n.Computed), len(n.Hits), len(o.Nodes), len(o.HitNodes))
		}
		o.Norms, o.HitNorms = n.Computed, n.Hits
	}
	if err := h.state.SetRow(rowBytes); err != nil {
		return nil, err
	}
	if err := h.awaitPruned(ctx, i); err != nil {
		return nil, err
	}
	h.admitted = slices.Grow(h.admitted[:0], len(d.layers))[:len(d.layers)]
	err := h.state.Update(i, d.layers, h.admitted)
	h.forget(i)
	h.done(i)
	return h.admitted, err
}

// SkipHistory ends the update of iteration i with nothing kept or judged.
func (l *Loader) SkipHistory(ctx context.Context, i int64) error {
	h := l.past
	if h == nil {
		return errNoHistory
	}
	h.mu.Lock()
	current := i == h.given-1 && h.waiting[i] != nil
	h.mu.Unlock()
	if !current {
		return fmt.Errorf("%w: iteration %d awaits no update of the history", ErrOption, i)
	}
	return h.skip(ctx)
}

// skip ends a batch that will not be updated. Nothing happens when it has
// been already.
func (h *past) skip(ctx context.Context) error {
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

// awaitPruned waits until no batch is left that must be pruned before the update of
// iteration i, unless nobody prunes any more.
func (h *past) awaitPruned(ctx context.Context, i int64) error {
	last := min(i-h.first+h.lag+1, h.count)
	return h.wait(ctx, func() bool { return h.next >= min(last, h.failed) || h.shut })
}

// done counts an iteration as updated.
func (h *past) done(i int64) {
	h.updated = i + 1
	h.makeRoom()
	h.changed.Broadcast()
}

// makeRoom leaves the features what the embeddings, which may have taken their
// place or left it, do not need.
func (h *past) makeRoom() {
	if f := h.loader.outermost; f != nil {
		f.resize(h.state.FeatureRoom())
	}
}

// fail tells that a batch will not be made, nor any after it.
func (h *past) fail(index int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = min(h.failed, index)
	h.changed.Broadcast()
}

// handOver counts a batch that the consumer takes, and what was found for it.
func (h *past) handOver() {
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
