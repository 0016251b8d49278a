package store

import (
	"context"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// writeOrder makes the order and writes it. It returns the row to which each row of the source moves, four bytes a node of the budget.
func (r *relayouter) writeOrder(ctx context.Context) (*mem.Block, *manifest.Array, error) {
	order, err := r.makeOrder(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer order.Free()
	ids := mem.Slice[uint32](order)
	w, err := newArrayWriter(r.src.fs, r.dir, "order", manifest.DType_UINT32, nil, frugal.chunk, r.budget)
	if err != nil {
		return nil, nil, err
	}
	defer w.abort()
	if err := writeWindow(ctx, w, mem.Bytes(ids), r.meter); err != nil {
		return nil, nil, err
	}
	written, err := w.finish(int64(len(ids)))
	if err != nil {
		return nil, nil, err
	}
	rowOf, err := r.budget.Alloc(mem.Convert, int64(len(ids))*4)
	if err != nil {
		return nil, nil, err
	}
	to := mem.Slice[uint32](rowOf)
	for row, id := range ids {
		if row%cancelRows == 0 && ctx.Err() != nil {
			rowOf.Free()
			return nil, nil, ctx.Err()
		}
		to[id] = uint32(row)
	}
	if r.src.node().Order == nil {
		return rowOf, written, nil
	}
	defer rowOf.Free()
	order.Free()
	composed, err := r.compose(ctx, to)
	return composed, written, err
}

// compose returns where each row of a source moves whose rows are in an order of their own already.
func (r *relayouter) compose(ctx context.Context, rowOf []uint32) (*mem.Block, error) {
	order, err := r.src.LoadOrder(ctx, r.budget, mem.Convert)
	if err != nil {
		return nil, err
	}
	moves := mem.Slice[uint32](order)
	for row, id := range moves {
		if row%cancelRows == 0 && ctx.Err() != nil {
			order.Free()
			return nil, ctx.Err()
		}
		moves[row] = rowOf[id]
	}
	return order, nil
}

// makeOrder returns the user's id of each row to be.
func (r *relayouter) makeOrder(ctx context.Context) (*mem.Block, error) {
	n := r.src.edge().NumNodes
	if r.opts.Order == Hot {
		return r.twoTables(func(order, scratch []uint32) error {
			_, err := sortHot(ctx, r.opts.Scores, order, scratch)
			return err
		})
	}
	laid, err := r.budget.Alloc(mem.Convert, n*4)
	if err != nil {
		return nil, err
	}
	together := mem.Slice[uint32](laid)
	if err := r.src.community(ctx, r.opts.Scores, together, r.plan.workers, r.budget, r.meter); err != nil {
		laid.Free()
		return nil, err
	}
	if r.opts.Order == Community {
		return laid, nil
	}
	defer laid.Free()
	return r.twoTables(func(order, scratch []uint32) error {
		return blend(ctx, r.opts.Scores, r.hotRows, together, order, scratch)
	})
}

// twoTables gives fn two places for each node and returns the first.
func (r *relayouter) twoTables(fn func(order, scratch []uint32) error) (*mem.Block, error) {
	n := r.src.edge().NumNodes
	order, err := r.budget.Alloc(mem.Convert, n*4)
	if err != nil {
		return nil, err
	}
	scratch, err := r.budget.Alloc(mem.Convert, n*4)
	if err != nil {
		order.Free()
		return nil, err
	}
	defer scratch.Free()
	if err := fn(mem.Slice[uint32](order), mem.Slice[uint32](scratch)); err != nil {
		order.Free()
		return nil, err
	}
	return order, nil
}
