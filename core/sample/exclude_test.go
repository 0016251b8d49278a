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

// Even draws are those from the graph without the excluded edges.
func TestExcludedEdgesMightAsWellNotBeThere(t *testing.T) {
	g := newTestGraph(300, explore.Seed(t, 8))
	seeds := g.seeds(70, 8)
	slices.Sort(seeds)
	links := g.someLinks(slices.Compact(slices.Clone(seeds)), 8)
	left, pos := g.without(links)
	require.Less(t, len(left.wide), len(g.wide))
	for _, cfg := range []plainConfig{
		{Fanouts: []int64{5, 3}}, {Fanouts: []int64{40, 2, 2}}, {Fanouts: []int64{-1, 2}}, {Fanouts: []int64{1}},
		{Fanouts: []int64{7, 7}, Replace: true},
	} {
		for form, graph := range g.forms() {
			for _, threads := range []int{1, 3} {
				var want, got Subgraph
				plain := newWorker(t, left.forms()[form], cfg, true, 1)
				require.NoError(t, plain.Sample(context.Background(), Key{1, 2, 3}, seeds, &want))
				w := newWorker(t, graph, cfg, false, threads)
				require.NoError(t, w.Draw(context.Background(), Key{1, 2, 3}, Request{Seeds: seeds, Exclude: [][]Link{links}},
					&got))
				// Beyond the first hop the lists are those of the whole graph.
				first := want.EdgesPerHop[0]
				require.Equal(t, first, got.EdgesPerHop[0])
				require.Equal(t, want.Row[:first], got.Row[:first])
				for e, p := range want.Pos[:first] {
					require.Equal(t, pos[p], got.Pos[e])
				}
				for i, p := range got.Pos[:first] {
					target := got.Nodes[slices.IndexFunc(got.Ptr, func(e int64) bool { return e > int64(i) })-1]
					require.NotContains(t, links, Link{g.wide[p], target})
				}
				var again Subgraph // the exclusion ends with its request
				require.NoError(t, w.Sample(context.Background(), Key{1, 2, 3}, seeds, &again))
				var all Subgraph
				require.NoError(t, newWorker(t, graph, cfg, true, 1).Sample(context.Background(), Key{1, 2, 3}, seeds, &all))
				requireEqual(t, all, again)
			}
		}
	}
}

// Draws by weight are those in which excluded edges weigh nothing.
func TestExcludedEdgesWeighNothing(t *testing.T) {
	g := newWeightedGraph(300, explore.Seed(t, 9))
	seeds := g.seeds(70, 9)
	slices.Sort(seeds)
	links := g.someLinks(slices.Compact(slices.Clone(seeds)), 9)
	light := &weightedGraph{testGraph: g.testGraph, weights: slices.Clone(g.weights)}
	for v := range g.nodes() {
		for p := g.indptr[v]; p < g.indptr[v+1]; p++ {
			if slices.Contains(links, Link{g.wide[p], v}) {
				light.weights[p] = 0
			}
		}
	}
	for _, cfg := range []plainConfig{{Fanouts: []int64{5}}, {Fanouts: []int64{40}}, {Fanouts: []int64{-1}},
		{Fanouts: []int64{7}, Replace: true}} {
		for form, graph := range g.forms() {
			var want, got Subgraph
			cfg.Weights = light.with(form)
			require.NoError(t, newWorker(t, graph, cfg, true, 1).Sample(context.Background(), Key{1, 2, 3}, seeds, &want))
			cfg.Weights = g.with(form)
			w := newWorker(t, graph, cfg, true, 3)
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
