package loader

import (
	"context"
	"errors"
	"fmt"
	"math"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/prune"
)

// HistoryOptions ask for a cache of historical embeddings (FreshGNN, section 3).
type HistoryOptions struct {
	GradFraction float64 `option:"p_grad"`
	Stale, Start Span    // t_stale, and when the cache begins
	Policy       string  `option:"policy,performance"` // who is admitted: see history.Config
	Memory       int64   `option:"memory"`             // bytes of the buffer, or Auto: a tenth of the features
	// Outside means that the caller has the buffer, on another device; Memory is no part of the loader's.
	Outside bool  `option:"outside"`
	Levels  int64 `option:"levels"` // bit l-1 says that of hidden level l something is kept; 0: of all
	Lag     int   `option:"lag"`    // pruning sees the cache of Lag iterations ago
	// ProbeEvery is after how many iterations one is not pruned, and its embeddings are compared; 0: never.
	ProbeEvery int64 `option:"probe_every"`
}

// Span is a number of iterations, or of epochs.
type Span struct {
	Count  float64 // not negative; math.Inf(1): for ever
	Epochs bool
}

// iterations is the length of a span.
func (s Span) iterations(perEpoch int64) int64 {
	n := s.Count
	if s.Epochs {
		n *= float64(perEpoch)
	}
	if n >= math.MaxInt64/2 {
		return history.Forever
	}
	return int64(math.Round(n))
}

func (o *HistoryOptions) validate(hops int) error {
	switch {
	case !(o.GradFraction >= 0 && o.GradFraction <= 1):
		return fmt.Errorf("%w: p_grad must be within [0, 1], got %v", ErrOption, o.GradFraction)
	case !(o.Stale.Count >= 0):
		return fmt.Errorf("%w: t_stale must be at least 0, got %v", ErrOption, o.Stale.Count)
	case !(o.Start.Count >= 0):
		return fmt.Errorf("%w: start must be at least 0, got %v", ErrOption, o.Start.Count)
	case o.Memory < Auto || o.Memory == 0:
		return fmt.Errorf("%w: the memory of a history must be at least 1 byte, got %d", ErrOption, o.Memory)
	case o.Levels < 0 || hops < 64 && o.Levels>>max(hops-1, 0) != 0:
		return fmt.Errorf("%w: levels must be some of the %d hidden ones, got %b", ErrOption, hops-1, o.Levels)
	case o.Lag < 0:
		return fmt.Errorf("%w: lag must be at least 0, got %d", ErrOption, o.Lag)
	case o.ProbeEvery < 0:
		return fmt.Errorf("%w: a history is probed every 1 or more iterations, got %d", ErrOption, o.ProbeEvery)
	case hops < 2:
		return fmt.Errorf("%w: a history needs at least 2 layers, num_neighbors has %d", ErrOption, hops)
	}
	return nil
}

// pruner takes out of batches what the history makes needless: a prune.Pruner, or prune.None where there is no history.
type pruner interface {
	Prunes() bool // whether batches are pruned, and wait for their turn
	SetSpans(stale, start int64)
	Begin(from, count int64, plain bool)
	Stop()
	Abandon()

	Lend() *prune.Cut
	TakeBack(*prune.Cut)
	Fail(index int64)

	HandOver()
	Skip(ctx context.Context) error
	Update(ctx context.Context, i, rowBytes int64, norms []prune.Norms) ([]history.Admitted, error)
	SkipUpdate(ctx context.Context, i int64) error

	Save() ([]byte, error)
	Restore(data []byte, stop func()) error
	Stats() (prune.Stats, error)
}

// openHistory makes the history's buffer and what prunes by it, if there is to be one.
func (l *Loader) openHistory(ctx context.Context) error {
	o := l.options.History
	l.pruner = prune.None{}
	if o == nil {
		return nil
	}
	c := prune.Config{
		History: l.options.historyConfig(&l.parts, l.split.History, l.NumBatches()),
		Shape:   l.parts.types.shape(), ProbeEvery: o.ProbeEvery,
	}
	c.History.Lag = min(int64(o.Lag), int64(l.split.Prefetch))
	if c.History.Policy == history.Performance {
		if err := l.openReuse(ctx, &c.History); err != nil {
			return err
		}
	}
	if err := l.spareLists(ctx); err != nil {
		return err
	}
	if !o.Outside {
		if err := l.openHistoryBuffer(c.History.Bytes); err != nil {
			return err
		}
	}
	made, err := prune.New(l.budget, c)
	if err != nil {
		return err
	}
	l.onClose(made.Close)
	l.pruner = made
	return nil
}

// historyConfig returns the configuration of the history, for a buffer of the given size.
func (o *Options) historyConfig(p *parts, bytes, batches int64) history.Config {
	h := o.History
	return history.Config{
		NumNodes: p.numNodes, Layers: o.hops() - 1, Levels: h.Levels, Bytes: bytes, Policy: h.Policy,
		Stale: h.Stale.iterations(batches), Start: h.Start.iterations(batches),
		GradFraction: h.GradFraction, Lag: int64(h.Lag),
	}
}

// openHistoryBuffer makes the memory of the embeddings.
func (l *Loader) openHistoryBuffer(bytes int64) error {
	if err := l.budget.Reserve(mem.History, bytes); err != nil {
		return err
	}
	l.onClose(func() { l.budget.Release(mem.History, bytes) })
	buffer, err := l.alloc.Acquire(bytes)
	if err != nil {
		return err
	}
	clear(buffer.Bytes())
	l.embeddings = buffer
	l.onClose(buffer.Release)
	return nil
}

// openReuse computes how often rows are needed, for the policy that weighs them: the expected number of times in an
// iteration that a node is within the hops in which a layer is computed.
func (l *Loader) openReuse(ctx context.Context, c *history.Config) error {
	perIteration := 1 / float32(l.NumBatches())
	c.Reuse = func(layer int, node int64) float32 { return l.reuse[layer-1].Hotness[node] * perIteration }
	l.reuse = make([]*cache.Vector, c.Layers)
	for layer := 1; layer <= c.Layers; layer++ {
		if !c.Keeps(layer) {
			continue
		}
		v, err := l.expected(ctx, l.options.hops()-layer)
		if err != nil {
			return err
		}
		l.onClose(v.Close)
		l.reuse[layer-1] = v
	}
	return nil
}

// spareLists decides whether lists on disk that would be pruned are left unread: see prune.LastHop. Edges of a node to
// itself are counted where history.Batch.Degrees are known, so these are looked for.
func (l *Loader) spareLists(ctx context.Context) error {
	if l.split.Cache == "belady" || l.options.weighted() {
		return nil
	}
	onDisk := false
	for i := range l.parts.types.relations {
		onDisk = onDisk || l.parts.types.relations[i].Neighbors.OnDisk()
	}
	if shape := l.parts.types.shape(); !onDisk || !shape.Single() {
		l.sparesLists = onDisk
		return nil
	}
	found, err := hasLoops(ctx, l.parts.types.relations[0].Edges(l.budget))
	l.sparesLists = err == nil && !found
	return err
}

// hasLoops reports whether there is an edge from a node to itself.
func hasLoops(ctx context.Context, edges *graph.Edges) (bool, error) {
	found, target := errors.New("found"), int64(0)
	err := edges.Scan(ctx, func(first int64, sources []int64) error {
		for i, source := range sources {
			for edges.Indptr()[target+1] <= first+int64(i) {
				target++
			}
			if source == target {
				return found
			}
		}
		return nil
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}

// UpdateHistory is prune.Pruner.Update.
func (l *Loader) UpdateHistory(
	ctx context.Context, i, rowBytes int64, norms []prune.Norms,
) ([]history.Admitted, error) {
	return l.pruner.Update(ctx, i, rowBytes, norms)
}

// SkipHistory is prune.Pruner.SkipUpdate.
func (l *Loader) SkipHistory(ctx context.Context, i int64) error { return l.pruner.SkipUpdate(ctx, i) }

// SaveHistory is prune.Pruner.Save.
func (l *Loader) SaveHistory() ([]byte, error) { return l.pruner.Save() }

// RestoreHistory takes over a saved state, and ends the epoch that runs: see prune.Pruner.Restore.
func (l *Loader) RestoreHistory(data []byte) error {
	return l.pruner.Restore(data, func() {
		l.Stop()
		l.cache.stop() // it has foreseen what the history would keep
	})
}

// HistoryStats counts the work of the history.
type HistoryStats struct {
	prune.Stats
	Bytes int64 `json:"bytes"` // of the buffer
}

// HistoryStats returns the figures so far.
func (l *Loader) HistoryStats() (HistoryStats, error) {
	of, err := l.pruner.Stats()
	return HistoryStats{Stats: of, Bytes: l.split.History}, err
}

// HistoryBuffer is the memory of the embeddings, the loader's until Close: whoever holds it longer takes a reference.
// It is nil where the caller has it.
func (l *Loader) HistoryBuffer() (mem.Buffer, error) {
	_, err := l.pruner.Stats()
	return l.embeddings, err
}
