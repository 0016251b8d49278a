package loader

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// idArray is an array of ids (neighbours, or the user's edge numbers), in memory
// or on disk, or the identity where nothing is stored.
type idArray struct {
	narrow []uint32 // in memory, four bytes each
	wide   []int64  // in memory, eight bytes each
	disk   *diskRows
	lists  *listColumn // on disk: the lists of some nodes that are in memory, or nil
	limit  int64       // every id is below it; checked when read from disk
	counts *fetchCounts
}

// fetchCounts says where ids of an array on disk were found.
type fetchCounts struct{ hits, misses atomic.Int64 }

// fetchScratch is what one gather at a time needs.
type fetchScratch struct {
	merger ssd.Merger
	pos    []int64 // positions of the index array that no list in memory holds
	at     []int32 // where their ids go
	edges  []int64 // edge numbers, of a fetch of weights
}

// fetchBytes is the size of a fetchScratch beside the merger, for so many edges.
func fetchBytes(edges int64) int64 { return edges * (8 + 4) }

// unsigned views ids that are not negative.
func unsigned(ids []int32) []uint32 {
	// unsafe: the same memory, elements of equal size and alignment
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids))
}

// signed views ids below 2^31, as the adjacency's are.
func signed(ids []uint32) []int32 {
	// unsafe: the same memory, elements of equal size and alignment
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids))
}

// gather writes the ids of the drawn edges, in their order. out may be the memory
// of d.Pos. An array in memory needs no scratch.
func (a *idArray) gather(ctx context.Context, s *fetchScratch, d sample.Drawn, out []int64) error {
	switch {
	case a.lists != nil:
		if err := a.lists.serve(ctx, s, d, out); err != nil {
			return err
		}
		a.count(len(out)-len(s.pos), len(s.pos))
		return a.read(ctx, &s.merger, s.pos, s.at, out)
	case a.disk != nil:
		a.count(0, len(out))
		return a.read(ctx, &s.merger, d.Pos, nil, out)
	case a.narrow != nil:
		for i, p := range d.Pos {
			out[i] = int64(a.narrow[p])
		}
	case a.wide != nil:
		for i, p := range d.Pos {
			out[i] = a.wide[p]
		}
	default:
		copy(out, d.Pos)
	}
	return nil
}

// identity says whether nothing is stored: every id is its position.
func (a *idArray) identity() bool { return a.narrow == nil && a.wide == nil && a.disk == nil }

func (a *idArray) count(hits, misses int) {
	if a.counts != nil {
		a.counts.hits.Add(int64(hits))
		a.counts.misses.Add(int64(misses))
	}
}

// read writes the ids at these positions to out, each to the place that at gives
// it, or in order where at is nil.
func (a *idArray) read(ctx context.Context, m *ssd.Merger, pos []int64, at []int32, out []int64) error {
	return a.disk.read(ctx, m, pos, func(i int32, row []byte) error {
		id := idOf(row)
		if uint64(id) >= uint64(a.limit) {
			return a.badID(id, pos[i])
		}
		if at != nil {
			i = at[i]
		}
		out[i] = id
		return nil
	})
}

// idOf decodes an id of four or eight bytes.
func idOf(row []byte) int64 {
	if len(row) == 4 {
		return int64(binary.LittleEndian.Uint32(row))
	}
	return int64(binary.LittleEndian.Uint64(row))
}

func (a *idArray) badID(id, pos int64) error {
	return fmt.Errorf("%w: %s holds id %d at position %d, expected an id in [0, %d)",
		store.ErrCorrupt, a.disk.handle.Name(), id, pos, a.limit)
}

// diskAdjacency is the sampler's view of neighbour lists that stay on disk, all or
// some: only the pages that hold drawn positions are read (Ginex, section 3.2),
// those of a hop's whole frontier together.
type diskAdjacency struct {
	ids     *idArray
	scratch *sync.Pool
}

// newFetchPool is a pool of *fetchScratch, one per hop in flight.
func newFetchPool() *sync.Pool { return &sync.Pool{New: func() any { return new(fetchScratch) }} }

func newDiskAdjacency(ids *idArray, scratch *sync.Pool) *diskAdjacency {
	return &diskAdjacency{ids: ids, scratch: scratch}
}

// Fetch implements sample.Adjacency.
func (d *diskAdjacency) Fetch(ctx context.Context, drawn sample.Drawn, out []int64) error {
	s := d.scratch.Get().(*fetchScratch)
	defer d.scratch.Put(s)
	return d.ids.gather(ctx, s, drawn, out)
}

// adjacency is the whole graph as a stream, for what ranks nodes by it.
type adjacency struct {
	indptr []int64
	ids    *idArray
	budget *mem.Budget
}

// NumNodes is the number of nodes.
func (a *adjacency) NumNodes() int64 { return int64(len(a.indptr)) - 1 }

// Indptr is where the in-edges of each node begin.
func (a *adjacency) Indptr() []int64 { return a.indptr }

// Scan calls visit with the sources of all edges in order, a piece at a time: what
// is on disk is read from end to end, the next piece while this one is visited.
func (a *adjacency) Scan(ctx context.Context, visit func(first int64, sources []int64) error) error {
	return a.ids.scan(ctx, a.budget, visit)
}
