package sample

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// In trees a node is expanded in every tree that reaches it, in any hop: a batch equals the batch of the graph without
// the excluded edges.
func TestExcludedEdgesOfTrees(t *testing.T) {
	g := newTimedGraph(150, explore.Seed(t, 11))
	seeds := append(g.seeds(30, 6), 97, 97, 0)
	all := slices.Sorted(slices.Values(seeds))
	links := g.someLinks(slices.Compact(all), 11)
	left, pos := g.without(links)
	require.Less(t, len(left.wide), len(g.wide))
	request := Request{Seeds: seeds, Times: g.seedTimes(len(seeds), 5), Exclude: [][]Link{links}}
	key := Key{1, 2, 3}
	configs := temporalConfigs()
	configs["disjoint"] = plainConfig{Fanouts: []int64{7, 4}, Disjoint: true}
	configs["disjoint, all"] = plainConfig{Fanouts: []int64{-1, 3}, Disjoint: true}
	configs["disjoint, many"] = plainConfig{Fanouts: []int64{40, 2}, Disjoint: true, Replace: true}
	for _, kind := range []string{"any", "sorted", "of nodes"} {
		timed, forms := g, g.timeForms(t)
		switch kind {
		case "sorted":
			timed = g.sorted()
			forms = map[string]*Times{"sorted": {Ascending: timed.times}, "source": {Source: timed}}
		case "of nodes":
			types := plainTypes(g.testGraph)
			timed = &timedGraph{weightedGraph: g.weightedGraph, times: types.withNodeTimes(explore.Seed(t, 9))[0]}
			forms = map[string]*Times{
				"narrow": {Nodes: byNode(types.nodeTimes[0], 0)}, "wide": {Nodes: byNode(types.nodeTimes[0], 1)},
				"source": {Nodes: byNode(types.nodeTimes[0], 2)},
			}
		}
		var leftTimes []int64
		for _, p := range pos {
			leftTimes = append(leftTimes, timed.times[p])
		}
		for name, cfg := range configs {
			r := request
			if cfg.Temporal == nil {
				r.Times = nil
			}
			want := referenceTrees(left.indptr, left.wide, leftTimes, cfg, key, r)
			for e, p := range want.Pos {
				want.Pos[e] = pos[p]
			}
			full := referenceTrees(g.indptr, g.wide, timed.times, cfg, key, r)
			for form, times := range forms {
				if cfg.Temporal != nil {
					of := *cfg.Temporal
					of.Times = times
					cfg.Temporal = &of
				} else if form != "source" {
					continue
				}
				for place, graph := range g.forms() {
					explore.Run(t, fmt.Sprintf("%s/%s/%s/%s", kind, name, form, place), func(t *testing.T) {
						for _, threads := range []int{1, 2, 8} {
							w := newWorker(t, graph, cfg, false, threads)
							var got, plain Subgraph
							require.NoError(t, w.Draw(context.Background(), key, r, &got))
							requireEqual(t, want, got)
							without := r // the exclusion ends with its request
							without.Exclude = nil
							require.NoError(t, w.Draw(context.Background(), key, without, &plain))
							requireEqual(t, full, plain)
						}
					})
				}
			}
		}
	}
}

// Draws by weight in trees exclude edges as if these weighed nothing.
func TestExcludedEdgesOfTreesWeighNothing(t *testing.T) {
	g := newWeightedGraph(200, explore.Seed(t, 12))
	seeds := append(g.seeds(30, 6), 97, 97, 0)
	all := slices.Sorted(slices.Values(seeds))
	links := g.someLinks(slices.Compact(all), 12)
	g.requireWeightless(t, seeds, links, false, []plainConfig{{Fanouts: []int64{5, 3}, Disjoint: true},
		{Fanouts: []int64{40, 2}, Disjoint: true}, {Fanouts: []int64{-1, 4}, Disjoint: true},
		{Fanouts: []int64{7, 2}, Replace: true, Disjoint: true}})
}
