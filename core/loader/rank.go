package loader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"freshgo/core/cache"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Hotness scores the nodes of a source as Options.Cache says, which must be one of
// the metrics, and writes the scores by node id. It reads no rows. "presc" gives
// the counts themselves, of the epochs of Options.Seed: what a loader's traces of
// these epochs add up to.
//
// Errors: ErrOption, and those of Open.
func Hotness(ctx context.Context, src Source, o Options, scores []float32) error {
	l := &Loader{options: o, parts: src.parts(), cacheKind: o.Cache}
	if !slices.Contains(metrics, o.Cache) {
		return fmt.Errorf("%w: metric must be one of %q, got %q", ErrOption, metrics, o.Cache)
	}
	if err := l.check(); err != nil {
		return err
	}
	if int64(len(scores)) != l.parts.numNodes {
		return fmt.Errorf("%w: room for %d scores, expected one for each of %d nodes",
			ErrOption, len(scores), l.parts.numNodes)
	}
	defer l.undo()
	if o.Cache != "presc" {
		return l.scoreAll(ctx, scores)
	}
	l.options.Seed ^= preSamplingSeed // rank takes it off again
	if err := l.scoreAll(ctx, scores); err != nil {
		return err
	}
	for node, mean := range scores {
		scores[node] = float32(math.Round(float64(mean) * float64(o.PreSCEpochs)))
	}
	return nil
}

// metrics are the kinds of cache that rank nodes.
var metrics = []string{"degree", "in-degree", "random", "presc", "expected", "oracle"}

// scoreAll opens what a metric needs, the neighbours in memory where they take
// less than half of it, and scores the nodes.
func (l *Loader) scoreAll(ctx context.Context, scores []float32) error {
	l.budget = mem.NewBudget(l.options.Memory)
	indptr, err := l.openIndptr(ctx)
	if err != nil {
		return err
	}
	l.indptr = indptr
	if err := l.openLinks(ctx, indptr); err != nil {
		return err
	}
	l.boundBatch()
	g := l.graphSizes()
	r := l.request(&g)
	l.split = sizing.Scoring(&r, &g)
	if err := l.reserveFixed(&g); err != nil {
		return err
	}
	if err := l.openEngine(); err != nil {
		return err
	}
	neighbors, err := l.openTopology(ctx)
	if err != nil {
		return err
	}
	if err := l.openSampler(ctx, indptr, neighbors); err != nil {
		return err
	}
	l.seedsRepeat = l.options.Seeds != nil && repeats(l.options.Seeds, l.parts.numNodes)
	l.cachedTypes = slices.Repeat([]bool{true}, l.parts.types.types()) // every node is counted
	ranked, err := l.rank(ctx, neighbors)                              // without an order of rows: by node
	if err != nil {
		return err
	}
	defer ranked.Close()
	copy(scores, ranked.Hotness)
	return nil
}

// rank scores the rows on disk as the kind of cache says. The caller closes the
// scores.
func (l *Loader) rank(ctx context.Context, neighbors *idArray) (*cache.Vector, error) {
	o := &l.options
	switch l.cacheKind {
	case "presc":
		// Epochs of another seed, so that what is counted is not what will run.
		return l.count(ctx, o.Seed^preSamplingSeed, o.PreSCEpochs)
	case "oracle":
		return l.count(ctx, o.Seed, 1)
	case "random":
		return cache.Random(l.budget, l.parts.numNodes, o.HotnessSeed)
	}
	scores, err := l.score(ctx, l.cacheKind, neighbors)
	if err == nil && l.order != nil {
		scores.Renumber(l.order) // these speak of nodes, the cache of rows
	}
	return scores, err
}

// rankForCache is rank, with the many ties of PreSC broken by expected visits, and
// the rows that the consumer holds last.
func (l *Loader) rankForCache(ctx context.Context, neighbors *idArray) (*cache.Vector, error) {
	scores, err := l.rank(ctx, neighbors)
	if err != nil {
		return nil, err
	}
	if l.cacheKind == "presc" && l.options.Walks == nil {
		expected, err := l.score(ctx, "expected", neighbors)
		if err != nil {
			scores.Close()
			return nil, err
		}
		defer expected.Close()
		if l.order != nil {
			expected.Renumber(l.order)
		}
		scores.BreakTies(expected.Hotness, 1/float32(l.options.PreSCEpochs))
	}
	l.dropHeld(scores)
	l.dropRowless(scores)
	return scores, nil
}

// score scores the nodes.
func (l *Loader) score(ctx context.Context, metric string, neighbors *idArray) (*cache.Vector, error) {
	o := &l.options
	if metric == "expected" {
		return l.expected(ctx, neighbors, o.hops())
	}
	if types := l.parts.types; !types.unnamed() && metric != "vector" {
		return types.degrees(ctx, l, metric)
	}
	edges := &adjacency{indptr: l.indptr, ids: neighbors, budget: l.budget}
	switch metric {
	case "degree":
		return cache.OutDegree(ctx, l.budget, edges)
	case "in-degree":
		return cache.InDegree(l.budget, edges)
	}
	v, err := cache.NewVector(l.budget, l.parts.numNodes)
	if err == nil {
		copy(v.Hotness, o.Hotness)
	}
	return v, err
}

// preSamplingSeed sets the epochs of PreSC apart from those of training. Arbitrary.
const preSamplingSeed = 0x5ca1ab1e0ddba115

// count samples epochs of a seed, from epoch 0 on, and counts in how many batches
// each row is.
func (l *Loader) count(ctx context.Context, seed uint64, epochs int) (*cache.Vector, error) {
	counter, err := cache.NewCounter(l.budget, l.parts.numNodes)
	if err != nil {
		return nil, err
	}
	defer counter.Close()
	for epoch := range epochs {
		if err := l.countEpoch(ctx, sample.Key{Seed: seed, Epoch: uint64(epoch)}, counter); err != nil {
			return nil, err
		}
	}
	if err := l.usable(); err != nil { // a panic of those that sampled
		return nil, err
	}
	return counter.Hotness(epochs), nil
}

func (l *Loader) countEpoch(ctx context.Context, key sample.Key, counter *cache.Counter) error {
	order, err := l.newSeedOrder(ctx, key)
	if err != nil {
		return err
	}
	defer order.free()
	var next atomic.Int64 // the batch that nobody has taken
	var done sync.WaitGroup
	var mu sync.Mutex // guards counter
	errs := make([]error, cap(l.workers))
	for i := range errs {
		done.Add(1)
		guard.Go(func() {
			defer done.Done()
			worker := <-l.workers
			defer func() { l.workers <- worker }()
			var g sample.Subgraph
			var own roster
			var r request
			for b := next.Add(1) - 1; b < l.NumBatches(); b = next.Add(1) - 1 {
				if errs[i] = order.batch(ctx, b, &r); errs[i] != nil {
					return
				}
				if errs[i] = worker.Draw(ctx, order.batchKey(b), r.Request, &g); errs[i] != nil {
					return
				}
				own.fillGraph(l, &g)
				mu.Lock()
				counter.Add(own.rows)
				mu.Unlock()
			}
		}, l.fail)
	}
	done.Wait()
	return errors.Join(errs...)
}
