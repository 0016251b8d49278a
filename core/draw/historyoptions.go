package draw

import (
	"fmt"
	"math"

	"freshgo/core/history"
)

// HistoryOptions are the options of a cache of historical embeddings (FreshGNN, section 3).
type HistoryOptions struct {
	GradFraction float64 `option:"p_grad"`
	Stale, Start Span    // t_stale, and when the cache begins
	Policy       string  `option:"policy,performance"` // who is admitted: see history.Config
	Memory       int64   `option:"memory"`             // bytes of the buffer, or Auto: a tenth of the features
	// Outside means that the caller has the buffer, on another device; Memory is no part of the loader's.
	Outside bool `option:"outside"`
	// Aggregates: entries are what a layer adds up, of hidden level 1 sums of rows of features.
	Aggregates bool  `option:"aggregates"`
	Levels     int64 `option:"levels"` // bit l-1: entries of hidden level l are kept; 0: of all levels
	Lag        int   `option:"lag"`    // pruning sees the cache of Lag iterations ago
	// ProbeEvery: every ProbeEvery-th iteration is not pruned, and its embeddings are compared; 0: never
	ProbeEvery int64 `option:"probe_every"`
}

// Span is a number of iterations, or of epochs.
type Span struct {
	Count  float64 // not negative; math.Inf(1): for ever
	Epochs bool
}

// Iterations returns the length of a span.
func (s Span) Iterations(perEpoch int64) int64 {
	n := s.Count
	if s.Epochs {
		n *= float64(perEpoch)
	}
	if n >= math.MaxInt64/2 {
		return history.Forever
	}
	return int64(math.Round(n))
}

// validate validates the options of a history, and their combination with others.
func (o *HistoryOptions) validate(beside *Options) error {
	switch hops := beside.Hops(); {
	case !(o.GradFraction >= 0 && o.GradFraction <= 1):
		return fmt.Errorf("%w: p_grad must be within [0, 1], got %v", ErrOption, o.GradFraction)
	case !(o.Stale.Count >= 0):
		return fmt.Errorf("%w: t_stale must be at least 0, got %v", ErrOption, o.Stale.Count)
	case !(o.Start.Count >= 0):
		return fmt.Errorf("%w: start must be at least 0, got %v", ErrOption, o.Start.Count)
	case o.Memory < Auto || o.Memory == 0:
		return fmt.Errorf("%w: memory of the history must be at least 1 byte, got %d", ErrOption, o.Memory)
	case hops < 2:
		return fmt.Errorf("%w: a history needs at least 2 layers, num_neighbors has %d", ErrOption, hops)
	case o.Levels < 0 || hops < 64 && o.Levels>>max(hops-1, 0) != 0:
		return fmt.Errorf("%w: levels must be among the %d hidden levels, got the bits %b", ErrOption, hops-1, o.Levels)
	case o.Lag < 0:
		return fmt.Errorf("%w: lag must be at least 0, got %d", ErrOption, o.Lag)
	case o.ProbeEvery < 0:
		return fmt.Errorf("%w: probe_every must be at least 0 iterations, got %d", ErrOption, o.ProbeEvery)
	case beside.NoEdgeIDs:
		return fmt.Errorf("%w: a history needs the e_id of batches, by which it prunes edges", ErrOption)
	case beside.RowsByID:
		return fmt.Errorf("%w: a history leaves rows unread, which rows_by_id cannot tell from others", ErrOption)
	}
	return nil
}

// Yields reports whether the loader chooses the buffer's size and features have a better use of its bytes: an entry
// that is made of features is as wide as one or two of their rows, and rows save more reads. Measured on four graphs
// (docs/history-measured.md), where a cache of features is the better one up to the size that holds all of them.
func (o *HistoryOptions) Yields(beside *Options) bool {
	return o != nil && o.Aggregates && o.Levels == 1 && beside.Aggregate == "" && o.Memory == Auto && !o.Outside &&
		beside.FeatureCache == Auto && beside.Cache != "none"
}

// HistoryConfig returns the configuration of the history, for a buffer of the given size.
func (o *Options) HistoryConfig(p *Parts, bytes, batches int64) history.Config {
	h := o.History
	return history.Config{
		NumNodes: p.NumNodes, Layers: o.Hops() - 1, Levels: h.Levels, Bytes: bytes, Policy: h.Policy,
		Stale: h.Stale.Iterations(batches), Start: h.Start.Iterations(batches),
		GradFraction: h.GradFraction, Lag: int64(h.Lag),
	}
}
