package graph

import (
	"context"
	"math"
	"sync"

	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// Times of edges and nodes.
//
// Times of edges in memory are put by position and into ascending order within each list, with the order beside them
// where lists are not in it already: 8 or 12 bytes an edge, so that what a seed may see of a list is found by search.
// On disk they stay as they are: what a hop needs are the times of whole lists, read as weights are, of edges by their
// numbers.
//
// Times of nodes take 4 bytes a node in memory, or 8 if they lie 2^32 or more apart: 0.4 or 0.9 GB for 111M nodes, 1.0
// or 2.0 GB for 244M. A hop looks up the times of the sources in whole lists, wherever these are. Where memory has room
// for the times of edges in order, these take their place.

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

// TimesByEdge returns the times of the edges of some lists.
func (o *Opened) TimesByEdge(ctx context.Context, rows *TimeRows, of *Lists) (*sample.Times, error) {
	if rows.disk != nil {
		return &sample.Times{Source: &diskTimes{TimeRows: rows, ids: &of.EdgeIDs, scratch: NewScratchPool()}}, nil
	}
	return o.orderTimes(ctx, of.Indptr, func(times []int64) error {
		if of.EdgeIDs.Identity() {
			store.DecodeIntegers(rows.DType, rows.rows, times)
			return nil
		}
		return of.EdgeIDs.Scan(ctx, o.Budget, func(first int64, ids []int64) error {
			rows.gather(ids, times[first:first+int64(len(ids))])
			return nil
		})
	})
}

// TimesInOrder returns the times of the edges of some lists in memory, by the times of their sources, in memory too.
func (o *Opened) TimesInOrder(ctx context.Context, nodes *sample.TimesByNode, of *Lists) (*sample.Times, error) {
	return o.orderTimes(ctx, of.Indptr, func(times []int64) error {
		return of.Neighbors.Scan(ctx, o.Budget, func(first int64, ids []int64) error {
			nodes.Find(ids, times[first:first+int64(len(ids))])
			return nil
		})
	})
}

// orderTimes puts times of edges into memory, in ascending order by list. fill sets them by position.
func (o *Opened) orderTimes(
	ctx context.Context, indptr *offsets.Table, fill func(times []int64) error,
) (*sample.Times, error) {
	edges := indptr.NumEdges()
	block, err := o.hold(8 * edges)
	if err != nil {
		return nil, err
	}
	times := &sample.Times{Ascending: mem.Slice[int64](block)[:edges]}
	if err := fill(times.Ascending); err != nil {
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

// diskTimes is times of edges on disk: rows of a tensor, by the numbers of edges.
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

// StayTimes stands for times of edges or nodes that stay on disk, for what a sampler needs to draw by them.
func StayTimes(ofNodes bool) *sample.Times {
	if ofNodes {
		return &sample.Times{Nodes: &sample.TimesByNode{Source: &diskNodeTimes{}}}
	}
	return &sample.Times{Source: &diskTimes{}}
}
