package fetch

import (
	"context"

	"freshgo/core/cache"
	"freshgo/core/draw"
)

// rankForCache ranks the rows of the cached types, and puts last the rows that the consumer holds.
func rankForCache(ctx context.Context, m *draw.Sampling, f *Features) (*cache.Vector, error) {
	scores, err := draw.RankForCache(ctx, m, m.Split.Cache, &f.CachedTypes)
	if err != nil {
		return nil, err
	}
	dropHeld(m, f, scores)
	dropRowless(m, f, scores)
	return scores, nil
}

// dropHeld makes the rows that the consumer holds the coldest of a ranking.
func dropHeld(m *draw.Sampling, f *Features, ranked *cache.Vector) {
	for node, at := range m.Options.Held {
		if at >= 0 {
			ranked.Hotness[f.CachedTypes.RowOf(int64(node))] = 0
		}
	}
}

// dropRowless puts the nodes of types that have no rows on disk last.
func dropRowless(m *draw.Sampling, f *Features, scores *cache.Vector) {
	first := m.Parts.Schema.First
	for t, cached := range f.CachedTypes.Listed {
		if !cached {
			clear(scores.Hotness[first[t]:first[t+1]])
		}
	}
}
