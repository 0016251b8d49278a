package graph

import (
	"context"
	"math"
	"sync"

	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// Times of edges and nodes. In memory they are put by position and into ascending order within each
// list, with the order beside them where lists are not in it already: 8 or 12 bytes an edge, so that
// what a seed may see of a list is found by search. On disk they stay as they are: what a hop needs are
// the times of whole lists, read as weights are, of edges by their numbers and of sources by theirs.

// TimesBytes returns the memory of the times of a number of edges, with an order.
func TimesBytes(edges int64) int64 {
	order := int64(4)
	if edges > math.MaxUint32 {
		order = 8
	}
	return max(1, edges) * (8 + order)
}

// TimeRows is the times of a tensor: all rows in memory, until Free, or on disk.
type TimeRows struct {
	Column
	order []uint32 // of nodes, the row of each
	first int64    // that rows are counted from there
	rows  []byte
	disk  *Rows // nil: rows
	free  func()
}

// Free gives up the rows in memory. It may be called again.
func (r *TimeRows) Free() { r.free() }

// Times finds the times of a tensor, in memory or on disk. Of nodes, order is the row of each, counted
// from first, or nil.
func (o *Opened) Times(
	ctx context.Context, t Column, inMemory bool, order []uint32, first int64,
) (r *TimeRows, err error) {
	r = &TimeRows{Column: t, order: order, first: first, free: func() {}}
	if o.Store == nil || inMemory {
		r.rows, r.free, err = o.Whole(ctx, &t)
	} else {
		r.disk, err = o.Rows(ctx, &t.Disk.Array)
	}
	return r, err
}

// Read reads the times of these edges or nodes. It may change ids, which then are rows.
func (r *TimeRows) Read(ctx context.Context, s *Scratch, ids, out []int64) error {
	if r.disk == nil {
		r.gather(ids, out)
		return nil
	}
	if r.order != nil {
		for i, v := range ids {
			ids[i] = int64(r.order[v]) - r.first
		}
	}
	return r.disk.Read(ctx, &s.Merger, ids, func(i int32, row []byte) error {
		store.DecodeIntegers(r.DType, row, out[i:i+1])
		return nil
	})
}

// TimesOf returns the times of the edges of some lists. ids has the rows of the times: of the sources or of the edges.
func (o *Opened) TimesOf(ctx context.Context, rows *TimeRows, of *Lists, ids *IDs) (*sample.Times, error) {
	if rows.disk == nil {
		return o.holdTimes(ctx, rows, of.Indptr, ids)
	}
	return &sample.Times{Source: &diskTimes{TimeRows: rows, ids: ids, scratch: NewScratchPool()}}, nil
}

// holdTimes puts times into memory, in ascending order by list. ids are the rows of the positions.
func (o *Opened) holdTimes(ctx context.Context, r *TimeRows, indptr []int64, ids *IDs) (*sample.Times, error) {
	edges := indptr[len(indptr)-1]
	block, err := o.hold(8 * edges)
	if err != nil {
		return nil, err
	}
	times := &sample.Times{Ascending: mem.Slice[int64](block)[:edges]}
	if ids.Identity() {
		store.DecodeIntegers(r.DType, r.rows, times.Ascending)
	} else if err := ids.Scan(ctx, o.Budget, func(first int64, ids []int64) error {
		r.gather(ids, times.Ascending[first:first+int64(len(ids))])
		return nil
	}); err != nil {
		return nil, err
	}
	if sample.TimesAscend(indptr, times.Ascending) {
		return times, nil
	}
	if block, err = o.hold(TimesBytes(edges) - 8*max(1, edges)); err != nil {
		return nil, err
	}
	if edges > math.MaxUint32 {
		times.Order64 = mem.Slice[int64](block)[:edges]
		return times, sample.SortTimes(ctx, indptr, times.Ascending, times.Order64)
	}
	times.Order32 = mem.Slice[uint32](block)[:edges]
	return times, sample.SortTimes(ctx, indptr, times.Ascending, times.Order32)
}

// diskTimes is times on disk: rows of a tensor, by what ids says of positions.
type diskTimes struct {
	*TimeRows
	ids     *IDs
	scratch *sync.Pool // *Scratch, one per hop in flight
}

// FetchTimes implements sample.TimeSource.
func (d *diskTimes) FetchTimes(ctx context.Context, drawn sample.Drawn, out []int64) error {
	s := d.scratch.Get().(*Scratch)
	defer d.scratch.Put(s)
	s.edges = reuse.Slice(s.edges, len(drawn.Pos))
	if err := d.ids.Gather(ctx, s, drawn, s.edges); err != nil {
		return err
	}
	return d.Read(ctx, s, s.edges, out)
}

// gather writes the times in memory of these edges or nodes.
func (r *TimeRows) gather(ids, out []int64) {
	width := int64(r.DType.Size())
	for i, v := range ids {
		if r.order != nil {
			v = int64(r.order[v]) - r.first
		}
		store.DecodeIntegers(r.DType, r.rows[v*width:(v+1)*width], out[i:i+1])
	}
}

// NodeTimes writes the time of each node to out.
func (r *TimeRows) NodeTimes(out []int64) {
	for v := range out {
		out[v] = int64(v)
	}
	r.gather(out, out)
}

// StayTimes stands for times that stay on disk, for what a sampler needs to draw by them.
func StayTimes() *sample.Times { return &sample.Times{Source: &diskTimes{}} }
