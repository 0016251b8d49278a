package loader

import (
	"fmt"
	"sync"

	"freshgo/core/draw"
	"freshgo/core/mem"
)

// gate admits batches to memory in their order and within a limit. A batch that finds no room waits until earlier ones
// have been consumed, so a slow consumer causes back-pressure instead of growth.
//
// It cannot deadlock: all batches before a waiting one have been admitted, they finish without further memory, and
// consuming them makes room. A batch that finds no room even then is larger than all measured ones. It gets the rest of
// the budget, and if that is not enough, acquire returns an error.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond
	budget  *mem.Budget
	limit   int64 // of the budget, for batches; 0: unlimited
	used    int64
	turn    int64 // the batch that may acquire next
	wanted  int64 // the batch for which the consumer waits, or -1
	shut    bool
	holds   int     // batches that the consumer holds at most
	held    []int64 // bytes of each batch that the consumer holds
}

func newGate(budget *mem.Budget, limit, first int64) *gate {
	g := &gate{budget: budget, limit: limit, turn: first, wanted: -1, holds: 1}
	g.changed.L = &g.mu
	return g
}

// acquire waits for batch i's turn and for n bytes. It returns draw.ErrStopped after shutdown, and a *mem.BudgetError
// where no consumption can make room for n bytes.
func (g *gate) acquire(i, n int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		switch {
		case g.shut:
			return draw.ErrStopped
		case g.turn != i:
		case g.reserve(n, g.wanted == i):
			g.turn++
			g.changed.Broadcast()
			return nil
		case g.wanted == i:
			return fmt.Errorf("loader: batch %d is larger than the sampled ones, by which memory was divided; "+
				"give the loader more memory: %w", i,
				&mem.BudgetError{Purpose: mem.Batch, Need: n, Free: g.budget.Limit() - g.budget.Used(), Limit: g.budget.Limit()})
		}
		g.changed.Wait()
	}
}

// reserve counts n bytes if they fit. The limit is the need of measured batches. A batch that is due, for which nothing
// else makes room, may take the rest of the budget.
func (g *gate) reserve(n int64, due bool) bool {
	if !due && g.limit != 0 && g.used+n > g.limit || g.budget.Reserve(mem.Batch, n) != nil {
		return false
	}
	g.used += n
	return true
}

func (g *gate) release(n int64) {
	g.used -= n
	g.budget.Release(mem.Batch, n)
}

// want records that the consumer waits for batch i and so frees nothing before it. Repeated calls for a batch change
// nothing.
func (g *gate) want(i int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wanted == i {
		return
	}
	g.wanted = i
	g.changed.Broadcast()
}

// handOver records that the consumer has taken a batch of n bytes. The oldest batch beyond the number that it may hold
// is no longer counted: the consumer's loop variable now holds the new one.
func (g *gate) handOver(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held = append(g.held, n); len(g.held) > g.holds {
		g.release(g.held[0])
		g.held = g.held[1:]
	}
	g.changed.Broadcast()
}

// shutdown makes every acquire return, now and later.
func (g *gate) shutdown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	g.changed.Broadcast()
}

// drain releases all counted bytes. No batch acquires any more.
func (g *gate) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release(g.used)
	g.held = nil
}
