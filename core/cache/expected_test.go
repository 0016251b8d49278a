package cache

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

// epochOf samples an epoch as a loader with shuffling does.
func epochOf(t *testing.T, g *graph, s drawn, epoch uint64) (batches [][]uint32) {
	config := sample.Config{Fanouts: [][]int64{s.Fanouts}, Replace: s.Replace}
	if w, ok := s.Weights.(weightList); ok {
		sums := make([]float64, sample.SumsLen(int64(len(w))))
		positive := sample.Sum(offsets.Of(g.indptr), []float64(w), sums)
		config.Weights = []*sample.Weights{{Wide: w, Sums: sums, Positive: positive}}
	}
	sampler, err := sample.New(sample.Graph{
		NumNodes: []int64{g.NumNodes()}, Relations: []sample.Relation{{Indptr: offsets.Of(g.indptr), Indices64: g.sources}},
	}, config)
	require.NoError(t, err)
	worker, err := sampler.NewWorker(mem.NewBudget(0), true, 1)
	require.NoError(t, err)
	defer worker.Close()
	seeds := slices.Clone(s.Seeds)
	require.NoError(t, sample.Shuffle(context.Background(), seeds, 17, epoch))
	var out sample.Subgraph
	for batch := range slices.Chunk(seeds, int(s.BatchSize)) {
		key := sample.Key{Seed: 17, Epoch: epoch, Batch: uint64(len(batches))}
		require.NoError(t, worker.Sample(context.Background(), key, batch, &out))
		seen := map[int64]bool{}
		var rows []uint32
		for _, node := range out.Nodes {
			if !seen[node] {
				seen[node] = true
				rows = append(rows, uint32(node))
			}
		}
		batches = append(batches, rows)
	}
	return batches
}

func expectedOf(t *testing.T, g *graph, s drawn) Hotness {
	v, err := expected(context.Background(), mem.NewBudget(0), g, s)
	require.NoError(t, err)
	defer v.Close()
	return slices.Clone(v.Hotness)
}

// propagated is the formula, node by node and without logarithms.
func propagated(g *graph, s drawn, symmetric bool) []float64 {
	n := g.NumNodes()
	numSeeds := len(s.Seeds)
	reached := make([]float64, n)
	if s.Seeds == nil {
		numSeeds = int(n)
	}
	batches := math.Ceil(float64(numSeeds) / float64(s.BatchSize))
	for v := range n {
		times := 1
		if s.Seeds != nil {
			times = 0
			for _, seed := range s.Seeds {
				if seed == v {
					times++
				}
			}
		}
		reached[v] = 1 - math.Pow(1-1/batches, float64(times))
	}
	latest := slices.Clone(reached)
	draws := func(v, k int64) float64 {
		deg := float64(len(g.sourcesOf(v)))
		switch {
		case k == -1:
			return 1
		case deg == 0:
			return 0
		case s.Replace:
			return 1 - math.Pow(1-1/deg, float64(k))
		}
		return math.Min(1, float64(k)/deg)
	}
	drew := make([]float64, n)
	for _, k := range s.Fanouts {
		missed, next := make([]float64, n), make([]float64, n)
		for v := range missed {
			missed[v] = 1
		}
		for v := range n {
			for _, u := range g.sourcesOf(v) {
				missed[u] *= 1 - max(0, latest[v]-drew[u])*draws(v, k)
			}
			if symmetric {
				next[v] = latest[v] * draws(v, k)
			}
		}
		drew = next
		for v := range n {
			latest[v] = (1 - reached[v]) * (1 - missed[v])
			reached[v] += latest[v]
		}
	}
	for v := range reached {
		reached[v] *= batches
	}
	return reached
}

func TestExpectedIsTheFormula(t *testing.T) {
	for seed := range uint64(80) {
		rng := explore.Rand(t, seed, 3)
		n := 1 + rng.IntN(60)
		edges := make([][2]int64, rng.IntN(6*n))
		for i := range edges { // parallel edges and loops among them
			edges[i] = [2]int64{rng.Int64N(int64(n)), rng.Int64N(int64(n))}
		}
		reversed := make([][2]int64, len(edges))
		for i, e := range edges {
			reversed[i] = [2]int64{e[1], e[0]}
		}
		if seed%2 == 0 {
			edges = append(edges, reversed...)
			reversed = slices.Clone(edges)
		}
		byEnds := func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) }
		slices.SortFunc(reversed, byEnds)
		symmetric := slices.Equal(slices.SortedFunc(slices.Values(edges), byEnds), reversed)
		g := newGraph(n, edges, 1+rng.IntN(9))
		s := drawn{BatchSize: 1 + rng.Int64N(8), Replace: rng.IntN(2) == 0}
		for range rng.IntN(4) {
			s.Fanouts = append(s.Fanouts, []int64{-1, 1, 2, 3, 10}[rng.IntN(5)])
		}
		if rng.IntN(4) > 0 {
			s.Seeds = make([]int64, rng.IntN(2*n)) // some repeated
			for i := range s.Seeds {
				s.Seeds[i] = rng.Int64N(int64(n))
			}
		}
		got := expectedOf(t, g, s)
		for v, want := range propagated(g, s, symmetric) {
			require.InEpsilon(t, 1+want, 1+float64(got[v]), 1e-5, "seed %d, node %d", seed, v)
		}
	}
}

// TestExpectedIsExactForOneHop: with one batch and one hop nothing is
// approximated, so the sampler itself must agree, within five deviations.
func TestExpectedIsExactForOneHop(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 3))
	edges := make([][2]int64, 0, 400)
	for v := range int64(40) {
		for u := range int64(40) {
			if rng.IntN(4) == 0 {
				edges = append(edges, [2]int64{u, v})
			}
		}
	}
	g := newGraph(40, edges, 7)
	const epochs = 3000
	for _, s := range []drawn{
		{Fanouts: []int64{3}}, {Fanouts: []int64{3}, Replace: true}, {Fanouts: []int64{-1}}, {Fanouts: []int64{1}},
	} {
		s.Seeds, s.BatchSize = []int64{0, 5, 6, 7, 20, 39}, 6
		counts := make([]float64, 40)
		for epoch := range uint64(epochs) {
			for _, node := range epochOf(t, g, s, epoch)[0] {
				counts[node]++
			}
		}
		for v, p := range expectedOf(t, g, s) {
			deviation := math.Sqrt(epochs * float64(p) * (1 - float64(p)))
			require.InDelta(t, epochs*float64(p), counts[v], 5*deviation+0.01, "%+v, node %d", s, v)
		}
	}
}

// hitRate of a static cache of the k hottest rows.
func hitRate(t *testing.T, h Hotness, k int64, batches [][]uint32) float64 {
	policy, err := NewStatic(mem.NewBudget(0), int64(len(h)), h.Top(k))
	require.NoError(t, err)
	defer policy.Close()
	var step Step
	hits, accesses := 0, 0
	for _, rows := range batches {
		policy.Step(rows, &step)
		for _, slot := range step.Slots {
			if slot != Miss {
				hits++
			}
		}
		accesses += len(rows)
	}
	return float64(hits) / float64(accesses)
}

func counted(t *testing.T, numRows int64, epochs ...[][]uint32) Hotness {
	c, err := NewCounter(mem.NewBudget(0), numRows)
	require.NoError(t, err)
	for _, batches := range epochs {
		for _, rows := range batches {
			c.Add(rows)
		}
	}
	v := c.Hotness(len(epochs))
	defer v.Close()
	return slices.Clone(v.Hotness)
}

// TestFloors: how much of what the optimal static cache of an epoch hits is hit
// by a cache that was filled before the epoch was known.
func TestFloors(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, c := range []struct {
		name   string
		graph  *graph
		excess float64 // by how much the sum may be above the truth
	}{
		{"rmat", rmat(rng, 15, 500_000), 0.015},
		{"communities", communities(rng, 30_000, 350_000, 1000), 0.06},
	} {
		name, g := c.name, c.graph
		n := g.NumNodes()
		s := drawn{BatchSize: 16, Fanouts: []int64{10, 10}}
		for _, node := range rng.Perm(int(n))[:n/4] {
			s.Seeds = append(s.Seeds, int64(node))
		}
		judged := epochOf(t, g, s, 0)
		optimal := counted(t, n, judged)
		presc := counted(t, n, epochOf(t, g, s, 1))
		expected := expectedOf(t, g, s)

		var said, happened float64
		for v := range expected {
			said += float64(expected[v])
			happened += float64(optimal[v])
		}
		require.Greater(t, said, happened*0.999, "%s: independence reaches more", name)
		require.Less(t, said, happened*(1+c.excess), name)
		for _, percent := range []int64{5, 10, 20} {
			k := n * percent / 100
			best := hitRate(t, optimal, k, judged)
			where := fmt.Sprintf("%s at %d %%, optimal static %.3f", name, percent, best)
			sampled, calculated := hitRate(t, presc, k, judged)/best, hitRate(t, expected, k, judged)/best
			t.Logf("%s: PreSC#1 %.4f of it, expected %.4f", where, sampled, calculated)
			require.GreaterOrEqual(t, sampled, 0.95, where)
			require.GreaterOrEqual(t, calculated, 0.98, where)
			require.LessOrEqual(t, max(sampled, calculated), 1.0, where)
		}
	}
}

// TestDraws: the only in-edge of a node is not drawn where none is, with replacement too.
func TestDraws(t *testing.T) {
	for _, c := range []struct {
		degree, fanout int64
		replace        bool
		want           float64
	}{{1, 0, true, 0}, {1, 0, false, 0}, {4, 0, true, 0}, {0, 3, true, 0}, {1, 3, true, 1}, {4, 2, true, 7. / 16},
		{4, 2, false, 0.5}, {2, 5, false, 1}, {4, -1, true, 1}} {
		require.InDelta(t, c.want, draws(c.degree, c.fanout, c.replace), 1e-12, "%+v", c)
	}
}
