package draw

import (
	"context"
	"errors"

	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// OrderedCache describes the cache that orders of batches are judged with (FastGL, section 4.2): the loader's own.
func OrderedCache(m *Sampling) plan.Simulation {
	of := plan.Simulation{
		Policy: m.Split.Cache, NumRows: m.Parts.NumNodes, Capacity: m.Options.ReorderRows, CarryOver: true,
	}
	if of.Capacity == Auto {
		of.Capacity = m.Split.CacheRows
	}
	return of
}

// RowLister draws batches for the rows that they need. It is not safe for concurrent use.
type RowLister struct {
	graph     sample.Subgraph
	batchRows BatchRows
}

// EachRows draws batches with a worker and calls visit with the rows of the cached types that each needs, in their
// order. Several batches share their reads of neighbour lists on disk where the budget has memory for that.
func (l *RowLister) EachRows(
	ctx context.Context, order *SeedOrder, numbers []int64, worker *sample.Worker, rows *CachedTypes,
	visit func(needed []uint32) error,
) error {
	m := order.of
	batches := make([]measuredBatch, len(numbers))
	for i, number := range numbers {
		batches[i].key = order.BatchKey(number)
		if err := order.Batch(ctx, number, &batches[i].request); err != nil {
			return err
		}
	}
	draw := func(ctx context.Context, b *measuredBatch) error {
		return m.Draw(ctx, worker, b.key, &b.request, &l.graph)
	}
	defer forgetShared(batches)
	if len(batches) > 1 {
		readShared(ctx, m, cap(m.Workers), batches, draw)
	}
	for i := range batches {
		b := &batches[i]
		err := draw(b.with(ctx, true), b)
		if errors.Is(err, mem.ErrBudget) && forgetShared(batches) {
			err = draw(ctx, b)
		}
		if err != nil {
			return err
		}
		l.batchRows.FillGraph(rows, &l.graph)
		if err := visit(l.batchRows.Rows); err != nil {
			return err
		}
		b.forget()
	}
	return nil
}
