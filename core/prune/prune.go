// Package prune removes the part of a loader's batches that historical embeddings replace, and keeps the order in which
// batches are pruned and the history is updated.
//
// It guarantees that pruning is a function of the history's options and of the batches alone, for any number of
// threads. Iterations are batches handed over in training epochs, counted over all of them. Batch i is pruned after the
// update of i-1-lag and before the update of i-lag:
//
//	prune 0 ... lag, update 0, prune lag+1, update 1, ...
//
// At the start of an epoch every batch before it has been updated. Slots that a pruned batch relies on are pinned until
// its update.
//
// The loader calls it: one Cut for each batch that is being prepared, and the methods of Pruner when it hands a batch
// over and when the caller has trained on it. Those methods may be called from any goroutine. Beside package history it
// costs a lock for each batch, and the waiting that the order above asks for.
//
// The life of a pruned batch, between sampling and tensors:
//
//   - Where a planned loader can tell ahead what will be left of it, it is pruned once more, long before its turn, by a
//     copy of the history, and planned for that (forecast.go, core/loader/forecaster.go).
//   - It waits for its turn (cut.go). Where neighbour lists are on disk and nothing is planned, the turn comes before
//     the last hop, whose lists are then read only for rows that are computed (lists.go, core/sample/lasthop.go).
//   - From the output layer inwards it is decided which rows are kept and which are computed (core/history/prune.go,
//     csr2.go). A batch of several types is merged, pruned as one graph and split again (core/history/merge.go).
//   - What remains is numbered again: a table for each level, a bipartite graph for each layer (core/history/levels.go,
//     renumber.go). A planned cache does what is left of its step (core/plan/presence.go).
//   - Rows of level 0 are read that the cache does not have.
//   - The levels go to Python beside the batch (core/loader/history_tensors.go; python/freshgo/_batch/structure.py,
//     tables.py, levels.py), where each layer merges computed and kept rows, or what it adds up for them
//     (python/freshgo/_history/attach.py, layer_call.py, aggregates.py, training_step.py).
//   - The update takes the norms of the gradients and returns the rows and slots that are admitted (update.go,
//     core/history/admit.go, performance.go, saves.go); PyTorch copies these rows.
//
// Go decides and never sees an embedding; PyTorch moves rows and decides nothing. So a decision is a function of the
// calls in their order, and the state that is saved is that of package history within that of this package (state.go),
// with the rows beside it (python/freshgo/_history/saved_state.py).
package prune

import (
	"context"
	"errors"
	"slices"
	"sync"

	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

var (
	// ErrCall means that there is no such update, state or history.
	ErrCall = errors.New("history: invalid call")
	// ErrStopped ends the waiting of batches in an epoch that has stopped.
	ErrStopped = errors.New("history: epoch stopped")
)

// Config describes the graph, the history and the order of pruning.
type Config struct {
	History    history.Config
	Shape      history.Shape // of the graph
	ProbeEvery int64         // every ProbeEvery-th iteration is not pruned and its embeddings are compared; 0: none
}

// Pruner prunes the batches of one loader.
type Pruner struct {
	config Config
	budget *mem.Budget
	layers int // hidden ones

	mu       sync.Mutex // guards what follows
	waiters  []*waiter
	state    *history.History
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
	idle     []*Cut
	admitted []history.Admitted
	restored map[int64]finding // of batches that were pruned already in the run whose state was restored
}

// decision holds the lookups of a batch between its pruning and its update.
type decision struct {
	layers  []history.Observed // nodes and what they would have saved; the update adds the norms
	slots   [][]int32          // of the hits, or of the probes
	probes  []Probe            // of a batch that was left whole to compare; else none
	lookups *history.Lookups   // counted when the batch is handed over
}

// New makes a Pruner with an empty history. It returns the errors of history.New.
func New(budget *mem.Budget, c Config) (*Pruner, error) {
	state, err := history.New(budget, c.History)
	if err != nil {
		return nil, err
	}
	h := &Pruner{config: c, budget: budget, layers: c.History.Layers, state: state, waiting: map[int64]*decision{}}
	return h, nil
}

// Close frees the memory. Nothing runs.
func (h *Pruner) Close() {
	for _, c := range h.idle {
		c.Batch.Close()
	}
	h.idle = nil
	h.state.Close()
}

// Prunes reports whether batches are pruned, and wait for their turn.
func (h *Pruner) Prunes() bool { return true }

// SetSpans changes how many iterations an entry lives, and how many come before the history is used. Nothing runs.
func (h *Pruner) SetSpans(stale, start int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.config.History.Stale, h.config.History.Start = stale, start
	h.state.SetSpans(stale, start)
}

// Begin starts an epoch of count batches at batch from. No epoch may run. A plain epoch is not pruned.
func (h *Pruner) Begin(from, count int64, plain bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first, h.count, h.next = h.given-from, count, from
	h.plain, h.shut, h.failed = plain, false, count
	for i := range h.waiting { // the last of the epoch before: it was not updated
		h.forget(i)
		h.skipped++
	}
	h.updated = h.given
}

// Stop ends the epoch. What was decided for batches that were not handed over is undone; the one that was may still be
// updated. Nothing runs.
func (h *Pruner) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = true
	for i := range h.waiting {
		if i >= h.given {
			h.forget(i)
		}
	}
	h.dropRestored()
	h.wake()
}

// Abandon makes batches that wait for their turn, or for lists, return with ErrStopped. Updates that wait go on.
func (h *Pruner) Abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = true
	h.wake()
}

// Fail records that a batch of the epoch and all later ones will not be made.
func (h *Pruner) Fail(index int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = min(h.failed, index)
	h.wake()
}

// forget ends a decision.
func (h *Pruner) forget(i int64) {
	d := h.waiting[i]
	delete(h.waiting, i)
	h.state.Unpin(i)
	h.spare = append(h.spare, d)
}

// Lend returns what one batch at a time is pruned with, to be given to TakeBack.
func (h *Pruner) Lend() *Cut {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.idle); n > 0 {
		c := h.idle[n-1]
		h.idle = h.idle[:n-1]
		return c
	}
	return &Cut{pruner: h, Batch: history.NewBatch(h.budget, h.config.Shape)}
}

// TakeBack takes a Cut that is not in use any more.
func (h *Pruner) TakeBack(c *Cut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = append(h.idle, c)
}

// newDecision returns one to fill in.
func (h *Pruner) newDecision() *decision {
	if n := len(h.spare); n > 0 {
		d := h.spare[n-1]
		h.spare = h.spare[:n-1]
		return d
	}
	return &decision{layers: make([]history.Observed, h.layers), slots: make([][]int32, h.layers)}
}

// waiter is one call of wait.
type waiter struct {
	until func() bool   // seen by the holder of mu
	ready chan struct{} // closed when that holds
}

// wait waits for a condition that the holder of mu may see, until ctx ends.
func (h *Pruner) wait(ctx context.Context, until func() bool) error {
	for !until() {
		if err := ctx.Err(); err != nil {
			return err
		}
		w := &waiter{until: until, ready: make(chan struct{})}
		h.waiters = append(h.waiters, w)
		h.mu.Unlock()
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
		h.mu.Lock()
		h.waiters = slices.DeleteFunc(h.waiters, func(other *waiter) bool { return other == w })
	}
	return nil
}

// wake lets those go on who have waited for what holds now. The others sleep on: an update changes the turn of one
// batch, and a batch is small beside the waking of all that are prepared.
func (h *Pruner) wake() {
	h.waiters = slices.DeleteFunc(h.waiters, func(w *waiter) bool {
		if !w.until() {
			return false
		}
		close(w.ready)
		return true
	})
}

// awaitTurn waits until a batch is the one to be pruned. It returns ErrStopped where the epoch has stopped.
func (h *Pruner) awaitTurn(ctx context.Context, index int64) error {
	lag := h.config.History.Lag
	err := h.wait(ctx, func() bool {
		return h.shut || h.next == index && (h.plain || h.updated >= h.first+index-lag)
	})
	if err == nil && h.shut {
		return ErrStopped
	}
	return err
}

// prunes reports whether the history serves the batch of an iteration.
func (h *Pruner) prunes(i int64) bool { return !h.plain && i >= h.config.History.Start }

// probes reports whether the batch of an iteration is left whole, to compare.
func (h *Pruner) probes(i int64) bool {
	every := h.config.ProbeEvery
	return every > 0 && (i-h.config.History.Start)%every == every-1
}

// finds returns the slot in which the batch of iteration i finds a row: in a restored run, the slot where it had found
// it before.
func (h *Pruner) finds(i int64, layer int, node int64) int32 {
	if of, restored := h.restored[i]; restored {
		return of.layers[layer-1].find(node)
	}
	return h.state.Find(i, layer, node)
}

// since returns the iteration that admitted a row found by a batch that is left whole.
func (h *Pruner) since(i int64, layer int, node int64) int64 {
	if of, restored := h.restored[i]; restored {
		return of.layers[layer-1].since(node)
	}
	return h.state.Admission(layer, node)
}

// lookup returns the function that looks up the rows of the batch of iteration i, and the counts of its results.
func (h *Pruner) lookup(i int64, seeds *sample.Subgraph, c *Cut) (history.Lookup, *history.Lookups) {
	lookups := history.NewLookups(h.layers)
	of, restored := h.restored[i]
	switch {
	case h.probes(i):
		return history.Each(func(int, int64) int32 { return history.Miss }), lookups
	case restored:
		return history.Each(func(layer int, node int64) int32 { return h.finds(i, layer, node) }), of.lookups
	case h.config.History.Policy == history.All:
		c.takeSeeds(seeds.Nodes[:seeds.NodesPerHop[0]])
		return history.Each(func(layer int, node int64) int32 {
			slot := []int32{history.Miss}
			if !c.seeds[node] { // a batch renews its own nodes, or nothing ever would
				h.state.Lookup(i, layer, []int64{node}, slot, lookups)
			}
			return slot[0]
		}), lookups
	}
	return func(layer int, nodes []int64, slots []int32) { h.state.Lookup(i, layer, nodes, slots, lookups) }, lookups
}
