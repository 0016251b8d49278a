package prune

import (
	"context"
	"errors"
	"fmt"

	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Forecast is what pruning will do in an epoch.
type Forecast struct {
	Rows, PlainRows   int64   // nodes whose features are read, seeds included, and those of the batches as they are drawn
	Edges, PlainEdges int64   // of the batches
	Hits, Misses      []int64 // by hidden layer
}

// Forecaster prunes the batches of an epoch ahead of it, with a copy of the history that it then updates as training
// will. That is known where decisions depend on no gradient: every computed row may enter, and only age and room end an
// entry. So all counts are those that the epoch will have, if each of its batches is updated.
type Forecaster struct {
	copied   *Pruner
	cut      *Cut
	judged   []bool
	rowBytes int64
	at, lag  int64
	before   []history.LayerStats
	found    Forecast
}

// Forecast begins one of an epoch as Begin would begin it now. judged says of which hidden layers anything is kept. It
// takes as much memory as the history has for its tables.
//
// Errors: ErrCall where decisions depend on gradients or on features that share the buffer, where the size of what is
// kept is not known before the first update, or within an epoch; mem.ErrBudget.
func (h *Pruner) Forecast(budget *mem.Budget, from, count int64, judged []bool) (*Forecaster, error) {
	config, state, err := h.snapshot(judged)
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
	stats := copied.state.Stats()
	copied.Begin(from, count, false)
	return &Forecaster{
		copied: copied, cut: copied.Lend(), judged: judged, rowBytes: stats.RowBytes, at: from, lag: config.History.Lag,
		before: stats.Layers,
	}, nil
}

// snapshot is what a copy is made of.
func (h *Pruner) snapshot(judged []bool) (Config, []byte, error) {
	h.mu.Lock()
	c, rowBytes, ahead := h.config, h.state.Stats().RowBytes, len(h.restored)
	for i := range h.waiting {
		if i >= h.given {
			ahead++
		}
	}
	h.mu.Unlock()
	switch {
	case len(judged) != h.layers:
		return c, nil, fmt.Errorf("%w: a forecast for %d hidden layers, expected %d", ErrCall, len(judged), h.layers)
	case c.History.GradFraction < 1:
		return c, nil, fmt.Errorf("%w: with p_grad=%v gradients decide what is kept, which nobody knows ahead", ErrCall,
			c.History.GradFraction)
	case c.History.Policy == history.Performance && c.History.NumFeatures > 0:
		return c, nil, fmt.Errorf("%w: features share the buffer, and which of them it holds is not known ahead: "+
			"use features=False", ErrCall)
	case rowBytes == 0:
		return c, nil, fmt.Errorf("%w: how wide kept rows are, and so how many have room, is known from the first "+
			"update on", ErrCall)
	case ahead > 0:
		return c, nil, fmt.Errorf("%w: an epoch runs: ask for a forecast between epochs", ErrCall)
	}
	c.MakeRoom = nil
	state, err := h.Save()
	return c, state, err
}

// Close frees the memory.
func (f *Forecaster) Close() {
	f.copied.TakeBack(f.cut)
	f.copied.Close()
}

// Next prunes the next batch of the epoch. The errors are those of Cut.Prune and Cut.Estimate.
func (f *Forecaster) Next(ctx context.Context, drawn *sample.Subgraph, numSeeds int64, costs Costs) error {
	if f.at > f.copied.next {
		panic(errors.New("history: batches of a forecast out of order"))
	}
	if given := f.copied.given - f.copied.first; f.at-given > f.lag {
		if err := f.update(ctx); err != nil {
			return err
		}
	}
	if err := f.cut.Prune(ctx, f.at, drawn, numSeeds, func() {}); err != nil {
		return err
	}
	f.at++
	nodes, edges := int64(len(drawn.Nodes)), int64(len(drawn.Row))
	f.found.PlainRows += nodes
	f.found.PlainEdges += edges
	if f.cut.On() {
		f.cut.Build(drawn)
		nodes, edges = int64(len(f.cut.Batch.Loaded())), int64(len(f.cut.Batch.Graph().Row))
		if err := f.cut.Estimate(costs); err != nil {
			return err
		}
	}
	f.found.Rows += nodes
	f.found.Edges += edges
	return nil
}

// update is what training does with the oldest batch that it has not done it with.
func (f *Forecaster) update(ctx context.Context) error {
	h := f.copied
	h.HandOver()
	i := h.given - 1
	d := h.waiting[i]
	if d == nil {
		return h.Skip(ctx)
	}
	norms := make([]Norms, len(d.layers))
	for l := range norms {
		if f.judged[l] {
			o := &d.layers[l]
			norms[l] = Norms{Computed: make([]float32, len(o.Nodes)), Hits: make([]float32, len(o.HitNodes))}
		}
	}
	_, err := h.Update(ctx, i, f.rowBytes, norms)
	return err
}

// Found is what the batches so far come to.
func (f *Forecaster) Found() Forecast {
	h, found := f.copied, f.found
	for h.given-h.first < f.at {
		h.HandOver()
	}
	for l, s := range h.state.Stats().Layers {
		found.Hits = append(found.Hits, s.Hits-f.before[l].Hits)
		found.Misses = append(found.Misses, s.Misses-f.before[l].Misses)
	}
	return found
}
