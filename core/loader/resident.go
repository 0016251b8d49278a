package loader

import (
	"sync/atomic"

	"freshgo/core/mem"
)

// vacant marks a slot that holds no row. Planned loaders have fewer than 2^32-1
// rows.
const vacant = ^uint32(0)

// resident is which row each slot of the cache really holds: what has been
// committed, not what is planned. After a stop in mid-superbatch the planner
// starts from it. Batches change it in their order.
type resident struct {
	block *mem.Block
	rows  []uint32
	held  atomic.Int64 // slots that are not vacant, for the statistics of other goroutines
}

// residentBytes is the cost of a slot.
const residentBytes = 4

func (r *resident) open(budget *mem.Budget, capacity int64) error {
	block, err := budget.Alloc(mem.FeatureCache, capacity*residentBytes)
	if err != nil {
		return err
	}
	r.block, r.rows = block, mem.Slice[uint32](block)
	r.empty()
	return nil
}

func (r *resident) empty() {
	for i := range r.rows {
		r.rows[i] = vacant
	}
	r.held.Store(0)
}

func (r *resident) set(slot int32, row uint32) {
	if r.rows[slot] == vacant {
		r.held.Add(1)
	}
	r.rows[slot] = row
}

func (r *resident) clear(slot int32) {
	if r.rows[slot] != vacant {
		r.held.Add(-1)
	}
	r.rows[slot] = vacant
}

// all yields the rows held, by slot.
func (r *resident) all(yield func(slot int32, row uint32)) {
	for slot, row := range r.rows {
		if row != vacant {
			yield(int32(slot), row)
		}
	}
}

// cachedRows is how many rows are cached.
func (l *Loader) cachedRows() int64 {
	if l.hot != nil {
		return l.hot.Held()
	}
	return l.resident.held.Load()
}
