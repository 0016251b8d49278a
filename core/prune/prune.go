// Package prune removes the part of a loader's batches that historical embeddings replace, and keeps the order of
// pruned batches and updates of the history.
//
// It guarantees that pruning is a function of the history's options and of the batches alone, for any number of
// threads. Iterations are batches handed over in training epochs, counted over all of them. Batch i is pruned after the
// update of i-1-lag and before the update of i-lag:
//
//	prune 0 ... lag, update 0, prune lag+1, update 1, ...
//
// At the start of an epoch every earlier batch has been updated. Slots that a pruned batch relies on are pinned until
// its update.
//
// The loader calls it: one Cut for each batch in preparation, and the methods of Pruner when it hands a batch over and
// when the caller has trained on it. Those methods may be called from any goroutine. In addition to package history it
// costs a lock per batch, and the waits that the order requires.
//
// The life of a pruned batch, between sampling and tensors:
//
//   - If a planned loader can predict the pruned batch, a copy of the history prunes it long before its turn, and the
//     plan has only the rows that remain (forecast.go, core/window/forecaster.go).
//   - It waits for its turn (turns.go). With neighbour lists on disk and no plan, the turn comes before the last hop,
//     whose lists are then read only for computed rows (lists.go, core/sample/lasthop.go).
//   - From the output layer inwards, rows are kept or computed (cut.go, decisions.go, core/history/prune.go, csr2.go).
//     A batch of several types is merged, pruned as one graph and split again (core/history/merge.go, split.go).
//   - The remaining batch is renumbered: a table for each level, a bipartite graph for each layer
//     (core/history/levels.go, renumber.go). A planned cache carries out the rest of its step (core/plan/presence.go).
//   - Rows of level 0 that are not in the cache are read.
//   - The levels go to Python with the batch (core/batch/history_tensors.go; python/freshgo/_batch/structure.py,
//     tables.py, levels.py), where each layer merges computed and kept rows, or kept aggregates
//     (python/freshgo/_history/attach.py, layer_call.py, aggregates.py, training_step.py).
//   - The update takes the norms of the gradients and returns the admitted rows and their slots (update.go,
//     core/history/admit.go, performance.go, saves.go); PyTorch copies these rows.
//
// Go decides and never reads an embedding; PyTorch moves rows and decides nothing. So a decision is a function of the
// calls in their order, and the saved state is the state of package history within the state of this package
// (state.go), with the rows in Python (python/freshgo/_history/saved_state.py).
package prune

import (
	"errors"

	"freshgo/core/history"
	"freshgo/core/mem"
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
	config   Config
	budget   *mem.Budget
	turns    turns
	decided  decisions // guarded by turns
	skipped  int64     // batches that had no update; guarded by turns, like the rest
	idle     []*Cut
	admitted []history.Admitted
}

// New makes a Pruner with an empty history. It returns the errors of history.New.
func New(budget *mem.Budget, c Config) (*Pruner, error) {
	state, err := history.New(budget, c.History)
	if err != nil {
		return nil, err
	}
	h := &Pruner{config: c, budget: budget, turns: turns{lag: c.History.Lag}}
	h.decided = decisions{config: &h.config, state: state, waiting: map[int64]*decision{}}
	return h, nil
}

// Close frees the memory. Nothing runs.
func (h *Pruner) Close() {
	for _, c := range h.idle {
		c.Batch.Close()
	}
	h.idle = nil
	h.decided.state.Close()
}

// Prunes reports whether batches are pruned, and wait for their turn.
func (h *Pruner) Prunes() bool { return true }

// SetSpans sets the life of an entry, and the start of the history, in iterations. No epoch is running.
func (h *Pruner) SetSpans(stale, start int64) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	h.config.History.Stale, h.config.History.Start = stale, start
	h.decided.state.SetSpans(stale, start)
}

// Begin starts an epoch of count batches at batch from. No epoch may run. A plain epoch is not pruned.
func (h *Pruner) Begin(from, count int64, plain bool) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	for i := range h.decided.waiting { // the last of the epoch before: it was not updated
		h.decided.forget(i)
		h.skipped++
	}
	h.turns.begin(from, count, plain)
}

// Stop ends the epoch. What was decided for batches that were not handed over is undone; the one that was may still be
// updated. Nothing runs.
func (h *Pruner) Stop() {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	h.turns.shut = true
	for i := range h.decided.waiting {
		if i >= h.turns.given {
			h.decided.forget(i)
		}
	}
	h.decided.dropRestored()
	h.turns.wake()
}

// Abandon makes batches that wait for their turn, or for lists, return with ErrStopped. Updates that wait go on.
func (h *Pruner) Abandon() {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	h.turns.shut = true
	h.turns.wake()
}

// Fail records that a batch of the epoch and all later ones will not be made.
func (h *Pruner) Fail(index int64) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	h.turns.failed = min(h.turns.failed, index)
	h.turns.wake()
}

// Lend returns what one batch at a time is pruned with, to be given to TakeBack.
func (h *Pruner) Lend() *Cut {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	if n := len(h.idle); n > 0 {
		c := h.idle[n-1]
		h.idle = h.idle[:n-1]
		return c
	}
	return &Cut{pruner: h, Batch: history.NewBatch(h.budget, h.config.Shape)}
}

// TakeBack takes a Cut that is not in use any more.
func (h *Pruner) TakeBack(c *Cut) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	h.idle = append(h.idle, c)
}

// prunes reports whether the history serves the batch of an iteration.
func (h *Pruner) prunes(i int64) bool { return !h.turns.plain && i >= h.config.History.Start }
