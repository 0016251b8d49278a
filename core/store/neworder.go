package store

import (
	"context"
	"sort"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// writeOrders makes the order of each node type, writes it and describes it in m. It returns the row to which each row
// of the source moves, by type, four bytes a node of the budget.
func (r *relayouter) writeOrders(ctx context.Context, m *manifest.Manifest) (*mem.Block, error) {
	order, err := r.makeOrder(ctx)
	if err != nil {
		return nil, err
	}
	defer order.Free()
	block, err := r.budget.Alloc(mem.Convert, r.numNodes()*4)
	if err != nil {
		return nil, err
	}
	ids, rowOf := mem.Slice[uint32](order), mem.Slice[uint32](block)
	if err = r.cut(ctx, ids, rowOf); err == nil {
		err = r.storeOrders(ctx, ids, m)
	}
	order.Free()
	for i := range r.src.nodeTypes {
		if err == nil {
			err = r.compose(ctx, &r.src.nodeTypes[i], rowOf[r.first[i]:r.first[i+1]])
		}
	}
	if err != nil {
		block.Free()
		return nil, err
	}
	return block, nil
}

// cut divides an order of all nodes by type: afterwards ids has for each type the user's ids in their order, and rowOf
// the rows of each node among those of its type.
func (r *relayouter) cut(ctx context.Context, ids, rowOf []uint32) error {
	types := len(r.src.nodeTypes)
	next := make([]uint32, types) // rows given of each type
	for i, id := range ids {
		if i%cancelRows == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		typ := 0
		if types > 1 {
			typ = sort.Search(types, func(t int) bool { return r.first[t+1] > int64(id) })
		}
		rowOf[id] = next[typ]
		next[typ]++
	}
	if types == 1 {
		return nil // ids count within the type already
	}
	for typ := range types {
		if err := ctx.Err(); err != nil {
			return err
		}
		own := ids[r.first[typ]:r.first[typ+1]]
		for id, row := range rowOf[r.first[typ]:r.first[typ+1]] {
			own[row] = uint32(id)
		}
	}
	return nil
}

// storeOrders writes the orders of the node types.
func (r *relayouter) storeOrders(ctx context.Context, ids []uint32, m *manifest.Manifest) error {
	for i, node := range m.NodeTypes {
		var err error
		if node.Order, err = r.storeOrder(ctx, r.orderFile(i), ids[r.first[i]:r.first[i+1]]); err != nil {
			return err
		}
	}
	return nil
}

// storeOrder writes the order of a node type as a file of this name.
func (r *relayouter) storeOrder(ctx context.Context, name string, ids []uint32) (*manifest.Array, error) {
	w, err := newArrayWriter(r.src.fs, r.dir, name, manifest.DType_UINT32, nil, frugal.chunk, r.budget)
	if err != nil {
		return nil, err
	}
	defer w.abort()
	if err := writeWindow(ctx, w, mem.Bytes(ids), r.meter); err != nil {
		return nil, err
	}
	return w.finish(int64(len(ids)))
}

// compose turns the new rows of a type, by node, into new rows by row of the source, which may have an order already.
func (r *relayouter) compose(ctx context.Context, t *NodeType, rowOf []uint32) error {
	order, err := t.LoadOrder(ctx, r.budget, mem.Convert)
	if err != nil || order == nil {
		return err
	}
	defer order.Free()
	moves := mem.Slice[uint32](order)
	for row, id := range moves {
		if row%cancelRows == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		moves[row] = rowOf[id]
	}
	copy(rowOf, moves)
	return nil
}

// makeOrder returns the nodes of all types in the order in which their rows are to be.
func (r *relayouter) makeOrder(ctx context.Context) (*mem.Block, error) {
	n := r.numNodes()
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
	n := r.numNodes()
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
