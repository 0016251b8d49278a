package sample

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// The oracles of the samplers that are not uniform: as slow and as plain as their documentation.

func referenceWeights(w *Weights, begin, end int64) (list []float64) {
	if w == nil {
		return nil
	}
	if g, ok := w.Source.(*weightedGraph); ok {
		return g.weights[begin:end]
	}
	for p := begin; p < end; p++ {
		if w.Narrow != nil {
			list = append(list, float64(w.Narrow[p]))
		} else {
			list = append(list, w.Wide[p])
		}
	}
	return list
}

func referenceWeighted(rng *referenceRNG, list []float64, k int64, replace bool) (drawn []int64) {
	var positive []int64
	for i, w := range list {
		if w > 0 {
			positive = append(positive, int64(i))
		}
	}
	if k == -1 || !replace && int64(len(list)) <= k {
		return positive
	}
	if len(positive) == 0 {
		return nil
	}
	if !replace && int64(len(positive)) <= k && len(list) <= 64 {
		return positive
	}
	if len(list) <= 64 {
		return referenceShort(rng.next, list, int(k), replace)
	}
	have := map[int64]bool{}
	if replace || int64(len(list)) > 2*k {
		total, wasted := 0., int64(0)
		for _, w := range list {
			total += w
		}
		for int64(len(drawn)) < k {
			point := float64(rng.next()>>11) / (1 << 53) * total
			at, sum := int64(0), list[0]
			for sum <= point {
				at++
				sum += list[at]
			}
			if replace || !have[at] {
				have[at] = true
				drawn = append(drawn, at)
			} else if wasted++; wasted > 2*k+16 {
				break
			}
		}
	}
	times := map[int64]float64{}
	var rest []int64
	if int64(len(drawn)) < k {
		for _, i := range positive {
			if !have[i] {
				times[i] = -math.Log((float64(rng.next()>>11)+0.5)/(1<<53)) / list[i]
				rest = append(rest, i)
			}
		}
	}
	sort.SliceStable(rest, func(i, j int) bool { return times[rest[i]] < times[rest[j]] })
	return append(drawn, rest[:min(len(rest), int(k)-len(drawn))]...)
}

func referenceLabor(sources []int64, weights []float64, begin int64, labor Labor, key Key, hop int,
	k int64) (edges []referenceEdge) {
	if labor.LayerDependency {
		hop = 0
	}
	variate := func(u int64) uint64 {
		if labor.BatchDependency == 1 {
			return newReferenceRNG(3, key.Seed, key.Epoch, uint64(hop), key.Batch, uint64(u)).state
		}
		d := uint64(labor.BatchDependency)
		phase := newReferenceRNG(3, key.Seed, key.Epoch, uint64(hop), uint64(u)).state % d
		return newReferenceRNG(3, key.Seed, key.Epoch, uint64(hop), uint64(u), (key.Batch+phase)/d).state
	}
	type runner struct {
		offset int
		key    float64
		tie    uint64
	}
	var field []runner
	total := 0.
	for i, u := range sources {
		x := variate(u)
		if weights == nil {
			field = append(field, runner{i, float64(x), x})
		} else if total += weights[i]; weights[i] > 0 {
			e := -math.Log((float64(x>>11) + 0.5) / (1 << 53))
			field = append(field, runner{i, e / weights[i], 0})
		}
	}
	sort.SliceStable(field, func(i, j int) bool {
		return field[i].key < field[j].key || field[i].key == field[j].key && field[i].tie < field[j].tie
	})
	tau := math.Inf(1)
	if k != -1 && int64(len(field)) > k {
		tau = field[k].key
		field = field[:k]
	}
	sort.Slice(field, func(i, j int) bool { return field[i].offset < field[j].offset })
	for _, r := range field {
		weight := 1 / float64(len(field))
		if weights != nil {
			w := weights[r.offset]
			weight = w / total / (1 - math.Exp(-w*tau))
		}
		edges = append(edges, referenceEdge{begin + int64(r.offset), sources[r.offset], float32(weight)})
	}
	return edges
}

func referenceWalks(indptr, indices []int64, w Walk, key Key, hop int, v, k int64) (edges []referenceEdge) {
	if indptr[v] == indptr[v+1] {
		return nil
	}
	times := map[int64]int{}
	for walk := range w.Walks {
		rng := newReferenceRNG(1, key.Seed, key.Epoch, key.Batch, uint64(hop), uint64(v), uint64(walk))
		at := v
		for step := range w.Length {
			if step > 0 && float64(rng.next()>>11) < w.Restart*(1<<53) || indptr[at] == indptr[at+1] {
				at = v
			}
			at = indices[indptr[at]+rng.below(indptr[at+1]-indptr[at])]
			times[at]++
		}
	}
	return mostVisited(times, k)
}

// mostVisited returns the k nodes with the most visits, or all, of equal numbers the lower ones first.
func mostVisited(times map[int64]int, k int64) (edges []referenceEdge) {
	for node, n := range times {
		edges = append(edges, referenceEdge{source: node, weight: float32(n)})
	}
	slices.SortFunc(edges, func(a, b referenceEdge) int {
		if a.weight != b.weight {
			return int(b.weight - a.weight)
		}
		return int(a.source - b.source)
	})
	if k != All {
		edges = edges[:min(int(k), len(edges))]
	}
	return edges
}

// weightedGraph is a test graph with weights: a fifth of them 0, lists all of zeros among them, the others over four
// orders of magnitude, and in some lists one that is nearly all of the sum.
type weightedGraph struct {
	*testGraph
	weights []float64
}

func newWeightedGraph(nodes int, seed uint64) *weightedGraph {
	g := &weightedGraph{testGraph: newTestGraph(nodes, seed)}
	rng := newReferenceRNG(seed, 2)
	for v := range g.nodes() {
		for p := g.indptr[v]; p < g.indptr[v+1]; p++ {
			w := float64(float32(math.Exp(float64(rng.below(1000)) / 100)))
			if rng.below(5) == 0 || v%11 == 3 {
				w = 0
			}
			if v%7 == 2 && p == (g.indptr[v]+g.indptr[v+1])/2 {
				w = 1 << 40
			}
			g.weights = append(g.weights, w)
		}
	}
	return g
}

func (g *weightedGraph) FetchWeights(_ context.Context, d Drawn, out []float64) error {
	for i, v := range d.Targets {
		for e := d.Ptr[i] - d.Ptr[0]; e < d.Ptr[i+1]-d.Ptr[0]; e++ {
			if d.Pos[e] < g.indptr[v] || d.Pos[e] >= g.indptr[v+1] {
				return fmt.Errorf("position %d of target %d", d.Pos[e], v)
			}
			out[e] = g.weights[d.Pos[e]]
		}
	}
	return nil
}

// with is the weights in the form that goes with a form of the graph: narrow, wide, or fetched.
func (g *weightedGraph) with(form string) *Weights {
	sums := make([]float64, SumsLen(int64(len(g.weights))))
	switch form {
	case "ram32":
		narrow := make([]float32, len(g.weights))
		for i, w := range g.weights {
			narrow[i] = float32(w)
		}
		return &Weights{Narrow: narrow, Sums: sums, Positive: Sum(offsets.Of(g.indptr), narrow, sums)}
	case "ram64":
		return &Weights{Wide: g.weights, Sums: sums, Positive: Sum(offsets.Of(g.indptr), g.weights, sums)}
	}
	return &Weights{Source: g}
}

// methodConfigs are the samplers that are not uniform. weights stands for those of the graph.
func methodConfigs(weights *Weights) map[string]plainConfig {
	w := func(fanouts ...int64) plainConfig { return plainConfig{Fanouts: fanouts, Weights: weights} }
	replace := func(c plainConfig) plainConfig { c.Replace = true; return c }
	labor := func(l Labor, c plainConfig) plainConfig { c.Labor = &l; return c }
	plain := func(fanouts ...int64) plainConfig { return plainConfig{Fanouts: fanouts} }
	return map[string]plainConfig{
		"weighted":                 w(15, 10, 5),
		"weighted 1":               w(1, 1, 1),
		"weighted all":             w(-1, 2),
		"weighted large":           w(32, 33, 64),
		"weighted replace":         replace(w(10, 10, -1)),
		"labor":                    labor(Labor{BatchDependency: 1}, plain(15, 10, 5)),
		"labor 1":                  labor(Labor{BatchDependency: 1}, plain(1, 1, 40)),
		"labor all":                labor(Labor{BatchDependency: 1}, plain(3, -1)),
		"labor layers":             labor(Labor{LayerDependency: true, BatchDependency: 1}, plain(5, 5)),
		"labor batches":            labor(Labor{BatchDependency: 3}, plain(5, 5)),
		"labor weighted":           labor(Labor{BatchDependency: 1}, w(15, 10, 5)),
		"labor weighted all":       labor(Labor{BatchDependency: 1}, w(-1, 33)),
		"labor weighted dependent": labor(Labor{LayerDependency: true, BatchDependency: 64}, w(2, 3, 4)),
		"walks":                    {Fanouts: []int64{5, 5, 5}, Walks: []Walk{{4, 3, .5}, {4, 3, .5}, {4, 3, .5}}},
		"walks all":                {Fanouts: []int64{-1, 2}, Walks: []Walk{{20, 10, 0}, {1, 1, 0}}},
		"walks many":               {Fanouts: []int64{1, 300}, Walks: []Walk{{300, 2, .9}, {5, 50, .1}}},
	}
}

func TestMethodsEqualReference(t *testing.T) {
	compareMethods(t, newWeightedGraph(500, explore.Seed(t, 7)), 1, 8)
}

// With weights without zeros, a hop is made in one pass.
func TestMethodsEqualReferenceWithoutZeros(t *testing.T) {
	g := newWeightedGraph(400, explore.Seed(t, 8))
	for p := range g.weights {
		g.weights[p]++
	}
	require.True(t, g.with("ram32").Positive)
	compareMethods(t, g, 2)
}

func compareMethods(t *testing.T, g *weightedGraph, threads ...int) {
	batches := map[string][]int64{
		"one hub": {97}, "none": nil, "repeated": {97, 5, 97, 5, 5, 399, 0, 0, 3}, "many": g.seeds(25, 3),
	}
	for form, graph := range g.forms() {
		for name, cfg := range methodConfigs(g.with(form)) {
			for _, threads := range threads {
				explore.Run(t, fmt.Sprintf("%s/%s/threads=%d", name, form, threads), func(t *testing.T) {
					w := newWorker(t, graph, cfg, threads == 1, threads)
					for batch, seeds := range batches {
						key := Key{Seed: 1, Epoch: 2, Batch: uint64(len(batch))}
						var got Subgraph
						require.NoError(t, w.Sample(context.Background(), key, seeds, &got), batch)
						requireEqual(t, reference(g.indptr, g.wide, cfg, key, seeds), got)
					}
				})
			}
		}
	}
}

// Weights in memory go with neighbours on disk and the other way round.
func TestMixedPlaces(t *testing.T) {
	g := newWeightedGraph(600, explore.Seed(t, 4))
	seeds := g.seeds(50, 1)
	for _, places := range [][2]string{{"adjacency", "ram32"}, {"adjacency", "ram64"}, {"ram32", "adjacency"},
		{"ram64", "adjacency"}, {"ram64", "ram32"}} {
		for name, cfg := range methodConfigs(g.with(places[1])) {
			explore.Run(t, name+"/"+places[0]+"/"+places[1], func(t *testing.T) {
				w := newWorker(t, g.forms()[places[0]], cfg, true, 2)
				var got Subgraph
				require.NoError(t, w.Sample(context.Background(), Key{}, seeds, &got))
				requireEqual(t, reference(g.indptr, g.wide, cfg, Key{}, seeds), got)
			})
		}
	}
}

// A worker holds the memory that WorkerBytes returns, for every method.
func TestMethodsStayWithinWorkerBytes(t *testing.T) {
	explore.Figures(t)
	g := newWeightedGraph(3000, 7)
	seeds := g.seeds(100, 1)
	for form, graph := range g.forms() {
		for name, cfg := range methodConfigs(g.with(form)) {
			s, err := newPlain(graph, cfg)
			require.NoError(t, err)
			for _, stamp := range []bool{true, false} {
				budget := mem.NewBudget(0)
				w, err := s.NewWorker(budget, stamp, 1)
				require.NoError(t, err)
				var sub Subgraph
				demand := plainDemand(0, 0)
				for batch := range uint64(3) {
					require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, seeds, &sub))
					demand = plainDemand(max(demand.Nodes[0], int64(len(sub.Nodes))), max(demand.Edges[0], sub.Room))
				}
				w.Close()
				require.Zero(t, budget.Used())
				budget = mem.NewBudget(0)
				w, err = s.NewWorker(budget, stamp, 1)
				require.NoError(t, err)
				require.NoError(t, w.Reserve(demand))
				for batch := range uint64(3) {
					require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, seeds, &sub))
				}
				require.LessOrEqual(t, budget.Used(), s.WorkerBytes(demand, stamp), "%s %s stamp=%v", name, form, stamp)
				w.Close()
			}
		}
	}
}
