// Package graph reads the arrays of a graph, in memory or on disk: neighbour lists, the user's edge
// numbers, the weights and times that edges are drawn by, and rows of any tensor.
//
// It guarantees that what is read does not depend on what is held in memory, which its caller,
// core/draw, decides. Ids, weights and sums from files are checked when they are read. Rows on disk
// cost a read for each page that holds some of them. What is held in memory is counted in the budget
// and freed by Close.
package graph

import (
	"context"
	"sync"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// Opened reads the arrays of one graph.
type Opened struct {
	Store     *store.Store // nil: everything is in memory
	Engine    *ssd.Engine  // of a store
	Slot      int          // bytes of one of the engine's buffers
	Checksums bool         // every page read is compared with its checksum
	Budget    *mem.Budget
	release   []func() // what Close undoes, last first
}

// Column is a tensor of one number for each node or edge.
type Column struct {
	DType   manifest.DType
	NumRows int64
	Memory  []byte        // dense rows, or
	Disk    *store.Tensor // where they are
}

func (o *Opened) onClose(fn func()) { o.release = append(o.release, fn) }

// Close closes and frees what was opened, not the engine. Idempotent.
func (o *Opened) Close() {
	for i := len(o.release) - 1; i >= 0; i-- {
		o.release[i]()
	}
	o.release = nil
}

// hold allocates what stays until o is closed.
func (o *Opened) hold(n int64) (*mem.Block, error) {
	block, err := o.Budget.Alloc(mem.Topology, n)
	if err == nil {
		o.onClose(block.Free)
	}
	return block, err
}

// Whole returns all rows of a column, in memory, until free, which may be called again.
func (o *Opened) Whole(ctx context.Context, c *Column) (rows []byte, free func(), err error) {
	if c.Disk == nil || c.NumRows == 0 {
		return c.Memory, func() {}, nil
	}
	block, err := c.Disk.Load(ctx, o.Budget, mem.Staging)
	if err != nil {
		return nil, nil, err
	}
	return block.Bytes()[:c.NumRows*int64(c.DType.Size())], sync.OnceFunc(block.Free), nil
}

// Loaded is an array of ids in memory.
type Loaded struct {
	*mem.Block
	ids IDs
}

// LoadIDs loads ids, which are below a limit, and packs them or leaves them as wide as the file has them.
func LoadIDs(ctx context.Context, budget *mem.Budget, a *store.Array, limit int64, packs bool) (l *Loaded, err error) {
	l = &Loaded{ids: IDs{limit: limit}}
	if packs {
		l.ids.packed, l.Block, err = a.LoadPacked(ctx, limit, budget, mem.NeighborCache)
		return l, err
	}
	l.Block, err = a.LoadIDs(ctx, limit, budget, mem.NeighborCache)
	switch {
	case err != nil:
		return nil, err
	case a.IDBytes() == 4:
		l.ids.narrow = mem.Slice[uint32](l.Block)
	default:
		l.ids.wide = mem.Slice[int64](l.Block)
	}
	return l, nil
}

// IDs returns the ids, valid until they are freed.
func (l *Loaded) IDs() IDs { return l.ids }

// IDs opens an array of ids on disk, which are below a limit.
func (o *Opened) IDs(ctx context.Context, a *store.Array, limit int64) (ids IDs, err error) {
	ids.limit = limit
	ids.disk, err = o.Rows(ctx, a)
	return ids, err
}

// Keep keeps loaded ids in memory until o is closed, and returns them.
func (o *Opened) Keep(l *Loaded) IDs {
	o.onClose(l.Free)
	return l.ids
}

// CountIn makes what is read of ids on disk count in c.
func (a *IDs) CountIn(c *Counts) {
	if a.disk != nil {
		a.counts = c
	}
}
