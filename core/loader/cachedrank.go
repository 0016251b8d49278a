package loader

import (
	"context"

	"freshgo/core/cache"
	"freshgo/core/sample"
)

// rankForCache is rank, with the many ties of PreSC broken by expected visits, and
// the rows that the consumer holds last.
func rankForCache(ctx context.Context, l *Loader) (*cache.Vector, error) {
	scores, err := l.draw.Rank(ctx, l.draw.Split.Cache, &l.rows.cachedTypes)
	if err != nil {
		return nil, err
	}
	if l.draw.Split.Cache == "presc" && l.draw.Gives(sample.CanExpected) {
		expected, err := l.draw.Score(ctx, "expected")
		if err != nil {
			scores.Close()
			return nil, err
		}
		defer expected.Close()
		if l.draw.Order != nil {
			expected.Renumber(l.draw.Order)
		}
		scores.BreakTies(expected.Hotness, 1/float32(l.draw.Options.PreSCEpochs))
	}
	dropHeld(l, scores)
	dropRowless(l, scores)
	return scores, nil
}

// dropHeld makes the rows that the consumer holds the coldest of a ranking.
func dropHeld(l *Loader, ranked *cache.Vector) {
	for node, at := range l.draw.Options.Held {
		if at >= 0 {
			ranked.Hotness[l.rows.cachedTypes.RowOf(int64(node))] = 0
		}
	}
}

// dropRowless puts the nodes of types that have no rows on disk last.
func dropRowless(l *Loader, scores *cache.Vector) {
	first := l.draw.Parts.Schema.First
	for t, cached := range l.rows.cachedTypes.Listed {
		if !cached {
			clear(scores.Hotness[first[t]:first[t+1]])
		}
	}
}
