package draw

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/sample"
)

// hotness is a way to score rows: a fixed cache has the rows with the highest scores.
type hotness struct {
	name       string
	score      func(ctx context.Context, m *Sampling, rows *CachedTypes) (*cache.Vector, error)
	byNode     bool                       // scores are by node, and not by row
	presampled bool                       // means of counts over Options.PreSCEpochs, with many ties
	needs      sample.Capability          // of the sampler
	bytes      func(numNodes int64) int64 // memory of expected visits for a while, beyond the address table; nil: none
	check      func(o *Options, numNodes int64) error
}

// hotnesses has a row for each hotness.
var hotnesses = []hotness{
	{name: "degree", score: degrees, byNode: true},
	{name: "in-degree", score: inDegrees, byNode: true},
	{name: "random", score: func(_ context.Context, m *Sampling, _ *CachedTypes) (*cache.Vector, error) {
		return cache.Random(m.Budget, m.Parts.NumNodes, m.Options.HotnessSeed)
	}},
	// With another seed, so that the counted epochs differ from the training epochs (FGNN, section 6.3).
	{name: "presc", score: func(ctx context.Context, m *Sampling, rows *CachedTypes) (*cache.Vector, error) {
		o := &m.Options
		return countEpochs(ctx, m, o.Seed^preSamplingSeed, o.PreSCEpochs, rows)
	}, presampled: true, bytes: cache.ExpectedBytes, check: func(o *Options, _ int64) error {
		if o.PreSCEpochs < 1 {
			return fmt.Errorf("%w: presc must sample at least 1 epoch, got %d", ErrOption, o.PreSCEpochs)
		}
		return nil
	}},
	{name: "expected", score: func(ctx context.Context, m *Sampling, _ *CachedTypes) (*cache.Vector, error) {
		return ExpectedVisits(ctx, m, m.Options.Hops())
	}, byNode: true, needs: sample.CanExpected, bytes: func(numNodes int64) int64 {
		return cache.ExpectedBytes(numNodes) - 4*numNodes
	}},
	{name: "oracle", score: func(ctx context.Context, m *Sampling, rows *CachedTypes) (*cache.Vector, error) {
		o := &m.Options
		if o.PreSCEpochs == Auto || cache.KindOf(o.Cache) == cache.Chosen {
			return countEnough(ctx, m, o.Seed, rows)
		}
		return countEpochs(ctx, m, o.Seed, 1, rows)
	}},
	{name: cache.Given, score: func(_ context.Context, m *Sampling, _ *CachedTypes) (*cache.Vector, error) {
		v, err := cache.NewVector(m.Budget, m.Parts.NumNodes)
		if err == nil {
			copy(v.Hotness, m.Options.Hotness)
		}
		return v, err
	}, byNode: true, check: func(o *Options, numNodes int64) error { return cache.Check(o.Hotness, numNodes) }},
}

// preSamplingSeed separates the epochs of PreSC from the training epochs. Arbitrary.
const preSamplingSeed = 0x5ca1ab1e0ddba115

// Metrics lists the kinds of hotness that are computed: caches with these names rank nodes by them.
var Metrics = metrics()

func metrics() (names []string) {
	for _, h := range hotnesses {
		if h.name != cache.Given {
			names = append(names, h.name)
		}
	}
	return names
}

// hotnessOf returns the hotness of a kind of cache. Kinds that rank nothing have one without a name.
func hotnessOf(kind string) hotness {
	at := slices.IndexFunc(hotnesses, func(h hotness) bool { return h.name == kind })
	if at < 0 {
		return hotness{}
	}
	return hotnesses[at]
}

// RankBytes returns the memory that RankForCache takes for a while, beyond the address table.
func RankBytes(m *Sampling, kind string) int64 {
	of := hotnessOf(kind)
	if of.bytes == nil || !m.Gives(sample.CanExpected) {
		return 0
	}
	return of.bytes(m.Parts.NumNodes)
}
