package loader

import (
	"context"
	"fmt"
	"sort"
	"sync/atomic"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/rows"
	"freshgo/core/ssd"
)

// features holds the tensors of a graph: each in memory as a whole, or on disk with some of its rows in the slots of a
// cache.
type features struct {
	tables      []table
	cachedTypes draw.CachedTypes // which rows batches need
	onDisk      []*table         // node tables that are read row by row
	columns     []int            // of the slots of the cache: widths
	cached      *cache.Rows      // nil when no rows are cached
	resident    resident
	threads     int // that gather the rows of one batch
	movers      int // that copy rows between one batch and the cache
}

// table is a tensor with its rows: in memory as a whole, or on disk with some of
// them in the cache.
type table struct {
	draw.Tensor
	index  int         // in features.tables and among the tensors
	disk   *graph.Rows // nil when memory holds all rows
	unused bool        // no batch has rows of it
	cached int         // its column of the cache, among the node tables on disk of its type
}

// open loads the tensors that are held whole and opens the others.
func (f *features) open(ctx context.Context, m *draw.Sampling) error {
	f.tables = make([]table, len(m.Parts.Tensors))
	for i, t := range m.Parts.Tensors {
		f.tables[i] = table{Tensor: t, index: i, cached: m.Split.ColumnOf[i], unused: !m.Parts.Reaches(&t)}
		table := &f.tables[i]
		switch {
		case t.OnDisk == nil:
		case m.Split.Resident[i]:
			block, err := m.Parts.Store.LoadTensor(ctx, &t.OnDisk.Array, m.Budget, mem.FeatureCache)
			if err != nil {
				return err
			}
			m.OnClose(block.Free)
			table.Memory = block.Bytes()
		default:
			var err error
			if table.disk, err = m.Graph.Rows(ctx, &t.OnDisk.Array); err != nil {
				return err
			}
			if !t.ByEdge && !table.unused {
				f.onDisk = append(f.onDisk, table)
			}
		}
	}
	cached := make([]bool, m.Parts.Schema.NumTypes())
	for _, t := range f.onDisk {
		cached[t.Type] = true
	}
	f.cachedTypes = m.NewCachedTypes(cached)
	f.cachedTypes.Order = m.Order
	f.columns = m.Split.Columns
	_, f.threads = m.Concurrency()
	f.movers = f.threads
	return nil
}

// gatherRows copies rows of a table in memory.
func (f *features) gatherRows(dst, src []byte, width int, ids []int64) {
	among(f.threads, len(ids), func(lo, hi int) { rows.Gather(dst[lo*width:hi*width], src, width, ids[lo:hi]) })
}

// copyRows copies rows between tables in memory.
func (f *features) copyRows(dst []byte, to []int32, src []byte, from []int32, width int) {
	among(f.movers, len(to), func(lo, hi int) { rows.Copy(dst, to[lo:hi], src, from[lo:hi], width) })
}

// among splits count rows among threads, or has one do them where they are few.
func among(threads, count int, fn func(lo, hi int)) {
	if count < threads*minShare {
		threads = 1
	}
	guard.Split(threads, count, fn)
}

// minShare is the least number of rows for a thread: a hand-over costs as much as
// copying about a hundred rows. Arbitrary above that.
const minShare = 4096

// has reports whether a table has a row that some table of its column has.
func (t *table) has(row uint32) bool { return int64(row) >= t.First && int64(row) < t.First+t.NumRows }

// hasAll reports whether a table has all rows of a graph: then the rows in slots need not be looked up.
func (t *table) hasAll(rows int64) bool { return t.First == 0 && t.NumRows == rows }

// slotRow returns the row of a table in a slot of the cache.
func (f *features) slotRow(t *table, slot int32) []byte {
	return f.cached.Row(t.cached, int64(slot))[:t.Width]
}

// fromSlots copies rows of a table out of slots, whose column may be wider.
func (f *features) fromSlots(t *table, dst []byte, to, slots []int32) {
	if f.columns[t.cached] == t.Width {
		f.copyRows(dst, to, f.cached.Table(t.cached), slots, t.Width)
		return
	}
	for i, row := range to {
		copy(dst[int(row)*t.Width:][:t.Width], f.slotRow(t, slots[i]))
	}
}

// toSlots copies rows of a table into slots.
func (f *features) toSlots(t *table, slots []int32, src []byte, from []int32) {
	if f.columns[t.cached] == t.Width {
		f.copyRows(f.cached.Table(t.cached), slots, src, from, t.Width)
		return
	}
	for i, row := range from {
		copy(f.slotRow(t, slots[i]), src[int(row)*t.Width:][:t.Width])
	}
}

// tableOf returns the table in a column that has a row, or nil.
func (f *features) tableOf(column int, row uint32) *table {
	for _, t := range f.onDisk {
		if t.cached == column && t.has(row) {
			return t
		}
	}
	return nil
}

// readAtOpening reads rows of all tables on disk that have them, before there are batches: a prune.ReadRows.
func (f *features) readAtOpening(ctx context.Context, rows []int64, put func(table, at int, row []byte)) error {
	var m ssd.Merger
	for i, t := range f.onDisk {
		var places []int // in the list
		var own []int64
		for at, row := range rows {
			if t.has(uint32(row)) {
				places, own = append(places, at), append(own, row-t.First)
			}
		}
		err := t.disk.Read(ctx, &m, own, func(k int32, row []byte) error {
			put(i, places[k], row)
			return nil
		})
		if err != nil {
			return fmt.Errorf("loader: filling the cache from %q: %w", t.Name, err)
		}
	}
	return nil
}

// fillsOf returns the fills, which rise by row, whose rows a table has.
func (t *table) fillsOf(fills []plan.Fill) []plan.Fill {
	lo, hi := t.within(len(fills), func(i int) uint32 { return fills[i].Row })
	return fills[lo:hi]
}

// extrasOf does the same for rows of packs.
func (t *table) extrasOf(extras []plan.Extra) []plan.Extra {
	lo, hi := t.within(len(extras), func(i int) uint32 { return extras[i].Row })
	return extras[lo:hi]
}

func (t *table) within(n int, row func(i int) uint32) (lo, hi int) {
	before := func(end int64) int { return sort.Search(n, func(i int) bool { return int64(row(i)) >= end }) }
	return before(t.First), before(t.First + t.NumRows)
}

// vacant marks a slot that holds no row. Planned loaders have fewer than 2^32-1
// rows.
const vacant = ^uint32(0)

// resident tracks the row that each slot of the cache really holds, as committed
// and not as planned. After a stop in mid-superbatch the planner starts from it.
// Batches change it in their order.
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

// openSlots makes the slots of the cache.
func (f *features) openSlots(m *draw.Sampling, capacity int64) error {
	rows, err := cache.NewRows(m.Budget, capacity, f.columns)
	if err != nil {
		return err
	}
	rows.Populate()
	m.OnClose(rows.Close)
	f.cached = rows
	return nil
}

// openResident makes the record of what is in the slots.
func (f *features) openResident(m *draw.Sampling) error {
	err := f.resident.open(m.Budget, m.Split.CacheRows)
	if err == nil {
		m.OnClose(f.resident.block.Free)
	}
	return err
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
