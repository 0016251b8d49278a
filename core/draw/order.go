package draw

import (
	"context"

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
	request   Request
}

// Rows draws a batch with a worker and returns the rows of the cached types that it needs, until the next call.
func (l *RowLister) Rows(
	ctx context.Context, order *SeedOrder, number int64, worker *sample.Worker, rows *CachedTypes,
) ([]uint32, error) {
	if err := order.Batch(ctx, number, &l.request); err != nil {
		return nil, err
	}
	if err := order.of.Draw(ctx, worker, order.BatchKey(number), &l.request, &l.graph); err != nil {
		return nil, err
	}
	l.batchRows.FillGraph(rows, &l.graph)
	return l.batchRows.Rows, nil
}
