package loader

import (
	"context"
	"fmt"
	"iter"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// The neighbour cache of topology that stays on disk (Ginex, section 3.2): the
// in-edges of the most important nodes, chosen and kept by cache.Neighbors, read
// here and served to the sampler.
//
// A list is cached with its edge numbers where those are on disk too. Each of the
// two arrays costs a page for each target that is not cached, so a byte of either
// saves as many reads: a node's neighbours and its edge numbers have the same rank,
// and without the numbers the reads of a batch never fall below those for them.
// Measured with bytes for a quarter and for half of both arrays, batches of 64:
// 1367 and 653 KiB a batch against 2438 and 2111 with neighbours alone. Where
// batches touch most pages of the file, neighbours alone were better, by up to a
// fifth.

// listColumn is one array's part of the cached lists.
type listColumn struct {
	lists  *cache.Neighbors
	column *cache.Column
	indptr []int64
}

const (
	// serveGroup is how many targets are looked up at a time, so that the lines of
	// memory that they need come together rather than one after the other.
	serveGroup = 16
	// serveStep is how many targets pass between two looks at the context.
	// Arbitrary: under a millisecond.
	serveStep = 1 << 12
)

// serve writes the ids of the edges whose lists are cached and notes the others.
func (c *listColumn) serve(ctx context.Context, s *fetchScratch, d sample.Drawn, out []int64) error {
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
				heads[i] += d.Pos[ptr[i]-d.Ptr[0]] - c.indptr[targets[i]]
			}
		}
		c.column.Prefetch(heads)
		for i, at := range lists {
			lo, hi := ptr[i]-d.Ptr[0], ptr[i+1]-d.Ptr[0]
			switch pos, out := d.Pos[lo:hi], out[lo:hi]; {
			case at == cache.Miss:
				for e, p := range pos {
					s.pos = append(s.pos, p)
					s.at = append(s.at, int32(lo)+int32(e))
				}
			case c.column.Narrow != nil:
				for e, p := range pos {
					out[e] = int64(c.column.Narrow[at+p-c.indptr[targets[i]]])
				}
			default:
				for e, p := range pos {
					out[e] = c.column.Wide[at+p-c.indptr[targets[i]]]
				}
			}
		}
	}
	return nil
}

// listed is what is cached of the same lists: neighbours, and edge numbers where
// those are on disk too, of a graph or of one of its types of edges.
type listed struct {
	indptr []int64
	arrays []*idArray
	files  []*store.Array
}

func (s *listed) add(ids *idArray, file *store.Array) {
	if ids.disk != nil {
		s.arrays, s.files = append(s.arrays, ids), append(s.files, file)
	}
}

func (s *listed) edgeBytes() (total int64) {
	for _, f := range s.files {
		total += int64(f.Layout.RowBytes)
	}
	return total
}

// openNeighborLists caches the lists of the most important nodes, as many as the
// split gives bytes to, where topology is on disk. It reads the neighbours once
// from end to end to rank the nodes and then, in the order of the file and every
// page checked, what is cached.
func (l *Loader) openNeighborLists(ctx context.Context, indptr []int64, neighbors *idArray) error {
	if neighbors != nil { // without types
		l.neighbors = neighbors
		if neighbors.disk != nil {
			neighbors.counts = new(fetchCounts)
		}
	}
	if l.split.NeighborLists == 0 {
		return nil
	}
	of, err := l.chooseLists(ctx, indptr, neighbors)
	if err != nil {
		return err
	}
	for _, lists := range l.lists {
		l.onClose(lists.Close)
	}
	for i, lists := range l.lists {
		for j, a := range of[i].arrays {
			file := of[i].files[j]
			column, err := lists.AddColumn(file.Layout.RowBytes)
			if err != nil {
				return err
			}
			c := &listColumn{lists: lists, column: column, indptr: of[i].indptr}
			if err := l.fillLists(ctx, a, file, c); err != nil {
				return fmt.Errorf("loader: caching neighbour lists: %w", err)
			}
			a.lists = c
		}
	}
	return nil
}

// chooseLists chooses the lists to cache, and says of what.
func (l *Loader) chooseLists(ctx context.Context, indptr []int64, neighbors *idArray) (of []listed, err error) {
	var wanted *cache.Vector
	var lists []cache.Lists
	if types := l.parts.types; !types.unnamed() {
		if wanted, err = types.wantedLists(ctx, l); err != nil {
			return nil, err
		}
		of, lists = types.listed(wanted.Hotness)
	} else {
		if wanted, err = cache.OutDegree(ctx, l.budget, &adjacency{indptr: indptr, ids: neighbors, budget: l.budget}); err != nil {
			return nil, err
		}
		topology := l.parts.store.Topology()
		all := listed{indptr: indptr}
		all.add(neighbors, topology.Indices)
		all.add(&l.edgeIDs, topology.EdgeIDs)
		of, lists = []listed{all}, []cache.Lists{{Indptr: indptr, Wanted: wanted.Hotness, EdgeBytes: all.edgeBytes()}}
	}
	defer wanted.Close()
	l.lists, err = cache.NewNeighbors(ctx, l.budget, lists, l.split.NeighborLists)
	return of, err
}

// choosingBytes is what chooseLists holds for a while, beside the address tables.
func choosingBytes(numNodes, numLists int64) int64 {
	return numNodes*4 + 2*scanPiece + cache.NeighborScratchBytes(numLists)
}

// fillRanges is how many ranges are asked for at once while lists are read: far
// more than are in flight, and a few hundred kilobytes of descriptions.
const fillRanges = 1 << 13

// fillLists reads the cached lists of an array into their column. They serve every
// later epoch, so their pages are compared with the checksums in any case, as
// those of an array that is loaded whole.
func (l *Loader) fillLists(ctx context.Context, a *idArray, file *store.Array, c *listColumn) error {
	disk := *a.disk
	if disk.pages == nil {
		block, err := l.parts.store.LoadCRC(ctx, file, l.budget, mem.Staging)
		if err != nil {
			return err
		}
		defer block.Free()
		disk.pages = mem.Slice[uint32](block)
	}
	return fillColumn(ctx, a, &disk, c)
}

// fillColumn reads from disk, which is that of the array, what c caches.
func fillColumn(ctx context.Context, a *idArray, disk *diskRows, c *listColumn) error {
	width, numRows := int64(disk.layout.RowBytes), disk.layout.NumRows
	deliver := func(off int64, data []byte) error {
		first := off / width
		data = data[:min(int64(len(data)), (numRows-first)*width)] // the last page is padded
		if err := a.check(first, data); err != nil {
			return err
		}
		c.column.Put(first, data)
		return nil
	}
	ranges := make([]ssd.Range, 0, fillRanges)
	for r := range pageRanges(c.lists.Runs(0, numRows), width, disk.slot) {
		if ranges = append(ranges, r); len(ranges) == fillRanges {
			if err := disk.readRanges(ctx, ranges, deliver); err != nil {
				return err
			}
			ranges = ranges[:0]
		}
	}
	return disk.readRanges(ctx, ranges, deliver)
}

// pageRanges covers runs of positions with ranges of at most slot bytes, which do
// not overlap; small holes between runs are read along.
func pageRanges(runs iter.Seq[cache.Run], width int64, slot int) iter.Seq[ssd.Range] {
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
			first, last := r.From*width/ssd.PageBytes, (r.To*width-1)/ssd.PageBytes
			if first > end+maxHolePages {
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

// neighborCounts is how many neighbours of sampled edges were found in memory and
// how many were read, one by one or with others of their page.
func (l *Loader) neighborCounts() (hits, misses int64) {
	if l.neighbors == nil || l.neighbors.counts == nil {
		return l.counters.edges.Load(), 0
	}
	return l.neighbors.counts.hits.Load(), l.neighbors.counts.misses.Load()
}
