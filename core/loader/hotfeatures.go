package loader

import (
	"context"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/prune"
)

// The hottest features in the history's buffer, which are the cache of a loader whose cache is a ranking: see
// prune.Features.

// openHotFeatures ranks the nodes, reads the rows of the hottest into the far end of the buffer, and tells the history.
func (l *Loader) openHotFeatures(ctx context.Context, c *history.Config) error {
	layout := prune.FeatureLayout{Buffer: l.embeddings.Bytes(), First: l.parts.types.first}
	for _, t := range l.onDisk {
		layout.Tables = append(layout.Tables, prune.FeatureTable{Type: t.typ, Width: t.width})
	}
	ranked, err := l.rankForCache(ctx)
	if err != nil {
		return err
	}
	defer ranked.Close()
	order, err := layout.Rank(ranked, l.featureEnds())
	if err != nil {
		return err
	}
	worth, err := l.worthOf(ctx, ranked, order)
	if err != nil {
		return err
	}
	policy, err := cache.NewStatic(l.budget, l.parts.numNodes, slices.Values(order))
	if err != nil {
		return err
	}
	l.onClose(policy.Close)
	hot := prune.NewFeatures(layout, policy)
	if err := hot.Fill(ctx, order, l.readAtOpening); err != nil {
		return err
	}
	l.counters.filled.Add(layout.Count)
	l.policy, l.hot = policy, hot
	c.FeatureBytes, c.FeatureEnds, c.NumFeatures = layout.RowBytes(), layout.Ends, layout.Count
	c.FeatureWorth = func(rank int64) float32 { return worth[rank] }
	return nil
}

// featureEnds makes the memory for the ends of features, which may differ in width. Those of the unnamed node type do
// not: a saved history tells the two apart.
func (l *Loader) featureEnds() func(most int64) ([]int64, error) {
	if l.parts.types.unnamed() {
		return nil
	}
	return func(most int64) ([]int64, error) {
		block, err := l.budget.Alloc(mem.History, (most+1)*prune.EndBytes)
		if err != nil {
			return nil, err
		}
		l.onClose(block.Free)
		return mem.Slice[int64](block), nil
	}
}

// worthOf is how often an iteration needs each of these rows, in descending order as far as the ranking is one of use.
// Scores that count batches of an epoch say it.
func (l *Loader) worthOf(ctx context.Context, ranked *cache.Vector, order []uint32) ([]float32, error) {
	counted := slices.Contains([]string{"presc", "expected", "oracle"}, l.cacheKind)
	if l.options.History.Policy == history.Performance && !counted {
		expected, err := l.score(ctx, "expected")
		if err != nil {
			return nil, err
		}
		defer expected.Close()
		if l.order != nil {
			expected.Renumber(l.order)
		}
		ranked = expected
	}
	worth, perIteration := make([]float32, len(order)), 1/float32(l.NumBatches())
	for rank, row := range order {
		worth[rank] = ranked.Hotness[row] * perIteration
	}
	for rank := len(worth) - 2; rank >= 0; rank-- {
		worth[rank] = max(worth[rank], worth[rank+1])
	}
	return worth, nil
}
