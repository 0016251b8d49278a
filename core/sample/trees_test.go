package sample

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/offsets"
)

// treeCase is a way to draw trees.
type treeCase struct {
	cfg     Config
	how     *Temporal                 // nil: there are no times
	weights func(form int) []*Weights // nil: there are none
}

// treeForm is a graph with times, and batches.
type treeForm struct {
	g         *testTypes
	times     [][]int64
	batches   [][][]int64
	seedTimes [][]int64
	cases     map[string]treeCase
}

// plainTrees are the trees of a graph with one relation.
func plainTrees(tg *timedGraph, named bool) treeForm {
	g := plainTypes(tg.testGraph)
	g.named = named
	seeds := append(tg.seeds(20, 3), 97, 97, 0)
	times := tg.seedTimes(len(seeds), 5)
	f := treeForm{
		g: g, times: [][]int64{tg.times}, batches: [][][]int64{{seeds}, {nil}, {{97}}, {seeds}},
		seedTimes: [][]int64{times, {}, {50}, times}, cases: map[string]treeCase{},
	}
	for name, cfg := range temporalConfigs() {
		how := *cfg.Temporal
		cfg.Temporal = nil
		f.cases[name] = treeCase{cfg: cfg.config(), how: &how}
	}
	weights := func(form int) []*Weights {
		return []*Weights{tg.with([]string{"ram32", "ram64", "adjacency"}[form])}
	}
	for name, c := range map[string]treeCase{
		"disjoint":                  {cfg: Config{Fanouts: [][]int64{{10, 5, 2}}}},
		"disjoint all":              {cfg: Config{Fanouts: [][]int64{{-1, 33}}}},
		"disjoint replace":          {cfg: Config{Fanouts: [][]int64{{10, 5}}, Replace: true}},
		"disjoint weighted":         {cfg: Config{Fanouts: [][]int64{{10, 5}}}, weights: weights},
		"disjoint weighted replace": {cfg: Config{Fanouts: [][]int64{{10, -1}}, Replace: true}, weights: weights},
	} {
		c.cfg.Disjoint = true
		f.cases[name] = c
	}
	return f
}

// treesOfTypes returns trees over several types and relations.
func treesOfTypes(seed uint64) treeForm {
	f := treeForm{g: citations(seed)}
	f.times = heteroTimes(f.g)
	f.batches, f.seedTimes = heteroSeeds()
	weights := make([]*Weights, 8)
	for _, i := range []int{0, 2} {
		r := f.g.relations[i]
		w := &Weights{Wide: make([]float64, len(r.wide)), Sums: make([]float64, SumsLen(int64(len(r.wide))))}
		for p := range w.Wide {
			w.Wide[p] = float64(p % 3)
		}
		Sum(offsets.Of(r.indptr), w.Wide, w.Sums)
		weights[i] = w
	}
	f.cases = map[string]treeCase{
		"disjoint":          {},
		"disjoint replace":  {cfg: Config{Replace: true}},
		"disjoint weighted": {weights: func(int) []*Weights { return weights }},
		"uniform":           {how: &Temporal{}},
		"last":              {how: &Temporal{Last: true}},
		"window":            {how: &Temporal{Window: 50}},
		"last of a window":  {how: &Temporal{Window: 50, Last: true}},
		"replace":           {how: &Temporal{}, cfg: Config{Replace: true}},
		"last, replace":     {how: &Temporal{Last: true}, cfg: Config{Replace: true}},
	}
	for name, c := range f.cases {
		c.cfg.Disjoint = true
		c.cfg.Fanouts = fanouts([]int64{5, 3, 2}, map[int][]int64{1: {0, 3, 1}, 2: {-1, 2, 0}, 4: {40, 1, 33}})
		f.cases[name] = c
	}
	return f
}

// byNodes gives the edges the times of their sources.
func (f treeForm) byNodes(seed uint64) treeForm {
	f.times = f.g.withNodeTimes(seed)
	return f
}

// Every way of drawing trees gives what the reference gives, from neighbours, weights and times in every form.
func TestTreesEqualReference(t *testing.T) {
	plain := newTimedGraph(300, explore.Seed(t, 7))
	for name, f := range map[string]treeForm{
		"no types": plainTrees(plain, false), "sorted lists": plainTrees(plain.sorted(), false),
		"one type": plainTrees(plain, true), "several types": treesOfTypes(explore.Seed(t, 7)),
		"no types, times of nodes":      plainTrees(plain, false).byNodes(explore.Seed(t, 8)),
		"several types, times of nodes": treesOfTypes(explore.Seed(t, 7)).byNodes(explore.Seed(t, 8)),
	} {
		key := func(batch int) Key { return Key{Seed: explore.Seed(t, 1), Epoch: 2, Batch: uint64(batch)} }
		for what, c := range f.cases {
			var wants []cutBatch
			for form := range 3 {
				places := []int{form} // of times
				if c.how != nil && strings.HasPrefix(name, "no types") {
					places = []int{0, 1, 2}
				}
				for _, place := range places {
					cfg, known, window := c.cfg, [][]int64(nil), int64(0)
					if c.how != nil {
						cfg.Temporal, known, window = f.g.temporal(t, f.times, place, *c.how), f.times, c.how.Window
					}
					if c.weights != nil {
						cfg.Weights = c.weights(form)
					}
					if wants == nil { // the same for all
						for i, seeds := range f.batches {
							wants = append(wants, f.g.reference(cfg, key(i), seeds, known, f.seedTimes[i]))
						}
					}
					for _, threads := range []int{1, 2, 8} {
						variant := fmt.Sprintf("%s/%s/form=%d/times=%d/threads=%d", name, what, form, place, threads)
						explore.Run(t, variant, func(t *testing.T) {
							w := newTypesWorker(t, f.g.form(form), cfg, threads == 1, threads)
							for i, seeds := range f.batches {
								at := f.seedTimes[i]
								if c.how == nil {
									at = nil
								}
								var got cutBatch
								require.NoError(t, w.SampleTimed(context.Background(), key(i), seeds, at, &got))
								requireCutEqual(t, wants[i], got)
								requireNoFuture(t, f.g, known, window, at, got)
							}
						})
					}
				}
			}
		}
	}
}

// requireNoFuture looks at every edge: its ends are in one tree, and it is not later than the seed of that, nor
// too early.
func requireNoFuture(t testing.TB, g *testTypes, times [][]int64, window int64, seedTimes []int64,
	sub cutBatch) {
	t.Helper()
	for i, r := range g.relations {
		edges := sub.Relations[i]
		for target := range len(edges.Ptr) - 1 {
			tree := sub.Trees[r.target][target]
			for e := edges.Ptr[target]; e < edges.Ptr[target+1]; e++ {
				if tree != sub.Trees[r.source][edges.Row[e]] {
					t.Fatalf("edge %d of relation %d is in two trees", e, i)
				}
				if times == nil || times[i] == nil {
					continue
				}
				if at := times[i][edges.Pos[e]]; at > seedTimes[tree] || window > 0 &&
					uint64(seedTimes[tree])-uint64(at) >= uint64(window) {
					t.Fatalf("edge %d of relation %d and time %d for a seed of time %d", e, i, at, seedTimes[tree])
				}
			}
		}
	}
}
