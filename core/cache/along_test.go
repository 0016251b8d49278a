package cache

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// heterogeneous is relations between types, beside all their edges with nodes of the whole graph.
type heterogeneous struct {
	first     []int64
	relations []Relation
	graphs    []*graph
	reversal  []int // of each relation, or -1
}

func newHeterogeneous(rng *rand.Rand) *heterogeneous {
	g := &heterogeneous{first: []int64{0}}
	types := 1 + rng.IntN(3)
	for range types {
		g.first = append(g.first, g.first[len(g.first)-1]+rng.Int64N(15))
	}
	count := func(t int) int64 { return g.first[t+1] - g.first[t] }
	hops := rng.IntN(4)
	add := func(source, target int, edges [][2]int64, reversal int) {
		made := newGraph(int(count(target)), edges, 1+rng.IntN(9))
		r := Relation{Edges: made, Source: g.first[source], Target: g.first[target], NumSources: count(source)}
		for range hops {
			r.Fanouts = append(r.Fanouts, []int64{-1, 0, 1, 2, 3}[rng.IntN(5)])
		}
		if rng.IntN(3) == 0 {
			w := make(weightList, len(edges))
			for i := range w {
				w[i] = float64(rng.IntN(4))
			}
			r.Weights, reversal = w, -1
		}
		if reversal >= 0 && g.relations[reversal].Weights != nil {
			reversal = -1
		}
		if reversal >= 0 {
			g.reversal[reversal] = len(g.relations)
		}
		g.relations, g.graphs, g.reversal = append(g.relations, r), append(g.graphs, made), append(g.reversal, reversal)
	}
	for range 1 + rng.IntN(3) {
		source, target := rng.IntN(types), rng.IntN(types)
		var edges, back [][2]int64
		if count(source) > 0 && count(target) > 0 {
			for range rng.IntN(40) {
				u, v := rng.Int64N(count(source)), rng.Int64N(count(target))
				edges, back = append(edges, [2]int64{u, v}), append(back, [2]int64{v, u})
			}
		}
		add(source, target, edges, -1)
		if source != target && len(edges) > 0 && rng.IntN(2) == 0 {
			add(target, source, back, len(g.relations)-1)
		}
	}
	return g
}

// propagatedAlong is the formula, relation by relation and node by node.
func (g *heterogeneous) propagatedAlong(t *testing.T, s Sampling) []float64 {
	n := g.first[len(g.first)-1]
	numSeeds := float64(n)
	times := make([]float64, n)
	if s.Seeds != nil {
		numSeeds = float64(len(s.Seeds))
	}
	for v := range times {
		if s.Seeds == nil {
			times[v] = 1
		}
	}
	for _, v := range s.Seeds {
		times[v]++
	}
	batches := math.Ceil(numSeeds / float64(s.BatchSize))
	reached, latest, before := make([]float64, n), make([]float64, n), make([]float64, n)
	for v := range reached {
		reached[v] = 1 - math.Pow(1-1/batches, times[v])
		latest[v] = reached[v]
	}
	// p is with what an in-edge of a target is drawn.
	p := func(i, hop int, v int64, at int) float64 {
		made, r := g.graphs[i], &g.relations[i]
		k, from, to := r.Fanouts[hop], made.indptr[v], made.indptr[v+1]
		if r.Weights != nil {
			if k == 0 {
				return 0
			}
			return chancesOf(t, r.Weights.(weightList)[from:to], k, s.Replace)[at]
		}
		deg := float64(to - from)
		switch {
		case k < 0:
			return 1
		case s.Replace:
			return 1 - math.Pow(1-1/deg, float64(k))
		}
		return math.Min(1, float64(k)/deg)
	}
	for hop := range len(g.relations[0].Fanouts) {
		missed := make([]float64, n)
		for v := range missed {
			missed[v] = 1
		}
		for i, r := range g.relations {
			for v := range g.graphs[i].NumNodes() {
				for at, u := range g.graphs[i].sourcesOf(v) {
					q := latest[r.Target+v]
					if j := g.reversal[i]; j >= 0 && hop > 0 {
						q = max(0, q-before[r.Source+u]*p(j, hop-1, u, 0))
					}
					missed[r.Source+u] *= 1 - q*p(i, hop, v, at)
				}
			}
		}
		copy(before, latest)
		for v := range missed {
			latest[v] = (1 - reached[v]) * (1 - missed[v])
			reached[v] += latest[v]
		}
	}
	for v := range reached {
		reached[v] *= batches
	}
	return reached
}

func TestExpectedAlongIsTheFormula(t *testing.T) {
	reversed, weighted := 0, 0
	for seed := range uint64(300) {
		rng := explore.Rand(t, seed, 5)
		g := newHeterogeneous(rng)
		n := g.first[len(g.first)-1]
		s := Sampling{BatchSize: 1 + rng.Int64N(8), Replace: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 && n > 0 {
			for range 1 + rng.Int64N(2*n) {
				s.Seeds = append(s.Seeds, rng.Int64N(n))
			}
		}
		g.findReversals()
		for i := range g.relations {
			if g.relations[i].Weights != nil {
				weighted++
			} else if g.reversal[i] >= 0 {
				reversed++
			}
		}
		budget := mem.NewBudget(0)
		v, err := Expected(context.Background(), budget, n, g.relations, s)
		require.NoError(t, err)
		for node, want := range g.propagatedAlong(t, s) {
			require.InEpsilon(t, 1+want, 1+float64(v.Hotness[node]), 1e-5, "seed %d, node %d", seed, node)
		}
		v.Close()
		require.Zero(t, budget.Used())
	}
	require.Greater(t, reversed, 50)
	require.Greater(t, weighted, 50)
}

// findReversals corrects what chance has made of small relations: each may be its own reversal, or that of another one.
func (g *heterogeneous) findReversals() {
	for i, r := range g.relations {
		g.reversal[i] = -1
		for j, other := range g.relations {
			swapped := r.Source == other.Target && r.Target == other.Source
			better := g.reversal[i] < 0 || i == j // its own first, else the first of them
			if swapped && better && r.Weights == nil && other.Weights == nil && mirrors(g.graphs[i], g.graphs[j]) {
				g.reversal[i] = j
			}
		}
	}
}

// mirrors reports whether one graph has the edges of the other, as often, in the other direction.
func mirrors(a, b *graph) bool {
	there, back := map[[2]int64]int{}, map[[2]int64]int{}
	for v := range a.NumNodes() {
		for _, u := range a.sourcesOf(v) {
			there[[2]int64{u, v}]++
		}
	}
	for v := range b.NumNodes() {
		for _, u := range b.sourcesOf(v) {
			back[[2]int64{v, u}]++
		}
	}
	return maps.Equal(there, back)
}

// TestWeightedFloors is TestFloors with draws in proportion to weights.
func TestWeightedFloors(t *testing.T) {
	rng := explore.Rand(t, 2, 9)
	for name, g := range map[string]*graph{"rmat": rmat(rng, 14, 250_000),
		"communities": communities(rng, 20_000, 200_000, 1000)} {
		n := g.NumNodes()
		weights := make(weightList, len(g.sources))
		for v := range n {
			for at := g.indptr[v]; at < g.indptr[v+1]; at++ { // by the ends alone: where edges go both ways, the same for both
				a, b := min(v, g.sources[at]), max(v, g.sources[at])
				weights[at] = math.Exp(2 * (float64(scramble(scramble(uint64(a))+uint64(b))>>11)/(1<<52) - 1))
				if a%7 == 0 {
					weights[at] *= 20
				}
			}
		}
		s := drawn{BatchSize: 16, Fanouts: []int64{10, 10}, Weights: weights}
		for _, node := range rng.Perm(int(n))[:n/4] {
			s.Seeds = append(s.Seeds, int64(node))
		}
		judged := epochOf(t, g, s, 0)
		optimal := counted(t, n, judged)
		expected := expectedOf(t, g, s)
		even := s
		even.Weights = nil
		uniform := expectedOf(t, g, even)
		for _, percent := range []int64{5, 10, 20} {
			k := n * percent / 100
			best := hitRate(t, optimal, k, judged)
			calculated, ignoring := hitRate(t, expected, k, judged)/best, hitRate(t, uniform, k, judged)/best
			t.Logf("%s at %d %%, optimal static %.3f: expected %.4f of it, without weights %.4f",
				name, percent, best, calculated, ignoring)
			require.GreaterOrEqual(t, calculated, 0.97, "%s at %d %%", name, percent)
			require.Greater(t, calculated, ignoring, "%s at %d %%", name, percent)
		}
	}
}
