package sample

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// someLinks is edges of the graph, some of them into seeds, and pairs that are none.
func (g *testGraph) someLinks(seeds []int64, seed uint64) (links []Link) {
	rng := newReferenceRNG(seed, 3)
	for _, v := range seeds {
		list := g.wide[g.indptr[v]:g.indptr[v+1]]
		switch {
		case rng.below(3) == 0:
		case rng.below(9) == 0:
			for _, u := range list {
				links = append(links, Link{u, v})
			}
		default:
			for range 1 + rng.below(9) {
				if len(list) > 0 {
					links = append(links, Link{list[rng.below(int64(len(list)))], v})
				}
				links = append(links, Link{rng.below(g.nodes()), v})
			}
		}
	}
	return SortLinks(links)
}

// without is the graph without links, and the position in g of each of its edges.
func (g *testGraph) without(links []Link) (*testGraph, []int64) {
	left, pos := &testGraph{indptr: []int64{0}}, []int64{}
	for v := range g.nodes() {
		for p := g.indptr[v]; p < g.indptr[v+1]; p++ {
			if !slices.Contains(links, Link{g.wide[p], v}) {
				left.wide, left.narrow = append(left.wide, g.wide[p]), append(left.narrow, g.narrow[p])
				pos = append(pos, p)
			}
		}
		left.indptr = append(left.indptr, int64(len(left.wide)))
	}
	return left, pos
}

// excluding is a graph without some links into targets of each relation but one, those links, and the position in g of
// each edge that is left.
func (g *testTypes) excluding(
	targets [][]int64, but int, seed uint64,
) (left *testTypes, links [][]Link, pos [][]int64) {
	left = &testTypes{nodes: g.nodes, named: g.named}
	for i, r := range g.relations {
		some := r.someLinks(targets[i], seed+uint64(i))
		if i == but {
			some = nil
		}
		without, of := r.without(some)
		left.relations = append(left.relations, testRelation{without, r.source, r.target})
		links, pos = append(links, some), append(pos, of)
	}
	return left, links, pos
}

// Of every relation, even draws for seeds are those from the relation without the excluded edges; beyond the first hop
// nothing is excluded.
func TestExcludedEdgesMightAsWellNotBeThere(t *testing.T) {
	for name, g := range testForms(300, explore.Seed(t, 8)) {
		seeds := [][]int64{slices.Sorted(slices.Values(g.someSeeds(70, 8)[0]))}
		if len(g.nodes) > 1 {
			seeds = [][]int64{{97, 1, 2, 300, 1100}, {4, 5, 699}, {3}, nil, {3, 4}}
		}
		var targets [][]int64
		for _, r := range g.relations {
			targets = append(targets, slices.Compact(slices.Sorted(slices.Values(seeds[r.target]))))
		}
		left, exclude, pos := g.excluding(targets, 1, 20) // of relation 1, if there is one, nothing is
		require.Less(t, len(left.relations[0].wide), len(g.relations[0].wide))
		key := Key{1, 2, 3}
		for _, cfg := range []Config{
			{Fanouts: g.fanouts([]int64{5}, map[int][]int64{2: {0}})},
			{Fanouts: g.fanouts([]int64{-1}, nil)},
			{Fanouts: g.fanouts([]int64{7}, nil), Replace: true},
			{Fanouts: g.fanouts([]int64{-1, 2}, nil)},
			{Fanouts: g.fanouts([]int64{40, 2, 2}, nil)},
			{Fanouts: g.fanouts([]int64{7, 7}, nil), Replace: true},
		} {
			for form := range 3 {
				for _, threads := range []int{1, 3} {
					var want cutBatch
					require.NoError(t, newTypesWorker(t, left.form(form), cfg, true, 1).Sample(context.Background(), key, seeds,
						&want))
					w := newTypesWorker(t, g.form(form), cfg, false, threads)
					flat := w.sampler.flat(seeds)
					var out, again, all Subgraph
					require.NoError(t, w.Draw(context.Background(), key, Request{Seeds: flat, Exclude: exclude}, &out))
					got := w.sampler.cut(out)
					for i, r := range want.Relations {
						e, n := got.Relations[i], r.EdgesPerHop[0]
						require.Equal(t, n, e.EdgesPerHop[0], "%s, relation %d", name, i)
						for k, p := range r.Pos[:n] {
							require.Equal(t, pos[i][p], e.Pos[k], "%s, relation %d", name, i)
							require.Equal(t, r.Row[k], e.Row[k])
						}
						if len(cfg.Fanouts[i]) == 1 {
							require.True(t, slices.Equal(r.Ptr, e.Ptr))
							continue
						}
						if cfg.Replace {
							continue
						}
						// What the second hop draws from is whole: of few nodes every edge.
						of := g.relations[i]
						for at := int(want.NodesPerHop[of.target][0]); at+1 < len(e.Ptr); at++ {
							v := got.Nodes[of.target][at]
							require.Equal(t, min(2, of.indptr[v+1]-of.indptr[v]), e.Ptr[at+1]-e.Ptr[at])
						}
					}
					// The exclusion ends with its request.
					require.NoError(t, w.Draw(context.Background(), key, Request{Seeds: flat}, &again))
					require.NoError(t, newTypesWorker(t, g.form(form), cfg, true, 1).Draw(context.Background(), key,
						Request{Seeds: flat}, &all))
					requireEqual(t, all, again)
				}
			}
		}
	}
}

// Draws by weight exclude edges as if these weighed nothing.
func TestExcludedEdgesWeighNothing(t *testing.T) {
	g := newWeightedGraph(300, explore.Seed(t, 9))
	seeds := g.seeds(70, 9)
	slices.Sort(seeds)
	links := g.someLinks(slices.Compact(slices.Clone(seeds)), 9)
	g.requireWeightless(t, seeds, links, true, []plainConfig{{Fanouts: []int64{5}}, {Fanouts: []int64{40}},
		{Fanouts: []int64{-1}}, {Fanouts: []int64{7}, Replace: true}})
}

// requireWeightless holds that draws by weight without some edges are draws in which these edges weigh nothing.
func (g *weightedGraph) requireWeightless(
	t *testing.T, seeds []int64, links []Link, stamp bool, configs []plainConfig,
) {
	light := &weightedGraph{testGraph: g.testGraph, weights: slices.Clone(g.weights)}
	for v := range g.nodes() {
		for p := g.indptr[v]; p < g.indptr[v+1]; p++ {
			if slices.Contains(links, Link{g.wide[p], v}) {
				light.weights[p] = 0
			}
		}
	}
	for _, cfg := range configs {
		for form, graph := range g.forms() {
			var want, got Subgraph
			cfg.Weights = light.with(form)
			require.NoError(t, newWorker(t, graph, cfg, stamp, 1).Sample(context.Background(), Key{1, 2, 3}, seeds, &want))
			cfg.Weights = g.with(form)
			w := newWorker(t, graph, cfg, stamp, 3)
			require.NoError(t, w.Draw(context.Background(), Key{1, 2, 3}, Request{Seeds: seeds, Exclude: [][]Link{links}}, &got))
			want.Room = got.Room
			requireEqual(t, want, got)
		}
	}
}

// Where no weight is 0, a hop is made without gaps, but not one with excluded edges.
func TestExcludedEdgesOfPositiveWeights(t *testing.T) {
	g := newWeightedGraph(100, explore.Seed(t, 10))
	for p := range g.weights {
		g.weights[p]++
	}
	seeds := []int64{0, 1, 2, 3, 4, 5}
	links := g.someLinks(seeds, 10)
	cfg := plainConfig{Fanouts: []int64{4, 3}, Weights: g.with("ram32")}
	require.True(t, cfg.Weights.Positive)
	w := newWorker(t, g.forms()["ram32"], cfg, true, 2)
	var got Subgraph
	require.NoError(t, w.Draw(context.Background(), Key{}, Request{Seeds: seeds, Exclude: [][]Link{links}}, &got))
	for i, v := range seeds {
		list, left := g.wide[g.indptr[v]:g.indptr[v+1]], int64(0)
		for _, u := range list {
			if !slices.Contains(links, Link{u, v}) {
				left++
			}
		}
		require.Equal(t, min(left, 4), got.Ptr[i+1]-got.Ptr[i])
		for _, p := range got.Pos[got.Ptr[i]:got.Ptr[i+1]] {
			require.NotContains(t, links, Link{g.wide[p], v})
		}
	}
}

func TestWhatCannotBeExcluded(t *testing.T) {
	g := newTestGraph(50, 1).forms()["ram32"]
	seeds, links := []int64{1, 2}, []Link{{1, 2}}
	for _, cfg := range []plainConfig{{Fanouts: []int64{2}, Labor: &Labor{BatchDependency: 1}},
		{Fanouts: []int64{2}, Walks: []Walk{{Walks: 1, Length: 1}}}} {
		err := newWorker(t, g, cfg, true, 1).Draw(context.Background(), Key{},
			Request{Seeds: seeds, Exclude: [][]Link{links}}, new(Subgraph))
		require.ErrorIs(t, err, ErrConfig)
	}
	w := newWorker(t, g, plainConfig{Fanouts: []int64{2}}, true, 1)
	for _, links := range [][]Link{{{2, 2}, {1, 2}}, {{1, 50}}, {{1, -1}, {1, 2}}} {
		err := w.Draw(context.Background(), Key{}, Request{Seeds: seeds, Exclude: [][]Link{links}}, new(Subgraph))
		require.ErrorIs(t, err, ErrConfig)
	}
}
