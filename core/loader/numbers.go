package loader

import (
	"context"
	"sync"

	"freshgo/core/mem"
)

// Tensors of which the loader reads the numbers: weights and times.

// allRows is all rows of a tensor, in memory, until free, which may be called again.
func (l *Loader) allRows(ctx context.Context, t *tensor) (rows []byte, free func(), err error) {
	if t.onDisk == nil || t.numRows == 0 {
		return t.memory, func() {}, nil
	}
	block, err := l.parts.store.LoadTensor(ctx, &t.onDisk.Array, l.budget, mem.Staging)
	if err != nil {
		return nil, nil, err
	}
	return block.Bytes()[:t.bytes()], sync.OnceFunc(block.Free), nil
}

// hold allocates what stays until the loader is closed.
func (l *Loader) hold(n int64) (*mem.Block, error) {
	block, err := l.budget.Alloc(mem.Topology, n)
	if err == nil {
		l.onClose(block.Free)
	}
	return block, err
}

// numbersOf is the numbers of a relation's edges, and where its lists begin.
func (l *Loader) numbersOf(relation int) (ids *idArray, indptr []int64) {
	if l.parts.types.unnamed() {
		return &l.edgeIDs, l.indptr
	}
	r := &l.parts.types.relations[relation]
	return &r.edgeIDs, r.indptr
}
