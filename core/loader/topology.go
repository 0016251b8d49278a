package loader

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"unsafe"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// idArray is an array of ids (neighbours, or the user's edge numbers), in memory
// or on disk, or the identity where nothing is stored.
type idArray struct {
	narrow []uint32 // in memory, four bytes each
	wide   []int64  // in memory, eight bytes each
	disk   *diskRows
	limit  int64 // every id is below it; checked when read from disk
}

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

// gather writes the ids at these positions.
func (a *idArray) gather(ctx context.Context, m *ssd.Merger, pos []int64, out []int64) error {
	switch {
	case a.disk != nil:
		return a.read(ctx, m, pos, out)
	case a.narrow != nil:
		for i, p := range pos {
			out[i] = int64(a.narrow[p])
		}
	case a.wide != nil:
		for i, p := range pos {
			out[i] = a.wide[p]
		}
	default:
		copy(out, pos)
	}
	return nil
}

func (a *idArray) read(ctx context.Context, m *ssd.Merger, pos []int64, out []int64) error {
	return a.disk.read(ctx, m, pos, func(i int32, row []byte) error {
		var id int64
		if len(row) == 4 {
			id = int64(binary.LittleEndian.Uint32(row))
		} else {
			id = int64(binary.LittleEndian.Uint64(row))
		}
		if uint64(id) >= uint64(a.limit) {
			return fmt.Errorf("%w: %s holds id %d at position %d, expected an id in [0, %d)",
				store.ErrCorrupt, a.disk.handle.Name(), id, pos[i], a.limit)
		}
		out[i] = id
		return nil
	})
}

// diskAdjacency is the sampler's view of neighbour lists that stay on disk: only
// the pages that hold drawn positions are read (Ginex, section 4.2), those of a
// hop's whole frontier together.
type diskAdjacency struct {
	ids     *idArray
	mergers sync.Pool // *ssd.Merger, one per hop in flight
}

func newDiskAdjacency(ids *idArray) *diskAdjacency {
	return &diskAdjacency{ids: ids, mergers: sync.Pool{New: func() any { return new(ssd.Merger) }}}
}

// Fetch implements sample.Adjacency.
func (d *diskAdjacency) Fetch(ctx context.Context, pos []int64, out []int64) error {
	m := d.mergers.Get().(*ssd.Merger)
	defer d.mergers.Put(m)
	return d.ids.gather(ctx, m, pos, out)
}

// outDegrees counts how often each node occurs as a neighbour, that is, for how
// many targets it can be drawn. Neighbours on disk are read once from end to end.
func outDegrees(ctx context.Context, neighbors *idArray, numNodes int64, budget *mem.Budget) (*mem.Block, error) {
	block, err := budget.Alloc(mem.FeatureCache, numNodes*4)
	if err != nil {
		return nil, err
	}
	counts := mem.Slice[uint32](block)
	if neighbors.disk != nil {
		err = countOnDisk(ctx, neighbors, counts)
	} else {
		err = countInMemory(ctx, neighbors, counts)
	}
	if err != nil {
		block.Free()
		return nil, err
	}
	return block, nil
}

func countInMemory(ctx context.Context, neighbors *idArray, counts []uint32) error {
	for _, v := range neighbors.narrow {
		counts[v]++
	}
	for _, v := range neighbors.wide {
		counts[v]++
	}
	return ctx.Err()
}

// scanChunk is how many positions one sequential step of a scan covers: large
// enough that the engine's queue stays full, small enough to stop promptly.
const scanChunk = 1 << 19

func countOnDisk(ctx context.Context, neighbors *idArray, counts []uint32) error {
	var m ssd.Merger
	numEdges := neighbors.disk.layout.NumRows
	pos := make([]int64, 0, scanChunk)
	ids := make([]int64, scanChunk)
	for start := int64(0); start < numEdges; start += scanChunk {
		pos = pos[:0]
		for p := start; p < min(start+scanChunk, numEdges); p++ {
			pos = append(pos, p)
		}
		if err := neighbors.read(ctx, &m, pos, ids); err != nil {
			return err
		}
		for _, v := range ids[:len(pos)] {
			counts[v]++
		}
	}
	return nil
}
