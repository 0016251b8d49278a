package fetch

import (
	"context"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/sample"
)

// rankForCache is rank, with the many ties of PreSC broken by expected visits, and
// the rows that the consumer holds last.
func rankForCache(ctx context.Context, m *draw.Sampling, f *Features) (*cache.Vector, error) {
	scores, err := m.Rank(ctx, m.Split.Cache, &f.CachedTypes)
	if err != nil {
		return nil, err
	}
	if m.Split.Cache == "presc" && m.Gives(sample.CanExpected) {
		expected, err := m.Score(ctx, "expected")
		if err != nil {
			scores.Close()
			return nil, err
		}
		defer expected.Close()
		if m.Order != nil {
			expected.Renumber(m.Order)
		}
		scores.BreakTies(expected.Hotness, 1/float32(m.Options.PreSCEpochs))
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
