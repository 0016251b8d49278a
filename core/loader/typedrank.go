package loader

import (
	"context"
	"math"

	"freshgo/core/cache"
)

// degrees scores the nodes of all types, on one scale: by their edges of all relations that are drawn along, to other nodes ("degree") or from them ("in-degree").
func (s *schema) degrees(ctx context.Context, l *Loader, metric string) (*cache.Vector, error) {
	return cache.Counted(l.budget, l.parts.numNodes, func(counts []uint32) error {
		for i := range s.relations {
			r := &s.relations[i]
			if !r.used {
				continue
			}
			if metric == "in-degree" {
				to := counts[s.first[r.target]:]
				for v := range s.count(r.target) {
					to[v] = uint32(min(int64(to[v])+r.indptr[v+1]-r.indptr[v], math.MaxUint32))
				}
				continue
			}
			if err := s.countSources(ctx, l, r, counts); err != nil {
				return err
			}
		}
		return nil
	})
}

// countSources adds the edges of a relation to the counts of their sources, of which there is one for every node.
func (s *schema) countSources(ctx context.Context, l *Loader, r *relation, counts []uint32) error {
	from := counts[s.first[r.source]:]
	return r.neighbors.scan(ctx, l.budget, func(_ int64, sources []int64) error {
		for _, v := range sources {
			if from[v] < math.MaxUint32 {
				from[v]++
			}
		}
		return nil
	})
}

// dropRowless puts the nodes of types that have no rows on disk last.
func (l *Loader) dropRowless(scores *cache.Vector) {
	if l.parts.types.unnamed() {
		return
	}
	first := l.parts.types.first
	for t, cached := range l.cachedTypes {
		if !cached {
			clear(scores.Hotness[first[t]:first[t+1]])
		}
	}
}
