package loader

import (
	"context"
	"fmt"
	"math"
	"sync"

	"freshgo/core/cache"
	"freshgo/core/history"
	"freshgo/core/mem"
)

// HistoryOptions ask for a cache of historical embeddings (FreshGNN, section 3).
type HistoryOptions struct {
	GradFraction float64 // p_grad
	Stale, Start Span    // t_stale, and when the cache begins
	Policy       string  // who is admitted: see history.Config
	Memory       int64   // bytes of the buffer, or Auto: a tenth of the features
	Outside      bool    // the caller has the buffer, on another device; Memory is no part of the loader's
	Features     bool    // the other end of the buffer holds the hottest features, where the cache is a ranking
	Lag          int     // pruning sees the cache of so many iterations ago
	ProbeEvery   int64   // every so many iterations nothing is pruned and the embeddings are compared; 0: never
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
	case o.Lag < 0:
		return fmt.Errorf("%w: lag must be at least 0, got %d", ErrOption, o.Lag)
	case o.ProbeEvery < 0:
		return fmt.Errorf("%w: a history is probed every 1 or more iterations, got %d", ErrOption, o.ProbeEvery)
	case hops < 2:
		return fmt.Errorf("%w: a history needs at least 2 layers, num_neighbors has %d", ErrOption, hops)
	}
	return nil
}

// past is the history cache of a loader and the order in which it is used.
// Iterations are batches handed over in training epochs, counted over all of them.
// Batch i is pruned after the update of i-1-lag and before that of i-lag, whatever
// the threads do, so what is pruned is a function of the lag alone:
//
//	prune 0 ... lag, update 0, prune lag+1, update 1, ...
//
// At the start of an epoch everything before has been updated. A slot that a
// pruned batch relies on is pinned until its update.
type past struct {
	loader    *Loader
	state     *history.History
	lag       int64
	start     int64
	probe     int64
	skipLists bool            // lists that would be pruned are not read from disk
	buffer    mem.Buffer      // nil: the caller's
	reuse     []*cache.Vector // by hidden layer: how often a node is needed in an epoch

	mu       sync.Mutex // guards state and what follows
	changed  sync.Cond
	first    int64 // iteration of the epoch's batch 0, which may lie before its start
	count    int64 // batches of the epoch
	next     int64 // the batch that is pruned next
	updated  int64 // every iteration before it has been updated
	given    int64 // every iteration before it has been handed over
	failed   int64 // the first batch that could not be made
	plain    bool  // the epoch neither reads nor writes the history
	shut     bool  // the epoch has stopped
	skipped  int64 // batches that had no update
	waiting  map[int64]*decision
	spare    []*decision
	idle     []*pruning
	admitted []history.Admitted
	saved    map[int64]finding // of a restored run: of batches that it had pruned already
}

// decision is what was decided for a batch between its pruning and its update.
type decision struct {
	layers  []history.Observed // nodes and what they would have saved; the update adds the norms
	slots   [][]int32          // of the hits, or of the probes
	probes  []probe            // of a batch that was left whole to compare; else none
	lookups *history.Lookups   // counted when the batch is handed over
}

// openHistory makes the cache, if there is to be one.
func (l *Loader) openHistory(ctx context.Context) error {
	o := l.options.History
	if o == nil {
		return nil
	}
	h := &past{
		loader: l, lag: min(int64(o.Lag), int64(l.split.Prefetch)), probe: o.ProbeEvery, waiting: map[int64]*decision{},
		start: o.Start.iterations(l.NumBatches()),
	}
	h.changed.L = &h.mu
	c := l.options.historyConfig(&l.parts, l.split.History, l.NumBatches())
	c.Lag = h.lag
	if c.Policy == history.Performance {
		if err := h.expect(ctx, &c); err != nil {
			return err
		}
	}
	if err := h.findSelfLoops(ctx); err != nil {
		return err
	}
	if !o.Outside {
		if err := h.openBuffer(c.Bytes); err != nil {
			return err
		}
	}
	if l.split.Outermost {
		f, err := l.openOutermost(ctx, h.buffer.Bytes())
		if err != nil {
			return err
		}
		l.outermost = f
		c.FeatureBytes, c.FeatureEnds, c.NumFeatures = f.widths[0], f.ends, f.count
		c.FeatureWorth = func(rank int64) float32 { return f.worth[rank] }
	}
	var err error
	if h.state, err = history.New(l.budget, c); err != nil {
		return err
	}
	l.onClose(h.close)
	l.past = h
	return nil
}

// historyConfig is what the options come to, for a buffer of so many bytes.
func (o *Options) historyConfig(p *parts, bytes, batches int64) history.Config {
	h := o.History
	return history.Config{
		NumNodes: p.numNodes, Layers: o.hops() - 1, Bytes: bytes, Policy: h.Policy,
		Stale: h.Stale.iterations(batches), Start: h.Start.iterations(batches),
		GradFraction: h.GradFraction, Lag: int64(h.Lag),
	}
}

// openBuffer makes the memory of the embeddings.
func (h *past) openBuffer(bytes int64) error {
	l := h.loader
	if err := l.budget.Reserve(mem.History, bytes); err != nil {
		return err
	}
	l.onClose(func() { l.budget.Release(mem.History, bytes) })
	buffer, err := l.alloc.Acquire(bytes)
	if err != nil {
		return err
	}
	clear(buffer.Bytes())
	h.buffer = buffer
	l.onClose(buffer.Release)
	return nil
}

// expect computes how often rows are needed, for the policy that weighs them: the
// expected number of times in an iteration that a node is within the hops in which
// a layer is computed.
func (h *past) expect(ctx context.Context, c *history.Config) error {
	l := h.loader
	perIteration := 1 / float32(l.NumBatches())
	c.Reuse = func(layer int, node int64) float32 { return h.reuse[layer-1].Hotness[node] * perIteration }
	for layer := 1; layer <= c.Layers; layer++ {
		v, err := l.expected(ctx, l.options.hops()-layer)
		if err != nil {
			return err
		}
		l.onClose(v.Close)
		h.reuse = append(h.reuse, v)
	}
	return nil
}

// begin starts an epoch at one of its batches. Nothing runs.
func (h *past) begin(from, count int64, plain bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first, h.count, h.next = h.given-from, count, from
	h.plain, h.shut, h.failed = plain, false, count
	for i := range h.waiting { // the last of the epoch before: it was not updated
		h.forget(i)
		h.skipped++
	}
	h.updated = h.given
	if h.loader.planned != nil {
		h.loader.promises.begin(&h.loader.resident)
	}
}

// stop ends the epoch. What was decided for batches that were not handed over is
// undone; the one that was may still be updated.
func (h *past) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = true
	for i := range h.waiting {
		if i >= h.given {
			h.forget(i)
		}
	}
	h.dropSaved()
	h.changed.Broadcast()
}

// abandon makes everybody return, without waiting for them.
func (h *past) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = true
	h.changed.Broadcast()
}

// forget ends a decision.
func (h *past) forget(i int64) {
	d := h.waiting[i]
	delete(h.waiting, i)
	h.state.Unpin(i)
	h.spare = append(h.spare, d)
}

// take and put lend a preparer what it prunes with.
func (h *past) take() *pruning {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.idle); n > 0 {
		p := h.idle[n-1]
		h.idle = h.idle[:n-1]
		return p
	}
	return &pruning{cut: history.NewBatch(h.loader.budget, h.loader.parts.types.shape())}
}

func (h *past) put(p *pruning) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = append(h.idle, p)
}

// close frees what the preparers pruned with.
func (h *past) close() {
	for _, p := range h.idle {
		p.cut.Close()
	}
	h.idle = nil
	h.state.Close()
}

// newDecision returns one to fill in.
func (h *past) newDecision() *decision {
	if n := len(h.spare); n > 0 {
		d := h.spare[n-1]
		h.spare = h.spare[:n-1]
		return d
	}
	layers := h.loader.options.hops() - 1
	return &decision{layers: make([]history.Observed, layers), slots: make([][]int32, layers)}
}

// wait waits for a condition that the holder of mu may see, until the epoch stops
// or ctx ends.
func (h *past) wait(ctx context.Context, until func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed.Broadcast()
	})
	defer stop()
	for !until() {
		switch {
		case h.shut:
			return errStopped
		case ctx.Err() != nil:
			return ctx.Err()
		}
		h.changed.Wait()
	}
	return nil
}
