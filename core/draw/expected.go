package draw

import (
	"context"

	"freshgo/core/cache"
	"freshgo/core/sample"
)

// Expected visits (FGNN, section 6.2, by calculation): core/cache computes them from neighbours, fanouts and weights,
// wherever these lie.

// ExpectedVisits scores the nodes by the expected number of batches that have them within their first hops: all hops
// for rows of features, hops-layer for rows of a hidden layer.
func ExpectedVisits(ctx context.Context, m *Sampling, hops int) (*cache.Vector, error) {
	o, types := &m.Options, m.Parts.Schema
	s := cache.Sampling{Seeds: o.Seeds, BatchSize: o.BatchSize, Replace: o.Replace}
	relations := make([]cache.Relation, len(types.Relations))
	for i := range relations {
		r := &types.Relations[i]
		relations[i] = cache.Relation{
			Edges:  r.Edges(m.Budget),
			Source: types.First[r.Source], Target: types.First[r.Target], NumSources: types.NumNodes(r.Source),
			Fanouts: o.RelationFanouts[i][:hops],
		}
		if m.DrawnBy != nil && m.DrawnBy[i] != nil { // else it is drawn from uniformly
			relations[i].Weights = listWeights{m.DrawnBy[i]}
		}
	}
	return cache.Expected(ctx, m.Budget, m.Parts.NumNodes, relations, s)
}

// RangeWeights is weights on disk, in the order of the index array.
type RangeWeights interface {
	FetchFrom(ctx context.Context, first int64, out []float64) error
}

// listWeights reads weights in the order of the index array.
type listWeights struct{ *sample.Weights }

// Fetch implements cache.Weights.
func (w listWeights) Fetch(ctx context.Context, first int64, out []float64) error {
	switch {
	case w.Source != nil:
		return w.Source.(RangeWeights).FetchFrom(ctx, first, out)
	case w.Narrow != nil:
		for i, weight := range w.Narrow[first : first+int64(len(out))] {
			out[i] = float64(weight)
		}
	default:
		copy(out, w.Wide[first:])
	}
	return nil
}
