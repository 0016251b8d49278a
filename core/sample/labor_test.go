package sample

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/explore"
	"freshgo/core/offsets"
)

func TestLaborDrawsEveryPositionEquallyOften(t *testing.T) {
	explore.Figures(t)
	const batches = 6000
	for _, l := range []Labor{{BatchDependency: 1}, {LayerDependency: true, BatchDependency: 1}, {BatchDependency: 2}} {
		for _, tt := range []struct{ deg, k int }{{2, 1}, {11, 10}, {64, 1}, {64, 15}, {200, 40}, {1000, 10}} {
			t.Run(fmt.Sprint(l, tt), func(t *testing.T) {
				w := newWorker(t, star(tt.deg), plainConfig{Fanouts: []int64{int64(tt.k)}, Labor: &l}, true, 1)
				counts := make([]int, tt.deg)
				var sub Subgraph
				for batch := range uint64(batches) {
					// Dependent batches are no independent trials: of those that keep variates every other one counts.
					key := Key{Batch: batch * uint64(l.BatchDependency)}
					require.NoError(t, w.Sample(context.Background(), key, []int64{0}, &sub))
					if len(sub.Nodes) != 1+tt.k {
						t.Fatalf("drew %v", sub.Pos)
					}
					for _, p := range sub.Pos {
						counts[p]++
					}
				}
				require.Less(t, inclusionChi(counts, batches, tt.k), chiLimit(tt.deg-1))
			})
		}
	}
}

// weightedMeans is, for each target, the weighted sum of the values of its drawn sources; the mean over batches and its
// standard error.
func weightedMeans(t *testing.T, w *Worker, targets int, value func(node int64) float64, batches int) (mean,
	deviation []float64) {
	t.Helper()
	mean, deviation = make([]float64, targets), make([]float64, targets)
	seeds := make([]int64, targets)
	for i := range seeds {
		seeds[i] = int64(i)
	}
	var sub Subgraph
	for batch := range uint64(batches) {
		require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, seeds, &sub))
		for i := range targets {
			sum := 0.
			for e := sub.Ptr[i]; e < sub.Ptr[i+1]; e++ {
				sum += float64(sub.Weight[e]) * value(sub.Nodes[sub.Row[e]])
			}
			mean[i] += sum
			deviation[i] += sum * sum
		}
	}
	n := float64(batches)
	for i := range mean {
		mean[i] /= n
		deviation[i] = math.Sqrt(max(0, deviation[i]/n-mean[i]*mean[i]) / n)
	}
	return mean, deviation
}

func TestLaborEstimatesTheMean(t *testing.T) {
	explore.Figures(t)
	// Lists that share sources, without repeated edges.
	const nodes = 60
	indptr := []int64{0}
	var indices []int32
	var list []float64
	for v := range int64(nodes) {
		for u := range int64(nodes) {
			if (u*7+v*5)%(2+v%4) == 0 {
				indices = append(indices, int32(u))
				list = append(list, float64((u*u+3*v)%9)) // zeros among them
			}
		}
		indptr = append(indptr, int64(len(indices)))
	}
	graph := plainGraph{NumNodes: nodes, Indptr: indptr, Indices32: indices}
	weights := &Weights{Wide: list, Sums: make([]float64, SumsLen(int64(len(list))))}
	Sum(offsets.Of(indptr), list, weights.Sums)
	value := func(node int64) float64 { return 10 + math.Sin(float64(node*node)) + float64(node%5) }
	for _, w := range []*Weights{nil, weights} {
		for _, k := range []int64{1, 3, 20, 100} {
			t.Run(fmt.Sprint(w != nil, k), func(t *testing.T) {
				worker := newWorker(t, graph, plainConfig{Fanouts: []int64{k}, Labor: &Labor{BatchDependency: 1}, Weights: w}, true,
					1)
				mean, deviation := weightedMeans(t, worker, nodes, value, 6000)
				for v := range int64(nodes) {
					want, total := 0., 0.
					for p := indptr[v]; p < indptr[v+1]; p++ {
						weight := 1.
						if w != nil {
							weight = list[p]
						}
						want += weight * value(int64(indices[p]))
						total += weight
					}
					if total > 0 {
						want /= total
					}
					require.LessOrEqual(t, math.Abs(mean[v]-want), 5.5*deviation[v]+1e-5*want, "target %d", v)
				}
			})
		}
	}
}

// nodesOf returns the number of nodes in the batches of a sampler.
func nodesOf(t *testing.T, g plainGraph, cfg plainConfig, seeds []int64, batches uint64) (total int,
	sets []map[int64]bool) {
	t.Helper()
	w := newWorker(t, g, cfg, true, 1)
	var sub Subgraph
	for batch := range batches {
		require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, seeds, &sub))
		set := map[int64]bool{}
		for _, v := range sub.Nodes[len(seeds):] {
			set[v] = true
		}
		sets = append(sets, set)
		total += len(sub.Nodes)
	}
	return total, sets
}

func TestLaborNeedsFewerNodes(t *testing.T) {
	g := newTestGraph(3000, 5)
	graph := g.forms()["ram32"]
	seeds := g.seeds(100, 9)
	uniform, _ := nodesOf(t, graph, plainConfig{Fanouts: []int64{10, 5}}, seeds, 40)
	labor, _ := nodesOf(t, graph, plainConfig{Fanouts: []int64{10, 5}, Labor: &Labor{BatchDependency: 1}}, seeds, 40)
	layers, _ := nodesOf(t, graph, plainConfig{Fanouts: []int64{10, 5},
		Labor: &Labor{LayerDependency: true, BatchDependency: 1}}, seeds, 40)
	require.Less(t, labor, uniform)
	require.Less(t, layers, labor)
	edges := func(cfg plainConfig) (n int) {
		w := newWorker(t, graph, cfg, true, 1)
		var sub Subgraph
		require.NoError(t, w.Sample(context.Background(), Key{}, seeds, &sub))
		return int(sub.EdgesPerHop[0])
	}
	require.Equal(t, edges(plainConfig{Fanouts: []int64{10}}),
		edges(plainConfig{Fanouts: []int64{10}, Labor: &Labor{BatchDependency: 1}}))
}

func TestDependentBatchesShareTheirNodes(t *testing.T) {
	g := newTestGraph(3000, 5)
	seeds := g.seeds(100, 9)
	shared := func(dependency int64) (common int) {
		_, sets := nodesOf(t, g.forms()["ram32"],
			plainConfig{Fanouts: []int64{3}, Labor: &Labor{BatchDependency: dependency}}, seeds, 30)
		for i := range sets[1:] {
			for v := range sets[i] {
				if sets[i+1][v] {
					common++
				}
			}
		}
		return common
	}
	require.Less(t, shared(1), shared(2))
	require.Less(t, shared(2), shared(16))
	// All change theirs at some time, a share of 1/d at each batch.
	const d, sources = 8, 20000
	m := labor{Labor: Labor{BatchDependency: d}}
	for batch := range uint64(2 * d) {
		changed := 0
		now, then := m.variates(Key{Batch: batch}, 0), m.variates(Key{Batch: batch + 1}, 0)
		for u := range uint64(sources) {
			if now.of(u) != then.of(u) {
				changed++
			}
		}
		requireFrequency(t, changed, sources, 1./d, "after batch %d", batch)
	}
}

// Vectors are used in memory with ids of 4 bytes and no dependency; what they choose is what the loops do.
func TestLaborIsTheSameWithoutVectors(t *testing.T) {
	have := asm.Lanes
	defer func() { asm.Lanes = have }()
	for _, deg := range []int{2, 15, 16, 17, 32, 33, 63, 64, 65, 200, 999, 5000} {
		for _, k := range []int64{1, 5, 10, 40} {
			var with, without Subgraph
			cfg := plainConfig{Fanouts: []int64{k}, Labor: &Labor{BatchDependency: 1}}
			one, other := newWorker(t, star(deg), cfg, true, 1), newWorker(t, star(deg), cfg, true, 1)
			for batch := range uint64(20) {
				asm.Lanes = have
				require.NoError(t, one.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &with))
				asm.Lanes = false
				require.NoError(t, other.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &without))
				require.Equal(t, without, with, "%d of %d, batch %d", k, deg, batch)
			}
		}
	}
}
