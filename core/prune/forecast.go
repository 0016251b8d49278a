package prune

import (
	"context"
	"errors"
	"fmt"
	"math"

	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Forecast counts the rows that pruning will save and leave in an epoch.
type Forecast struct {
	Rows, PlainRows   int64   // nodes whose features are read, seeds included, and those of the batches as they are drawn
	Edges, PlainEdges int64   // of the batches
	Hits, Misses      []int64 // by hidden layer
}

// Forecaster prunes batches ahead of training, with a copy of the history that it then updates as training will. This
// is possible where decisions depend on no gradient: every computed row may enter, and only age and room end an entry.
// So its counts equal the counts of training, if training updates each batch.
type Forecaster struct {
	of       *Pruner
	copied   *Pruner
	cut      *Cut
	rowBytes int64 // 0: nobody knows before the first update
	at, lag  int64
	before   []history.LayerStats
	found    Forecast
}

// Forecast begins one of an epoch as Begin would begin it now. It takes as much memory as the history
// has for its tables.
//
// Errors: ErrCall where decisions depend on gradients, where the size of what is
// kept is not known before the first update, or within an epoch; mem.ErrBudget.
func (h *Pruner) Forecast(budget *mem.Budget, from, count int64) (*Forecaster, error) {
	h.turns.mu.Lock()
	rowBytes := h.decided.state.Stats().RowBytes
	running := h.turns.running() || len(h.decided.restored) > 0
	h.turns.mu.Unlock()
	switch err := h.Forecastable(); {
	case err != nil:
		return nil, err
	case rowBytes == 0:
		return nil, fmt.Errorf("%w: a forecast needs the width of embeddings, known from the first update on: "+
			"train one batch first", ErrCall)
	case running:
		return nil, fmt.Errorf("%w: an epoch is running: ask for a forecast between epochs", ErrCall)
	}
	f, err := h.forecaster(budget)
	if err != nil {
		return nil, err
	}
	f.rowBytes = rowBytes
	f.begin(from, count)
	return f, nil
}

// Follow begins one of the epoch that has begun and those after it, before any of its batches is pruned. Where nothing
// was updated yet, Next waits for the first update of training when it has to know how wide rows are: see Free.
//
// Errors: those of Forecast, but within an epoch and before the first update; ErrCall in a plain epoch.
func (h *Pruner) Follow(budget *mem.Budget) (*Forecaster, error) {
	if err := h.Forecastable(); err != nil {
		return nil, err
	}
	h.turns.mu.Lock()
	plain, from, count := h.turns.plain, h.turns.next, h.turns.count
	h.turns.mu.Unlock()
	if plain {
		return nil, fmt.Errorf("%w: the epoch uses no history", ErrCall)
	}
	f, err := h.forecaster(budget)
	if err != nil {
		return nil, err
	}
	f.begin(from, count)
	return f, nil
}

// Forecastable says why nobody knows ahead what the history will keep, or nil.
func (h *Pruner) Forecastable() error {
	if p := h.config.History.GradFraction; p < 1 {
		return fmt.Errorf("%w: a forecast needs p_grad=1, got %v: below 1, gradients decide what is kept", ErrCall, p)
	}
	return nil
}

// Follows reports whether Follow can begin with the epoch that has begun.
func (h *Pruner) Follows() bool {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	return !h.turns.plain && h.Forecastable() == nil
}

// forecaster makes a copy of the history as it is.
func (h *Pruner) forecaster(budget *mem.Budget) (*Forecaster, error) {
	h.turns.mu.Lock()
	config := h.config
	h.turns.mu.Unlock()
	state, err := h.Save()
	if err != nil {
		return nil, err
	}
	copied, err := New(budget, config)
	if err != nil {
		return nil, fmt.Errorf("history: tables for a forecast: %w", err)
	}
	if err := copied.Restore(state, func() {}); err != nil {
		copied.Close()
		return nil, err
	}
	return &Forecaster{
		of: h, copied: copied, cut: copied.Lend(), lag: config.History.Lag, before: copied.decided.state.Stats().Layers,
	}, nil
}

func (f *Forecaster) begin(from, count int64) {
	f.copied.Begin(from, count, false)
	f.at = from
}

// NextEpoch goes on with the epoch after the one whose batches have been given to Next. It returns the errors of Next.
func (f *Forecaster) NextEpoch(ctx context.Context, count int64) error {
	for f.copied.turns.given-f.copied.turns.first < f.at {
		if err := f.update(ctx); err != nil {
			return err
		}
	}
	f.begin(0, count)
	return nil
}

// Free returns the number of batches, of this epoch and later ones, that Next will take without waiting for training.
func (f *Forecaster) Free() int64 {
	h := f.copied
	if f.learn() {
		return math.MaxInt64
	}
	now, end := h.turns.first+f.at, h.turns.first+h.turns.count
	first := max(h.config.History.Start, h.turns.given) // whose update has to be known
	if first >= end {                                   // in a later epoch: all batches before it are free
		return max(1, first-now)
	}
	return min(first+f.lag+1, end) - now
}

// learn takes over how wide rows are, if training has said that.
func (f *Forecaster) learn() bool {
	if f.rowBytes == 0 {
		f.of.turns.mu.Lock()
		defer f.of.turns.mu.Unlock()
		f.rowBytes = f.of.decided.state.Stats().RowBytes
	}
	return f.rowBytes > 0
}

// await waits until training has said how wide rows are, by the update of iteration i, which may be of an epoch that
// has not begun.
func (f *Forecaster) await(ctx context.Context, i int64) error {
	h := f.of
	h.turns.mu.Lock()
	err := h.turns.wait(ctx, func() bool { return h.decided.state.Stats().RowBytes > 0 || h.turns.updated > i })
	h.turns.mu.Unlock()
	if err == nil && !f.learn() {
		err = fmt.Errorf("%w: iteration %d was not updated", ErrCall, i)
	}
	return err
}

// Close frees the memory.
func (f *Forecaster) Close() {
	f.copied.TakeBack(f.cut)
	f.copied.Close()
}

// Next prunes the next batch of the epoch, and returns the place of each drawn node in the remaining batch, or -1 where
// its features are not read; nil if the batch is not pruned. The slice is valid until the next call. Next returns the
// errors of Cut.Prune and Cut.Estimate, and after Follow also ErrCall, where training has not updated a batch, and the
// error of ctx.
func (f *Forecaster) Next(
	ctx context.Context, drawn *sample.Subgraph, numSeeds int64, cost func(node int64) float32,
) ([]int32, error) {
	if f.at > f.copied.turns.next {
		panic(errors.New("history: batches of a forecast out of order"))
	}
	if given := f.copied.turns.given - f.copied.turns.first; f.at-given > f.lag {
		if err := f.update(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.cut.Prune(ctx, f.at, drawn, numSeeds, func() {}); err != nil {
		return nil, err
	}
	f.at++
	f.found.PlainRows += int64(len(drawn.Nodes))
	f.found.PlainEdges += int64(len(drawn.Row))
	left, places := f.cut.Build(drawn)
	if f.cut.On() {
		if err := f.cut.Estimate(cost); err != nil {
			return nil, err
		}
	}
	f.found.Rows += int64(f.cut.NumLoaded(len(left.Nodes)))
	f.found.Edges += int64(len(left.Row))
	return places, nil
}

// update makes the update of training for the oldest batch without one.
func (f *Forecaster) update(ctx context.Context) error {
	h := f.copied
	if err := h.HandOver(); err != nil {
		return err
	}
	i := h.turns.given - 1
	d := h.decided.waiting[i]
	if d == nil {
		return h.Skip(ctx)
	}
	if !f.learn() {
		if err := f.await(ctx, i); err != nil {
			return err
		}
	}
	norms := make([]Norms, len(d.layers))
	for l := range norms {
		if h.config.History.Keeps(l + 1) {
			o := &d.layers[l]
			norms[l] = Norms{Computed: make([]float32, len(o.Nodes)), Hits: make([]float32, len(o.HitNodes))}
		}
	}
	_, err := h.Update(ctx, i, f.rowBytes, norms)
	return err
}

// Found returns the counts of the batches so far.
func (f *Forecaster) Found() Forecast {
	h, found := f.copied, f.found
	for h.turns.given-h.turns.first < f.at {
		if h.HandOver() != nil {
			break // never: all have been pruned
		}
	}
	for l, s := range h.decided.state.Stats().Layers {
		found.Hits = append(found.Hits, s.Hits-f.before[l].Hits)
		found.Misses = append(found.Misses, s.Misses-f.before[l].Misses)
	}
	return found
}
