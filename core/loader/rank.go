package loader

import (
	"context"
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
	of := newSampling(o, src)
	m := &of
	if !slices.Contains(metrics, o.Cache) {
		return fmt.Errorf("%w: metric must be one of %q, got %q", ErrOption, metrics, o.Cache)
	}
	if err := m.check(); err != nil {
		return err
	}
	if int64(len(scores)) != m.parts.numNodes {
		return fmt.Errorf("%w: room for %d scores, expected one for each of %d nodes",
			ErrOption, len(scores), m.parts.numNodes)
	}
	defer m.undo()
	if o.Cache != "presc" {
		return m.scoreAll(ctx, scores)
	}
	m.options.Seed ^= preSamplingSeed // rank takes it off again
	if err := m.scoreAll(ctx, scores); err != nil {
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
func (m *sampling) scoreAll(ctx context.Context, scores []float32) error {
	m.budget = mem.NewBudget(m.options.Memory)
	types := m.parts.types
	if err := types.openIndptr(ctx, m); err != nil {
		return err
	}
	if err := m.openSeeds(ctx); err != nil {
		return err
	}
	m.boundBatch()
	g := m.graphSizes()
	r := m.request(&g)
	m.split = sizing.Scoring(&r, &g)
	if err := m.reserveFixed(&g); err != nil {
		return err
	}
	if err := m.openEngine(); err != nil {
		return err
	}
	if err := types.openTopology(ctx, m); err != nil {
		return err
	}
	if err := m.openSampler(ctx); err != nil {
		return err
	}
	every := m.newCachedTypes(slices.Repeat([]bool{true}, types.types())) // which has no order of rows: by node
	ranked, err := m.rank(ctx, m.options.Cache, &every)
	if err != nil {
		return err
	}
	defer ranked.Close()
	copy(scores, ranked.Hotness)
	return nil
}

// rank scores the rows of the cached types for a kind of cache. The caller closes the
// scores.
func (m *sampling) rank(ctx context.Context, kind string, rows *cachedTypes) (*cache.Vector, error) {
	o := &m.options
	switch kind {
	case "presc":
		// Epochs of another seed, so that what is counted is not what will run.
		return m.count(ctx, o.Seed^preSamplingSeed, o.PreSCEpochs, rows)
	case "oracle":
		return m.count(ctx, o.Seed, 1, rows)
	case "random":
		return cache.Random(m.budget, m.parts.numNodes, o.HotnessSeed)
	}
	scores, err := m.score(ctx, kind)
	if err == nil && rows.order != nil {
		scores.Renumber(rows.order) // these speak of nodes, the cache of rows
	}
	return scores, err
}

// rankForCache is rank, with the many ties of PreSC broken by expected visits, and
// the rows that the consumer holds last.
func (l *Loader) rankForCache(ctx context.Context) (*cache.Vector, error) {
	scores, err := l.rank(ctx, l.split.Cache, &l.cachedTypes)
	if err != nil {
		return nil, err
	}
	if l.split.Cache == "presc" && l.options.Walks == nil {
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
func (m *sampling) score(ctx context.Context, metric string) (*cache.Vector, error) {
	switch metric {
	case "expected":
		return m.expected(ctx, m.options.hops())
	case "vector":
		v, err := cache.NewVector(m.budget, m.parts.numNodes)
		if err == nil {
			copy(v.Hotness, m.options.Hotness)
		}
		return v, err
	}
	return m.parts.types.degrees(ctx, m, metric)
}

// preSamplingSeed sets the epochs of PreSC apart from those of training. Arbitrary.
const preSamplingSeed = 0x5ca1ab1e0ddba115

// count samples epochs of a seed, from epoch 0 on, and counts in how many batches
// each row is.
func (m *sampling) count(ctx context.Context, seed uint64, epochs int, rows *cachedTypes) (*cache.Vector, error) {
	counter, err := cache.NewCounter(m.budget, m.parts.numNodes)
	if err != nil {
		return nil, err
	}
	defer counter.Close()
	for epoch := range epochs {
		if err := m.countEpoch(ctx, sample.Key{Seed: seed, Epoch: uint64(epoch)}, counter, rows); err != nil {
			return nil, err
		}
	}
	return counter.Hotness(epochs), nil
}

func (m *sampling) countEpoch(ctx context.Context, key sample.Key, counter *cache.Counter, rows *cachedTypes) error {
	order, err := m.newSeedOrder(ctx, key)
	if err != nil {
		return err
	}
	defer order.free()
	var next atomic.Int64 // the batch that nobody has taken
	var mu sync.Mutex     // guards counter
	return guard.Each(ctx, cap(m.workers), func(ctx context.Context, _ int) error {
		worker := <-m.workers
		defer func() { m.workers <- worker }()
		var g sample.Subgraph
		var own batchRows
		var r request
		for b := next.Add(1) - 1; b < m.NumBatches(); b = next.Add(1) - 1 {
			if err := order.batch(ctx, b, &r); err != nil {
				return err
			}
			if err := worker.Draw(ctx, order.batchKey(b), r.Request, &g); err != nil {
				return err
			}
			own.fillGraph(rows, &g)
			mu.Lock()
			counter.Add(own.rows)
			mu.Unlock()
		}
		return nil
	})
}

// degrees scores the nodes of all types, on one scale: by their edges of all relations that are
// drawn along, to other nodes ("degree") or from them ("in-degree").
func (s *schema) degrees(ctx context.Context, m *sampling, metric string) (*cache.Vector, error) {
	return cache.Counted(m.budget, m.parts.numNodes, func(counts []uint32) error {
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
			if err := s.countSources(ctx, m, r, counts); err != nil {
				return err
			}
		}
		return nil
	})
}

// countSources adds the edges of a relation to the counts of their sources. There is a count for every node.
func (s *schema) countSources(ctx context.Context, m *sampling, r *relation, counts []uint32) error {
	from := counts[s.first[r.source]:]
	return r.Neighbors.Scan(ctx, m.budget, func(_ int64, sources []int64) error {
		cache.Count(from, sources)
		return nil
	})
}

// dropRowless puts the nodes of types that have no rows on disk last.
func (l *Loader) dropRowless(scores *cache.Vector) {
	first := l.parts.types.first
	for t, cached := range l.cachedTypes.listed {
		if !cached {
			clear(scores.Hotness[first[t]:first[t+1]])
		}
	}
}
