package loader

import (
	"context"
	"errors"
	"fmt"

	"freshgo/core/batch"
	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/prune"
)

// pruner removes from batches the parts that the history replaces: a prune.Pruner, or prune.None without a history.
type pruner interface {
	Prunes() bool // whether batches are pruned, and wait for their turn
	SetSpans(stale, start int64)
	Begin(from, count int64, plain bool)
	Stop()
	Abandon()

	Lend() *prune.Cut
	TakeBack(*prune.Cut)
	Fail(index int64)

	HandOver() error
	Skip(ctx context.Context) error
	Update(ctx context.Context, i, rowBytes int64, norms []prune.Norms) ([]history.Admitted, error)
	SkipUpdate(ctx context.Context, i int64) error

	Follows() bool // whether the pruning of the epoch that has begun is known ahead
	Follow(*mem.Budget) (*prune.Forecaster, error)
	Forecast(budget *mem.Budget, from, count int64) (*prune.Forecaster, error)

	Save() ([]byte, error)
	Restore(data []byte, stop func()) error
	Stats() (prune.Stats, error)
}

// historyCache is the history of a loader: what prunes by it, and its memory.
type historyCache struct {
	pruner      pruner
	stale       draw.Span
	bound       int64 // a stale that is less, in iterations
	start       draw.Span
	tensors     int             // the most that it adds to a batch
	embeddings  mem.Buffer      // nil: there is none, or the caller has it
	reuse       []*cache.Vector // by hidden layer: the number of times that a node is needed in an epoch
	sparesLists bool            // lists on disk that would be pruned are not read
}

// open makes the buffer and what prunes by the history, if there is to be one.
func (h *historyCache) open(ctx context.Context, m *draw.Sampling, alloc mem.Allocator) error {
	o := m.Options.History
	h.pruner = prune.None{}
	if o == nil {
		return nil
	}
	h.stale, h.start, h.bound = o.Stale, o.Start, history.Forever
	h.tensors = 3 + (7+(3+len(batch.TransposedNames))*len(m.Parts.Schema.Relations))*m.Options.Hops()
	c := prune.Config{
		History: m.Options.HistoryConfig(&m.Parts, m.Split.History, m.NumBatches()),
		Shape:   m.Parts.Schema.Shape(), ProbeEvery: o.ProbeEvery,
	}
	ahead := m.Split.Prefetch
	if len(m.Options.Tables) > 0 {
		ahead-- // the consumer has a batch until its rows are taken back, and an update waits for lag batches beside it
	}
	c.History.Lag = int64(max(0, min(o.Lag, ahead)))
	if c.History.Policy == history.Performance {
		if err := h.openReuse(ctx, m, &c.History); err != nil {
			return err
		}
	}
	if err := h.spareLists(ctx, m); err != nil {
		return err
	}
	if !o.Outside {
		if err := h.openBuffer(m, alloc, c.History.Bytes); err != nil {
			return err
		}
	}
	made, err := prune.New(m.Budget, c)
	if err != nil {
		return err
	}
	m.OnClose(made.Close)
	h.pruner = made
	return nil
}

// openBuffer makes the memory of the embeddings.
func (h *historyCache) openBuffer(m *draw.Sampling, alloc mem.Allocator, bytes int64) error {
	if err := m.Budget.Reserve(mem.History, bytes); err != nil {
		return err
	}
	m.OnClose(func() { m.Budget.Release(mem.History, bytes) })
	buffer, err := alloc.Acquire(bytes)
	if err != nil {
		return err
	}
	clear(buffer.Bytes())
	h.embeddings = buffer
	m.OnClose(buffer.Release)
	return nil
}

// openReuse computes the uses of rows, for the policy that weighs them: the expected number of times in an iteration
// that a node is within the hops for which a layer is computed.
func (h *historyCache) openReuse(ctx context.Context, m *draw.Sampling, c *history.Config) error {
	perIteration := 1 / float32(m.NumBatches())
	c.Reuse = func(layer int, node int64) float32 { return h.reuse[layer-1].Hotness[node] * perIteration }
	h.reuse = make([]*cache.Vector, c.Layers)
	for layer := 1; layer <= c.Layers; layer++ {
		if !c.Keeps(layer) {
			continue
		}
		v, err := draw.ExpectedVisits(ctx, m, m.Options.Hops()-layer)
		if err != nil {
			return err
		}
		m.OnClose(v.Close)
		h.reuse[layer-1] = v
	}
	return nil
}

// spareLists decides whether lists on disk that would be pruned are left unread: see prune.LastHop. Edges of a node to
// itself are counted where history.Batch.Degrees are known, so these are looked for.
func (h *historyCache) spareLists(ctx context.Context, m *draw.Sampling) error {
	if cache.KindOf(m.Split.Cache) == cache.Planned || m.Options.Weighted() {
		return nil
	}
	onDisk := false
	for i := range m.Parts.Schema.Relations {
		onDisk = onDisk || m.Parts.Schema.Relations[i].Neighbors.OnDisk()
	}
	if shape := m.Parts.Schema.Shape(); !onDisk || !shape.Single() {
		h.sparesLists = onDisk
		return nil
	}
	found, err := hasLoops(ctx, m.Parts.Schema.Relations[0].Edges(m.Budget))
	h.sparesLists = err == nil && !found
	return err
}

// hasLoops reports whether there is an edge from a node to itself.
func hasLoops(ctx context.Context, edges *graph.Edges) (bool, error) {
	found, target := errors.New("found"), int64(0)
	err := edges.Scan(ctx, func(first int64, sources []int64) error {
		for i, source := range sources {
			for edges.Indptr().End(target) <= first+int64(i) {
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

// BeginStep begins the training step of the next batch that Next has returned: the next update is of this batch. It may
// run beside Next, as EndStep and updates may.
func BeginStep(l *Loader) error {
	e, err := current(l)
	if err != nil {
		return err
	}
	return e.pruner.HandOver()
}

// EndStep ends the training step of the newest batch. Without an update, nothing of the batch is kept. The caller calls
// it before it waits for another batch, which may have to be pruned after it.
func EndStep(ctx context.Context, l *Loader) error {
	e, err := current(l)
	if err != nil {
		return err
	}
	return e.pruner.Skip(ctx)
}

// UpdateHistory is prune.Pruner.Update.
func (l *Loader) UpdateHistory(
	ctx context.Context, i, rowBytes int64, norms []prune.Norms,
) ([]history.Admitted, error) {
	return l.history.pruner.Update(ctx, i, rowBytes, norms)
}

// SkipHistory is prune.Pruner.SkipUpdate.
func (l *Loader) SkipHistory(ctx context.Context, i int64) error {
	return l.history.pruner.SkipUpdate(ctx, i)
}

// BoundHistory bounds the age of entries by a number of iterations from the next epoch on, where t_stale is more. It
// ends the running epoch.
func BoundHistory(l *Loader, stale int64) error {
	if stale < 1 {
		return fmt.Errorf("%w: the age must be at least 1 iteration, got %d", prune.ErrCall, stale)
	}
	if _, err := l.history.pruner.Stats(); err != nil {
		return err
	}
	l.Stop()
	l.cache.stop() // it has forecast the history's decisions
	l.history.bound = stale
	l.history.setSpans(l.taken.BatchesOf(l.NumBatches()))
	return nil
}

// setSpans sets the spans of the history, for epochs of count batches.
func (h *historyCache) setSpans(count int64) {
	h.pruner.SetSpans(min(h.stale.Iterations(count), h.bound), h.start.Iterations(count))
}

// SaveHistory is prune.Pruner.Save.
func (l *Loader) SaveHistory() ([]byte, error) { return l.history.pruner.Save() }

// RestoreHistory restores a saved state, and ends the running epoch: see prune.Pruner.Restore.
func (l *Loader) RestoreHistory(data []byte) error {
	return l.history.pruner.Restore(data, func() {
		l.Stop()
		l.cache.stop() // it has forecast the history's decisions
	})
}

// HistoryStats counts the work of the history.
type HistoryStats struct {
	prune.Stats
	Bytes int64 `json:"bytes"` // of the buffer
}

// HistoryStats returns the figures so far.
func (l *Loader) HistoryStats() (HistoryStats, error) {
	of, err := l.history.pruner.Stats()
	return HistoryStats{Stats: of, Bytes: l.draw.Split.History}, err
}

// HistoryBuffer returns the memory of the embeddings, the loader's until Close: whoever holds it longer takes a
// reference. It is nil where the caller has it.
func (l *Loader) HistoryBuffer() (mem.Buffer, error) {
	_, err := l.history.pruner.Stats()
	return l.history.embeddings, err
}

// HistoryTensors returns the most tensors that a history adds to a batch.
func (l *Loader) HistoryTensors() int { return l.history.tensors }
