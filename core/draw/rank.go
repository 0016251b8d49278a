package draw

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
	of := New(o, src)
	m := &of
	if !slices.Contains(Metrics, o.Cache) {
		return fmt.Errorf("%w: metric must be one of %q, got %q", ErrOption, Metrics, o.Cache)
	}
	if err := m.Check(); err != nil {
		return err
	}
	if int64(len(scores)) != m.Parts.NumNodes {
		return fmt.Errorf("%w: room for %d scores, expected one for each of %d nodes",
			ErrOption, len(scores), m.Parts.NumNodes)
	}
	defer m.Close()
	if o.Cache != "presc" {
		return m.scoreAll(ctx, scores)
	}
	m.Options.Seed ^= preSamplingSeed // rank takes it off again
	if err := m.scoreAll(ctx, scores); err != nil {
		return err
	}
	for node, mean := range scores {
		scores[node] = float32(math.Round(float64(mean) * float64(o.PreSCEpochs)))
	}
	return nil
}

// Metrics are the kinds of hotness: caches of these names rank nodes by them.
var Metrics = []string{"degree", "in-degree", "random", "presc", "expected", "oracle"}

// scoreAll opens what a metric needs, the neighbours in memory where they take
// less than half of it, and scores the nodes.
func (m *Sampling) scoreAll(ctx context.Context, scores []float32) error {
	m.Budget = mem.NewBudget(m.Options.Memory)
	types := m.Parts.Schema
	if err := types.OpenIndptr(ctx, m); err != nil {
		return err
	}
	if err := m.OpenSeeds(ctx); err != nil {
		return err
	}
	m.BoundBatch()
	g := m.GraphSizes()
	r := m.SizingRequest(&g)
	m.Split = sizing.Scoring(&r, &g)
	if err := m.ReserveFixed(&g); err != nil {
		return err
	}
	if err := m.OpenEngine(); err != nil {
		return err
	}
	if err := types.OpenTopology(ctx, m); err != nil {
		return err
	}
	if err := m.OpenSampler(ctx); err != nil {
		return err
	}
	every := m.NewCachedTypes(slices.Repeat([]bool{true}, types.NumTypes())) // which has no order of rows: by node
	ranked, err := m.Rank(ctx, m.Options.Cache, &every)
	if err != nil {
		return err
	}
	defer ranked.Close()
	copy(scores, ranked.Hotness)
	return nil
}

// Rank scores the rows of the cached types for a kind of cache. The caller closes the
// scores.
func (m *Sampling) Rank(ctx context.Context, kind string, rows *CachedTypes) (*cache.Vector, error) {
	o := &m.Options
	switch kind {
	case "presc":
		// Epochs of another seed, so that what is counted is not what will run.
		return m.count(ctx, o.Seed^preSamplingSeed, o.PreSCEpochs, rows)
	case "oracle":
		return m.count(ctx, o.Seed, 1, rows)
	case "random":
		return cache.Random(m.Budget, m.Parts.NumNodes, o.HotnessSeed)
	}
	scores, err := m.Score(ctx, kind)
	if err == nil && rows.Order != nil {
		scores.Renumber(rows.Order) // these speak of nodes, the cache of rows
	}
	return scores, err
}

// Score scores the nodes.
func (m *Sampling) Score(ctx context.Context, metric string) (*cache.Vector, error) {
	switch metric {
	case "expected":
		return m.Expected(ctx, m.Options.Hops())
	case "vector":
		v, err := cache.NewVector(m.Budget, m.Parts.NumNodes)
		if err == nil {
			copy(v.Hotness, m.Options.Hotness)
		}
		return v, err
	}
	return m.Parts.Schema.degrees(ctx, m, metric)
}

// preSamplingSeed sets the epochs of PreSC apart from those of training. Arbitrary.
const preSamplingSeed = 0x5ca1ab1e0ddba115

// count samples epochs of a seed, from epoch 0 on, and counts in how many batches
// each row is.
func (m *Sampling) count(ctx context.Context, seed uint64, epochs int, rows *CachedTypes) (*cache.Vector, error) {
	counter, err := cache.NewCounter(m.Budget, m.Parts.NumNodes)
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

func (m *Sampling) countEpoch(ctx context.Context, key sample.Key, counter *cache.Counter, rows *CachedTypes) error {
	order, err := m.NewSeedOrder(ctx, key)
	if err != nil {
		return err
	}
	defer order.Free()
	var next atomic.Int64 // the batch that nobody has taken
	var mu sync.Mutex     // guards counter
	return guard.Each(ctx, cap(m.Workers), func(ctx context.Context, _ int) error {
		worker := <-m.Workers
		defer func() { m.Workers <- worker }()
		var g sample.Subgraph
		var own BatchRows
		var r Request
		for b := next.Add(1) - 1; b < m.NumBatches(); b = next.Add(1) - 1 {
			if err := order.Batch(ctx, b, &r); err != nil {
				return err
			}
			if err := worker.Draw(ctx, order.BatchKey(b), r.Request, &g); err != nil {
				return err
			}
			own.FillGraph(rows, &g)
			mu.Lock()
			counter.Add(own.Rows)
			mu.Unlock()
		}
		return nil
	})
}

// degrees scores the nodes of all types, on one scale: by their edges of all relations that are
// drawn along, to other nodes ("degree") or from them ("in-degree").
func (s *Schema) degrees(ctx context.Context, m *Sampling, metric string) (*cache.Vector, error) {
	return cache.Counted(m.Budget, m.Parts.NumNodes, func(counts []uint32) error {
		for i := range s.Relations {
			r := &s.Relations[i]
			if !r.used {
				continue
			}
			if metric == "in-degree" {
				to := counts[s.First[r.Target]:]
				for v := range s.NumNodes(r.Target) {
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
func (s *Schema) countSources(ctx context.Context, m *Sampling, r *Relation, counts []uint32) error {
	from := counts[s.First[r.Source]:]
	return r.Neighbors.Scan(ctx, m.Budget, func(_ int64, sources []int64) error {
		cache.Count(from, sources)
		return nil
	})
}
