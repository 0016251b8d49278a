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
	types := l.parts.types
	if err := types.openIndptr(ctx, l); err != nil {
		return err
	}
	if err := l.openLinks(ctx); err != nil {
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
	if err := types.openTopology(ctx, l); err != nil {
		return err
	}
	if err := l.openSampler(ctx); err != nil {
		return err
	}
	l.seedsRepeat = l.options.Seeds != nil && repeats(l.options.Seeds, l.parts.numNodes)
	l.cachedTypes = slices.Repeat([]bool{true}, l.parts.types.types()) // every node is counted
	ranked, err := l.rank(ctx)                                         // without an order of rows: by node
	if err != nil {
		return err
	}
	defer ranked.Close()
	copy(scores, ranked.Hotness)
	return nil
}

// rank scores the rows on disk as the kind of cache says. The caller closes the
// scores.
func (l *Loader) rank(ctx context.Context) (*cache.Vector, error) {
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
	scores, err := l.score(ctx, l.cacheKind)
	if err == nil && l.order != nil {
		scores.Renumber(l.order) // these speak of nodes, the cache of rows
	}
	return scores, err
}

// rankForCache is rank, with the many ties of PreSC broken by expected visits, and
// the rows that the consumer holds last.
func (l *Loader) rankForCache(ctx context.Context) (*cache.Vector, error) {
	scores, err := l.rank(ctx)
	if err != nil {
		return nil, err
	}
	if l.cacheKind == "presc" && l.options.Walks == nil {
		expected, err := l.score(ctx, "expected")
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
func (l *Loader) score(ctx context.Context, metric string) (*cache.Vector, error) {
	switch metric {
	case "expected":
		return l.expected(ctx, l.options.hops())
	case "vector":
		v, err := cache.NewVector(l.budget, l.parts.numNodes)
		if err == nil {
			copy(v.Hotness, l.options.Hotness)
		}
		return v, err
	}
	return l.parts.types.degrees(ctx, l, metric)
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

// degrees scores the nodes of all types, on one scale: by their edges of all relations that are
// drawn along, to other nodes ("degree") or from them ("in-degree").
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
					to[v] = uint32(min(int64(to[v])+r.Indptr[v+1]-r.Indptr[v], math.MaxUint32))
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
	return r.Neighbors.Scan(ctx, l.budget, func(_ int64, sources []int64) error {
		cache.Count(from, sources)
		return nil
	})
}

// dropRowless puts the nodes of types that have no rows on disk last.
func (l *Loader) dropRowless(scores *cache.Vector) {
	first := l.parts.types.first
	for t, cached := range l.cachedTypes {
		if !cached {
			clear(scores.Hotness[first[t]:first[t+1]])
		}
	}
}
