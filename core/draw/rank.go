package draw

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Hotness scores the nodes of a source as Options.Cache says, which must be one of
// the metrics, and writes the scores by node id. It reads no rows. PreSC gives
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
	if !hotnessOf(o.Cache).presampled {
		return scoreAll(ctx, m, scores)
	}
	m.Options.Seed ^= preSamplingSeed // rank takes it off again
	if err := scoreAll(ctx, m, scores); err != nil {
		return err
	}
	for node, mean := range scores {
		scores[node] = float32(math.Round(float64(mean) * float64(o.PreSCEpochs)))
	}
	return nil
}

// scoreAll opens what a metric needs, the neighbours in memory where they take
// less than half of it, and scores the nodes.
func scoreAll(ctx context.Context, m *Sampling, scores []float32) error {
	m.Budget = mem.NewBudget(m.Options.Memory)
	types := m.Parts.Schema
	if err := NewTopology(m).OpenIndptr(ctx); err != nil {
		return err
	}
	if err := m.OpenSeeds(ctx); err != nil {
		return err
	}
	m.BoundBatch()
	g := SizesOf(m)
	r := RequestOf(m, &g)
	m.Split = sizing.Scoring(&r, &g)
	if err := m.ReserveFixed(&g); err != nil {
		return err
	}
	if err := m.OpenEngine(); err != nil {
		return err
	}
	if err := NewTopology(m).OpenLists(ctx); err != nil {
		return err
	}
	if err := m.OpenSampler(ctx); err != nil {
		return err
	}
	every := m.NewCachedTypes(slices.Repeat([]bool{true}, types.NumTypes())) // which has no order of rows: by node
	ranked, err := Rank(ctx, m, m.Options.Cache, &every)
	if err != nil {
		return err
	}
	defer ranked.Close()
	copy(scores, ranked.Hotness)
	return nil
}

// Rank scores the rows of the cached types for a kind of cache. The caller closes the scores.
func Rank(ctx context.Context, m *Sampling, kind string, rows *CachedTypes) (*cache.Vector, error) {
	of := hotnessOf(kind)
	scores, err := of.score(ctx, m, rows)
	if err == nil && of.byNode && rows.Order != nil {
		scores.Renumber(rows.Order)
	}
	return scores, err
}

// RankForCache is Rank, where expected visits break the many ties of sampled counts.
func RankForCache(ctx context.Context, m *Sampling, kind string, rows *CachedTypes) (*cache.Vector, error) {
	scores, err := Rank(ctx, m, kind, rows)
	if err != nil || !hotnessOf(kind).presampled || !m.Gives(sample.CanExpected) {
		return scores, err
	}
	expected, err := Rank(ctx, m, "expected", rows)
	if err != nil {
		scores.Close()
		return nil, err
	}
	defer expected.Close()
	scores.BreakTies(expected.Hotness, 1/float32(m.Options.PreSCEpochs))
	return scores, nil
}

// countEpochs samples epochs of a seed, from epoch 0 on, and counts in how many batches
// each row is.
func countEpochs(ctx context.Context, m *Sampling, seed uint64, epochs int, rows *CachedTypes) (*cache.Vector, error) {
	counter, err := cache.NewCounter(m.Budget, m.Parts.NumNodes)
	if err != nil {
		return nil, err
	}
	defer counter.Close()
	for epoch := range epochs {
		key := sample.Key{Seed: seed, Epoch: uint64(epoch)}
		if err := countEpoch(ctx, m, key, m.NumBatches(), 0, counter, rows); err != nil {
			return nil, err
		}
	}
	return counter.Hotness(epochs), nil
}

const (
	// enoughVisits is the number of rows, for each node of the graph, after which countEnough counts no more. A cache
	// on coauthor-physics has 0.94 of the hits of the best one for ten epochs with 4, and 0.98 with 12; on ogbl-ddi 0.96
	// with 12 (bench/papers/fgnn.py).
	enoughVisits = 24

	// mostEpochs bounds the epochs that it samples, mostWeighted those where edges are drawn by weights. Such a draw
	// takes up to 6 times as long as a uniform one, and returns to fewer nodes, so that one epoch ranks them well. On
	// twelve graphs these take at most a tenth of the processor time of an epoch of SAGE of 64 columns, and have 0.97
	// of the hits (docs/decisions/cache.md). With more nodes an epoch grows as its ranking does, with wider rows faster.
	mostEpochs, mostWeighted = 2, 1

	// diskShare, a divisor, bounds the batches of an epoch where neighbour lists are read from disk. Arbitrary.
	diskShare = 2

	// probed is the number of batches that tell how many rows a batch has. Arbitrary.
	probed = 8
)

// countEnough counts batches of the first epochs of a seed, as many as rank the rows well: whole epochs, or a part of
// the first one, spread over it.
func countEnough(ctx context.Context, m *Sampling, seed uint64, rows *CachedTypes) (*cache.Vector, error) {
	counter, err := cache.NewCounter(m.Budget, m.Parts.NumNodes)
	if err != nil {
		return nil, err
	}
	defer counter.Close()
	all := m.NumBatches()
	some := min(probed, all)
	if err := countEpoch(ctx, m, sample.Key{Seed: seed}, some, 0, counter, rows); err != nil {
		return nil, err
	}
	visits, counted := int64(0), some
	for _, n := range counter.Counts() {
		visits += int64(n)
	}
	batches := enoughVisits * m.Parts.NumNodes * some / max(1, visits)
	most := mostEpochs * all
	switch {
	case !m.Split.Neighbors:
		most = all / diskShare
	case m.Options.Weighted():
		most = mostWeighted * all
	}
	batches = max(some, min(batches, most))
	if batches < all { // the batches that are counted already are among them
		batches -= batches % some
	}
	for epoch := range max(1, batches/max(1, all)) {
		key := sample.Key{Seed: seed, Epoch: uint64(epoch)}
		if err := countEpoch(ctx, m, key, min(batches, all), counted, counter, rows); err != nil {
			return nil, err
		}
		counted = 0
	}
	return counter.Hotness(1), nil
}

// countEpoch counts some of the batches of an epoch, at equal distances, but for the number that are counted already:
// those were at equal distances, too.
func countEpoch(
	ctx context.Context, m *Sampling, key sample.Key, some, counted int64, counter *cache.Counter, rows *CachedTypes,
) error {
	order, err := m.NewSeedOrder(ctx, key)
	if err != nil {
		return err
	}
	defer order.Free()
	group := int64(1)
	if mayShare(m, cap(m.Workers)) {
		group = measuredBatches
	}
	batches := guard.NewPieces(some, group)
	var mu sync.Mutex // guards counter
	return guard.Each(ctx, cap(m.Workers), func(ctx context.Context, _ int) error {
		worker := <-m.Workers
		defer func() { m.Workers <- worker }()
		var lister RowLister
		var numbers []int64
		for first, end := batches.Take(); first < end; first, end = batches.Take() {
			numbers = numbers[:0]
			for i := first; i < end; i++ {
				b := i * m.NumBatches() / some
				if before := (b*counted + m.NumBatches() - 1) / m.NumBatches(); before < counted &&
					before*m.NumBatches()/counted == b {
					continue
				}
				numbers = append(numbers, b)
			}
			err := lister.EachRows(ctx, order, numbers, worker, rows, func(needed []uint32) error {
				mu.Lock()
				defer mu.Unlock()
				counter.Add(needed)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// degrees scores the nodes of all types, on one scale, by their edges to other nodes of all relations that are drawn
// along.
func degrees(ctx context.Context, m *Sampling, _ *CachedTypes) (*cache.Vector, error) {
	return counted(m, func(r *Relation, counts []uint32) error { return countSources(ctx, m, r, &r.Neighbors, 1, counts) })
}

// inDegrees does the same by their edges from other nodes.
func inDegrees(_ context.Context, m *Sampling, _ *CachedTypes) (*cache.Vector, error) {
	types := m.Parts.Schema
	return counted(m, func(r *Relation, counts []uint32) error {
		to := counts[types.First[r.Target]:]
		for v := range types.NumNodes(r.Target) {
			to[v] = uint32(min(int64(to[v])+r.Indptr.Degree(v), math.MaxUint32))
		}
		return nil
	})
}

// counted scores the nodes by what count adds to their counts for each relation that is drawn along.
func counted(m *Sampling, count func(r *Relation, counts []uint32) error) (*cache.Vector, error) {
	return cache.Counted(m.Budget, m.Parts.NumNodes, func(counts []uint32) error {
		for i := range m.Parts.Schema.Relations {
			if r := &m.Parts.Schema.Relations[i]; r.used {
				if err := count(r, counts); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// countSources adds the edges of a relation, or a share of them as by graph.IDs.ScanSome, to the counts of their
// sources. There is a count for every node.
func countSources(
	ctx context.Context, m *Sampling, r *Relation, neighbors *graph.IDs, every int64, counts []uint32,
) error {
	s := m.Parts.Schema
	from := counts[s.First[r.Source]:]
	return neighbors.ScanSome(ctx, m.Budget, every, func(_ int64, sources []int64) error {
		cache.Count(from, sources)
		return nil
	})
}
