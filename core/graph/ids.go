package graph

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/packed"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// IDs is an array of ids (neighbours, or the user's edge numbers), in memory
// or on disk, or the identity where nothing is stored.
type IDs struct {
	narrow []uint32 // in memory, four bytes each
	wide   []int64  // in memory, eight bytes each
	packed *packed.Array
	disk   *Rows
	lists  *listColumn // on disk: the lists of some nodes that are in memory, or nil
	limit  int64       // every id is below it; checked when read from disk
	counts *Counts
}

// Counts counts the ids of an array on disk that were found in memory (hits) and on disk (misses).
type Counts struct{ Hits, Misses atomic.Int64 }

// Scratch is the scratch memory of a gather, for one at a time.
type Scratch struct {
	Merger ssd.Merger
	pos    []int64 // positions of the index array that no list in memory holds
	at     []int32 // where their ids go
	edges  []int64 // edge numbers, of a fetch of weights
}

// ScratchBytes returns the size of a Scratch beside the merger, for a number of edges.
func ScratchBytes(edges int64) int64 { return edges * (8 + 4) }

// InMemory returns the ids of a graph in memory, of four bytes or of eight, or, where both are nil, each its position.
func InMemory(narrow []uint32, wide []int64, limit int64) IDs {
	return IDs{narrow: narrow, wide: wide, limit: limit}
}

// Stays stands for ids that stay on disk, for what a sampler needs to draw by them.
func Stays() IDs { return IDs{disk: &Rows{}} }

// Width returns the bits that an id needs.
func (a *IDs) Width() int { return packed.Width(a.limit) }

// OnDisk reports whether ids are read from disk.
func (a *IDs) OnDisk() bool { return a.disk != nil }

// Cached reports whether some of the lists on disk are in memory.
func (a *IDs) Cached() bool { return a.lists != nil }

// SetIndices sets the index array of a relation to the neighbours that are in memory: narrow ones are below 2^31.
func (a *IDs) SetIndices(r *sample.Relation) {
	// unsafe: the same memory, elements of equal size and alignment
	r.Indices32 = unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(a.narrow))), len(a.narrow))
	r.Indices64, r.Packed = a.wide, a.packed
}

// Read sets out to the ids in memory from a position on.
func (a *IDs) Read(first int64, out []int64) {
	switch {
	case a.packed != nil:
		a.packed.Unpack(first, out)
	case a.narrow != nil:
		for i, id := range a.narrow[first:][:len(out)] {
			out[i] = int64(id)
		}
	default:
		copy(out, a.wide[first:])
	}
}

// Memory returns the ids in memory as they lie, and the bits of each, 32, 64 or the width of packed ones: nothing where
// they are on disk, or their positions.
func (a *IDs) Memory() (data []byte, bits int) {
	switch {
	case a.packed != nil:
		return a.packed.Memory()
	case a.narrow != nil:
		return mem.Bytes(a.narrow), 32
	case a.wide != nil:
		return mem.Bytes(a.wide), 64
	}
	return nil, 0
}

// Gather writes the ids of the drawn edges, in their order. out may be the memory
// of d.Pos. An array in memory needs no scratch. What the context wants of others
// on disk (Wanted) it may fail with sample.ErrDeferred.
func (a *IDs) Gather(ctx context.Context, s *Scratch, d sample.Drawn, out []int64) error {
	switch {
	case a.lists != nil:
		if err := a.lists.serve(ctx, s, d, out); err != nil {
			return err
		}
		return a.fetch(ctx, s, s.pos, s.at, out)
	case a.disk != nil:
		return a.fetch(ctx, s, d.Pos, nil, out)
	case a.narrow != nil:
		for i, p := range d.Pos {
			out[i] = int64(a.narrow[p])
		}
	case a.wide != nil:
		for i, p := range d.Pos {
			out[i] = a.wide[p]
		}
	case a.packed != nil:
		packed.Load(a.packed, d.Pos, out)
	default:
		copy(out, d.Pos)
	}
	return nil
}

// Identity reports whether nothing is stored: every id is its position.
func (a *IDs) Identity() bool {
	return a.narrow == nil && a.wide == nil && a.packed == nil && a.disk == nil
}

func (a *IDs) count(hits, misses int) {
	if a.counts != nil {
		a.counts.Hits.Add(int64(hits))
		a.counts.Misses.Add(int64(misses))
	}
}

// fetch writes the ids at these positions, which no list in memory holds, to out, each
// to the place that at gives it, or in order where at is nil.
func (a *IDs) fetch(ctx context.Context, s *Scratch, pos []int64, at []int32, out []int64) error {
	missed := len(pos)
	w, _ := ctx.Value(wantedKey{}).(*Wanted)
	if w != nil && missed > 0 {
		done, err := w.fetch(a, pos, at, out)
		if err != nil {
			return err
		}
		if done {
			pos = nil
		}
	}
	if w == nil || w.last {
		a.count(len(out)-missed, missed)
	}
	return a.readEach(ctx, &s.Merger, pos, func(i int32, id int64) {
		if at != nil {
			i = at[i]
		}
		out[i] = id
	})
}

// readEach reads the ids at these positions and puts each, from engine threads.
func (a *IDs) readEach(ctx context.Context, m *ssd.Merger, pos []int64, put func(i int32, id int64)) error {
	return a.disk.Read(ctx, m, pos, func(i int32, row []byte) error {
		id := idOf(row)
		if uint64(id) >= uint64(a.limit) {
			return a.badID(id, pos[i])
		}
		put(i, id)
		return nil
	})
}

// idOf decodes an id of four, five or eight bytes.
func idOf(row []byte) int64 {
	switch len(row) {
	case 4:
		return int64(binary.LittleEndian.Uint32(row))
	case 5:
		return store.Uint40(row)
	}
	return int64(binary.LittleEndian.Uint64(row))
}

func (a *IDs) badID(id, pos int64) error {
	return fmt.Errorf("%w: %s holds id %d at position %d, expected an id in [0, %d)",
		store.ErrCorrupt, a.disk.handle.Name(), id, pos, a.limit)
}

// diskAdjacency is the sampler's view of neighbour lists that stay on disk, all or
// some: only the pages that hold drawn positions are read (Ginex, section 3.2), for
// a hop's whole frontier together.
type diskAdjacency struct {
	ids     *IDs
	scratch *sync.Pool
}

// NewScratchPool returns a pool of *Scratch, one per hop in flight.
func NewScratchPool() *sync.Pool { return &sync.Pool{New: func() any { return new(Scratch) }} }

// Adjacency returns the neighbours as a sampler reads them from disk, with scratch of a pool, which several may share.
func (a *IDs) Adjacency(scratch *sync.Pool) sample.Adjacency { return &diskAdjacency{a, scratch} }

// Fetch implements sample.Adjacency.
func (d *diskAdjacency) Fetch(ctx context.Context, drawn sample.Drawn, out []int64) error {
	s := d.scratch.Get().(*Scratch)
	defer d.scratch.Put(s)
	return d.ids.Gather(ctx, s, drawn, out)
}

// Lists is the neighbour lists of a relation, by target.
type Lists struct {
	Indptr    *offsets.Table // where the list of each target begins
	Neighbors IDs            // the source of each edge
	EdgeIDs   IDs            // the user's number of each edge
}

// Edges returns a relation's edges from end to end.
func (l *Lists) Edges(budget *mem.Budget) *Edges { return &Edges{lists: l, budget: budget} }

// Edges is the edges of a relation as a stream, for what ranks nodes by them.
type Edges struct {
	lists  *Lists
	budget *mem.Budget
}

// NumNodes returns the number of targets.
func (e *Edges) NumNodes() int64 { return e.lists.Indptr.NumNodes() }

// Indptr returns the offsets of the in-edges of each node.
func (e *Edges) Indptr() *offsets.Table { return e.lists.Indptr }

// Scan calls visit with the sources of all edges in order, a piece at a time: what
// is on disk is read from end to end, the next piece while this one is visited.
func (e *Edges) Scan(ctx context.Context, visit func(first int64, sources []int64) error) error {
	return e.lists.Neighbors.Scan(ctx, e.budget, visit)
}
