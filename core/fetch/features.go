package fetch

import (
	"context"
	"fmt"
	"sort"
	"sync/atomic"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// Features holds the tensors of a graph: each in memory as a whole, or on disk with some of its rows in the slots of a
// cache.
type Features struct {
	Tables      []Table
	CachedTypes draw.CachedTypes // which rows batches need
	OnDisk      []*Table         // node tables that are read row by row
	Trained     []*Table         // those of them whose rows training changes
	Columns     []int            // of the slots of the cache: widths
	Slots       *cache.Rows      // nil when no rows are cached
	Resident    Resident
	Movers      int // that copy rows between one batch and the cache
}

// Table is a tensor with its rows: completely in memory, or on disk with some of them in the cache.
type Table struct {
	draw.Tensor
	Index  int         // in features.tables and among the tensors
	Disk   *graph.Rows // nil when memory holds all rows
	unused bool        // no batch has its rows
	Column int         // its column of the cache, among the node tables on disk of its type
}

// Open loads the tensors that are held whole and opens the others. alloc is the allocator of batches, see Locker.
func (f *Features) Open(ctx context.Context, m *draw.Sampling, alloc mem.Allocator) error {
	f.Tables = make([]Table, len(m.Parts.Tensors))
	for i, t := range m.Parts.Tensors {
		f.Tables[i] = Table{Tensor: t, Index: i, Column: m.Split.ColumnOf[i], unused: !m.Parts.Reaches(&t)}
		table := &f.Tables[i]
		switch {
		case t.OnDisk == nil:
		case m.Split.Resident[i]:
			block, err := t.OnDisk.Load(ctx, m.Budget, mem.FeatureCache)
			if err != nil {
				return err
			}
			m.OnClose(block.Free)
			table.Memory = block.Bytes()
		default:
			var err error
			if t.Trained != nil {
				table.Disk, err = m.Graph.ChangingRows(t.Trained)
			} else {
				table.Disk, err = m.Graph.Rows(ctx, &t.OnDisk.Array)
			}
			if err != nil {
				return err
			}
			if !t.ByEdge && !table.unused {
				f.OnDisk = append(f.OnDisk, table)
			}
			if t.Trained != nil && !table.unused {
				f.Trained = append(f.Trained, table)
			}
		}
	}
	f.lockResident(m, alloc)
	cached := make([]bool, m.Parts.Schema.NumTypes())
	for _, t := range f.OnDisk {
		cached[t.Type] = true
	}
	f.CachedTypes = m.NewCachedTypes(cached)
	f.CachedTypes.Order = m.Order
	f.Columns = m.Split.Columns
	_, f.Movers = m.Concurrency()
	return nil
}

// Has reports whether a table has a row that some table of its column has.
func (t *Table) Has(row uint32) bool { return int64(row) >= t.First && int64(row) < t.First+t.NumRows }

// HasAll reports whether a table has all rows of a graph: then the rows in slots need not be looked up.
func (t *Table) HasAll(rows int64) bool { return t.First == 0 && t.NumRows == rows }

// SlotRow returns the row of a table in a slot of the cache.
func (f *Features) SlotRow(t *Table, slot int32) []byte {
	return f.Slots.Row(t.Column, int64(slot))[:t.Width]
}

// TableOf returns the table in a column that has a row, or nil.
func (f *Features) TableOf(column int, row uint32) *Table {
	for _, t := range f.OnDisk {
		if t.Column == column && t.Has(row) {
			return t
		}
	}
	return nil
}

// readAtOpening reads rows of all tables on disk that have them, before there are batches: a prune.ReadRows.
func (f *Features) readAtOpening(ctx context.Context, rows []int64, put func(table, at int, row []byte)) error {
	var m ssd.Merger
	for i, t := range f.OnDisk {
		var places []int // in the list
		var own []int64
		for at, row := range rows {
			if t.Has(uint32(row)) {
				places, own = append(places, at), append(own, row-t.First)
			}
		}
		err := t.Disk.Read(ctx, &m, own, func(k int32, row []byte) error {
			put(i, places[k], row)
			return nil
		})
		if err != nil {
			return fmt.Errorf("loader: filling the cache from %q: %w", t.Name, err)
		}
	}
	return nil
}

// FillsOf returns the fills, which rise by row, whose rows a table has.
func (t *Table) FillsOf(fills []plan.Fill) []plan.Fill {
	lo, hi := t.within(len(fills), func(i int) uint32 { return fills[i].Row })
	return fills[lo:hi]
}

// ExtrasOf does the same for rows of packs.
func (t *Table) ExtrasOf(extras []plan.Extra) []plan.Extra {
	lo, hi := t.within(len(extras), func(i int) uint32 { return extras[i].Row })
	return extras[lo:hi]
}

func (t *Table) within(n int, row func(i int) uint32) (lo, hi int) {
	before := func(end int64) int { return sort.Search(n, func(i int) bool { return int64(row(i)) >= end }) }
	return before(t.First), before(t.First + t.NumRows)
}

// Vacant marks a slot that holds no row. Planned loaders have fewer than 2^32-1
// rows.
const Vacant = ^uint32(0)

// Resident tracks the row that each slot of the cache really holds, as committed
// and not as planned. After a stop in mid-superbatch the planner starts from it.
// Batches change it in their order.
type Resident struct {
	block *mem.Block
	Rows  []uint32
	Count atomic.Int64 // slots that are not vacant, for the statistics of other goroutines
}

// ResidentBytes is the cost of a slot.
const ResidentBytes = 4

func (r *Resident) open(budget *mem.Budget, capacity int64) error {
	block, err := budget.Alloc(mem.FeatureCache, capacity*ResidentBytes)
	if err != nil {
		return err
	}
	r.block, r.Rows = block, mem.Slice[uint32](block)
	r.empty()
	return nil
}

// OpenSlots makes the slots of the cache.
func (f *Features) OpenSlots(m *draw.Sampling, capacity int64) error {
	rows, err := cache.NewRows(m.Budget, capacity, f.Columns)
	if err != nil {
		return err
	}
	m.OnClose(rows.Close)
	f.Slots = rows
	return nil
}

// OpenResident makes the record of the rows in the slots.
func (f *Features) OpenResident(m *draw.Sampling) error {
	err := f.Resident.open(m.Budget, m.Split.CacheRows)
	if err == nil {
		m.OnClose(f.Resident.block.Free)
	}
	return err
}

func (r *Resident) empty() {
	for i := range r.Rows {
		r.Rows[i] = Vacant
	}
	r.Count.Store(0)
}

func (r *Resident) Set(slot int32, row uint32) {
	if r.Rows[slot] == Vacant {
		r.Count.Add(1)
	}
	r.Rows[slot] = row
}

func (r *Resident) Clear(slot int32) {
	if r.Rows[slot] != Vacant {
		r.Count.Add(-1)
	}
	r.Rows[slot] = Vacant
}

// All yields the rows held, by slot.
func (r *Resident) All(yield func(slot int32, row uint32)) {
	for slot, row := range r.Rows {
		if row != Vacant {
			yield(int32(slot), row)
		}
	}
}
