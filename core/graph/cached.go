package graph

import (
	"context"
	"fmt"
	"iter"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// Lists on disk, some of them cached in memory, which cache.Neighbors chooses and keeps: read here and served to the
// sampler.

// listColumn is one array's part of the cached lists.
type listColumn struct {
	lists  *cache.Neighbors
	column *cache.Column
	indptr *offsets.Table
}

const (
	// serveGroup is the number of targets that are looked up at a time, so that their
	// cache misses overlap.
	serveGroup = 64
	// serveStep is the number of targets between two checks of the context.
	// Arbitrary: under a millisecond.
	serveStep = 1 << 12
)

// serve writes the ids of the edges whose lists are cached and notes the others.
func (c *listColumn) serve(ctx context.Context, s *Scratch, d sample.Drawn, out []int64) error {
	s.pos, s.at = s.pos[:0], s.at[:0]
	var lists, heads [serveGroup]int64
	for first := 0; first < len(d.Targets); first += serveGroup {
		if first%serveStep == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		targets := d.Targets[first:min(first+serveGroup, len(d.Targets))]
		ptr := d.Ptr[first : first+len(targets)+1]
		lists, heads := lists[:len(targets)], heads[:len(targets)]
		c.lists.Find(targets, lists)
		for i, at := range lists {
			heads[i] = at
			if ptr[i] < ptr[i+1] {
				heads[i] += d.Pos[ptr[i]-d.Ptr[0]] - c.indptr.Begin(targets[i])
			}
		}
		c.column.Prefetch(heads)
		for i, at := range lists {
			lo, hi := ptr[i]-d.Ptr[0], ptr[i+1]-d.Ptr[0]
			switch pos, out, begin := d.Pos[lo:hi], out[lo:hi], c.indptr.Begin(targets[i]); {
			case at == cache.Miss:
				for e, p := range pos {
					s.pos = append(s.pos, p)
					s.at = append(s.at, int32(lo)+int32(e))
				}
			default:
				for e, p := range pos {
					out[e] = c.column.At(at + p - begin)
				}
			}
		}
	}
	return nil
}

// Cache reads the lists that are cached, with these offsets, of an array on disk, and serves them from then on.
func (o *Opened) Cache(
	ctx context.Context, a *IDs, file *store.Array, lists *cache.Neighbors, indptr *offsets.Table,
) error {
	column, err := lists.AddColumn(a.Width())
	if err != nil {
		return err
	}
	c := &listColumn{lists: lists, column: column, indptr: indptr}
	if err := o.fillLists(ctx, a, file, c); err != nil {
		return fmt.Errorf("loader: caching neighbour lists: %w", err)
	}
	a.lists = c
	return nil
}

// CacheLoaded does the same for an array that is in memory whole, which is checked then. Its memory is the lists' from
// then on.
func CacheLoaded(a *IDs, loaded *Loaded, lists *cache.Neighbors, indptr *offsets.Table) error {
	column, err := lists.CutColumn(loaded.Block, a.Width(), loaded.ids.Read)
	if err == nil {
		a.lists = &listColumn{lists: lists, column: column, indptr: indptr}
	}
	return err
}

// fillLists reads the cached lists of an array into their column. They serve every
// later epoch, so their pages are always compared with the checksums, as if the
// array were loaded whole.
func (o *Opened) fillLists(ctx context.Context, a *IDs, file *store.Array, c *listColumn) error {
	disk := *a.disk
	if disk.pages == nil {
		block, err := file.LoadCRC(ctx, o.Budget, mem.Staging)
		if err != nil {
			return err
		}
		defer block.Free()
		disk.pages = mem.Slice[uint32](block)
	}
	return fillColumn(ctx, o.Budget, a, &disk, c)
}

// fillColumn reads the lists that c caches from disk, the rows of the array.
func fillColumn(ctx context.Context, budget *mem.Budget, a *IDs, disk *Rows, c *listColumn) error {
	l := disk.layout
	var ranges []ssd.Range // 16 bytes for 24 KiB of the file or more
	for r := range pageRanges(c.lists.Runs(0, l.NumRows), l, int(disk.buffer())) {
		ranges = append(ranges, r)
	}
	return disk.eachRange(ctx, budget, ranges, func(off int64, rows []byte) error {
		return a.put(c, l.RowAt(off), rows)
	})
}

// put checks the ids of the file from position first on and puts into the column those that it caches.
func (a *IDs) put(c *listColumn, first int64, data []byte) error {
	if width := a.disk.layout.RowBytes; width != 4 {
		ids := make([]int64, len(data)/width)
		if err := a.decode(first, data, ids); err != nil {
			return err
		}
		cache.Put(c.column, first, ids)
		return nil
	}
	ids := mem.View[uint32](data)
	if err := checkIDs(a, first, ids); err != nil {
		return err
	}
	cache.Put(c.column, first, ids)
	return nil
}

// pageRanges covers runs of positions with ranges of at most slot bytes, which do
// not overlap; small holes between runs are read along.
func pageRanges(runs iter.Seq[cache.Run], l ssd.Layout, slot int) iter.Seq[ssd.Range] {
	return func(yield func(ssd.Range) bool) {
		begin, end := int64(0), int64(0) // pages not yet yielded
		flush := func(least int64) bool {
			for end-begin >= least {
				n := min(end-begin, int64(slot/ssd.PageBytes))
				if !yield(ssd.Range{Off: begin * ssd.PageBytes, Len: int32(n * ssd.PageBytes)}) {
					return false
				}
				begin += n
			}
			return true
		}
		for r := range runs {
			first, last := l.Offset(r.From)/ssd.PageBytes, (l.Offset(r.To-1)+int64(l.RowBytes)-1)/ssd.PageBytes
			if first > end+MaxHolePages {
				if !flush(1) {
					return
				}
				begin = first
			}
			end = last + 1
			if !flush(int64(slot / ssd.PageBytes)) {
				return
			}
		}
		flush(1)
	}
}
