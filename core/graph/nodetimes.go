package graph

import (
	"context"
	"math"
	"slices"
	"sync"

	"freshgo/core/internal/reuse"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// TimeSpan is the range of the times of a tensor.
type TimeSpan struct{ Least, Most int64 }

// wide reports whether a time less the earliest one takes more than four bytes.
func (s TimeSpan) wide() bool { return uint64(s.Most)-uint64(s.Least) > math.MaxUint32 }

// anyTime is the range of times that are not known yet.
var anyTime = TimeSpan{math.MinInt64, math.MaxInt64}

// SpanOf returns a range of times that four bytes hold by their type, or else anyTime.
func SpanOf(dtype manifest.DType) TimeSpan {
	bits := 8 * dtype.Size()
	switch dtype {
	case manifest.DType_INT8, manifest.DType_INT16, manifest.DType_INT32:
		return TimeSpan{-1 << (bits - 1), 1<<(bits-1) - 1}
	case manifest.DType_UINT8, manifest.DType_UINT16, manifest.DType_UINT32:
		return TimeSpan{0, 1<<bits - 1}
	}
	return anyTime
}

// Bytes returns the memory of the times of a number of nodes.
func (s TimeSpan) Bytes(nodes int64) int64 {
	if s.wide() {
		return max(1, nodes) * 8
	}
	return max(1, nodes) * 4
}

// FindSpan reads all times of a column for their range, unless their type says enough.
func FindSpan(ctx context.Context, c *Column, budget *mem.Budget) (TimeSpan, error) {
	of := SpanOf(c.DType)
	if !of.wide() || c.NumRows == 0 {
		return of, nil
	}
	of = TimeSpan{math.MaxInt64, math.MinInt64}
	var mu sync.Mutex
	err := c.eachTime(ctx, budget, func(_ int64, times []int64) {
		least, most := slices.Min(times), slices.Max(times)
		mu.Lock()
		defer mu.Unlock()
		of.Least, of.Most = min(of.Least, least), max(of.Most, most)
	})
	return of, err
}

// eachTime calls visit with the times of the rows from first on, maybe from several goroutines and in no order.
func (c *Column) eachTime(
	ctx context.Context, budget *mem.Budget, visit func(first int64, times []int64),
) error {
	if c.Disk != nil {
		return c.Disk.EachInteger(ctx, budget, visit)
	}
	buffer, width := make([]int64, ScanIDs), int64(c.DType.Size())
	for first := int64(0); first < c.NumRows; first += ScanIDs {
		if err := ctx.Err(); err != nil {
			return err
		}
		times := buffer[:min(ScanIDs, c.NumRows-first)]
		store.DecodeIntegers(c.DType, c.Memory[first*width:(first+int64(len(times)))*width], times)
		visit(first, times)
	}
	return nil
}

// TimesByNode returns times of nodes that are read by row. order is the row of each node, counted from first, or nil.
func (o *Opened) TimesByNode(ctx context.Context, t Column, order []uint32, first int64) (*sample.TimesByNode, error) {
	rows, err := o.Times(ctx, t, false, order, first)
	if err != nil {
		return nil, err
	}
	return &sample.TimesByNode{Source: &diskNodeTimes{rows, NewScratchPool()}}, nil
}

// HoldTimesByNode puts times of nodes, whose range is known, into memory until free or until o is closed. With an order
// it takes as much again while it runs.
func (o *Opened) HoldTimesByNode(
	ctx context.Context, t Column, of TimeSpan, order []uint32, first int64,
) (out *sample.TimesByNode, free func(), err error) {
	block, err := o.Budget.Alloc(mem.Topology, of.Bytes(t.NumRows))
	if err != nil {
		return nil, nil, err
	}
	free = sync.OnceFunc(block.Free)
	o.onClose(free)
	out = new(sample.TimesByNode)
	if of.wide() {
		out.Wide = mem.Slice[int64](block)[:t.NumRows]
		return out, free, placeTimes(ctx, o, &t, out.Wide, 0, order, first)
	}
	out.Least, out.Narrow = of.Least, mem.Slice[uint32](block)[:t.NumRows]
	return out, free, placeTimes(ctx, o, &t, out.Narrow, of.Least, order, first)
}

// placeTimes writes the time of each node, less least, to out.
func placeTimes[T uint32 | int64](
	ctx context.Context, o *Opened, t *Column, out []T, least int64, order []uint32, firstRow int64,
) error {
	byRow := out
	if order != nil {
		block, err := o.Budget.Alloc(mem.Staging, int64(len(mem.Bytes(out))))
		if err != nil {
			return err
		}
		defer block.Free()
		byRow = mem.Slice[T](block)[:len(out)]
	}
	err := t.eachTime(ctx, o.Budget, func(first int64, times []int64) {
		part := byRow[first:]
		for i, time := range times {
			part[i] = T(time - least)
		}
	})
	for v := range order {
		out[v] = byRow[int64(order[v])-firstRow]
	}
	return err
}

// LongLists puts the order in time of the longest lists of a relation in memory until o is closed.
func (o *Opened) LongLists(ctx context.Context, of *Lists, times *sample.TimesByNode) (*sample.LongLists, error) {
	r := sample.Relation{Indptr: of.Indptr}
	of.Neighbors.SetIndices(&r)
	l, err := sample.NewLongLists(ctx, &r, times, sample.LongListsBytes(of.Indptr), o.Budget)
	if err == nil {
		o.onClose(l.Close)
	}
	return l, err
}

// diskNodeTimes is times of nodes that are read by row.
type diskNodeTimes struct {
	*TimeRows
	scratch *sync.Pool // *Scratch, one per hop in flight
}

// FetchNodeTimes implements sample.NodeTimeSource.
func (d *diskNodeTimes) FetchNodeTimes(ctx context.Context, nodes, out []int64) error {
	s := d.scratch.Get().(*Scratch)
	defer d.scratch.Put(s)
	s.edges = reuse.Slice(s.edges, len(nodes))
	copy(s.edges, nodes)
	return d.Read(ctx, s, s.edges, out)
}
