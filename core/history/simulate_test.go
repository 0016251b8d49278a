package history

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

// A simulated training run: real sampling and pruning, norms at random, and rows that are only counted.
type simulation struct {
	nodes   int64
	fanouts []int64
	batch   int
	seeds   []int64 // of an epoch
	worker  *sample.Worker
	rng     *rand.Rand
	// by layer and node: needs in an iteration, counted in epochs of their own; layer 0 is the features
	needs [][]float32
}

// zipfGraph has in-degrees of a long tail, so that subtrees differ in size, and sources whose popularity is Zipf's.
func zipfGraph(seed uint64, nodes int, exponent float64) sample.Graph {
	rng := rand.New(rand.NewPCG(seed, 11))
	cumulative := make([]float64, nodes)
	total := 0.
	for k := range cumulative {
		total += math.Pow(float64(k+1), -exponent)
		cumulative[k] = total
	}
	name := rng.Perm(nodes) // so that popularity has nothing to do with degree
	indptr, indices := []int64{0}, []int32{}
	for range nodes {
		for range 1 + min(int(4*math.Exp(1.2*rng.NormFloat64())), 200) {
			at, _ := slices.BinarySearch(cumulative, rng.Float64()*total)
			indices = append(indices, int32(name[at]))
		}
		indptr = append(indptr, int64(len(indices)))
	}
	return homogeneous(int64(nodes), indptr, indices)
}

func homogeneous(nodes int64, indptr []int64, indices []int32) sample.Graph {
	lists := sample.Relation{Indptr: offsets.Of(indptr), Indices32: indices}
	return sample.Graph{NumNodes: []int64{nodes}, Relations: []sample.Relation{lists}}
}

func newSimulation(t testing.TB, g sample.Graph, fanouts []int64, batch, batches, preSampled int) *simulation {
	sampler, err := sample.New(g, sample.Config{Fanouts: [][]int64{fanouts}})
	require.NoError(t, err)
	worker, err := sampler.NewWorker(mem.NewBudget(0), true, 1)
	require.NoError(t, err)
	t.Cleanup(worker.Close)
	nodes := g.NumNodes[0]
	s := &simulation{nodes: nodes, fanouts: fanouts, batch: batch, worker: worker, rng: rand.New(rand.NewPCG(3, 4))}
	for _, v := range s.rng.Perm(int(nodes))[:batch*batches] {
		s.seeds = append(s.seeds, int64(v))
	}
	s.needs = make([][]float32, len(fanouts))
	for l := range s.needs {
		s.needs[l] = make([]float32, nodes)
	}
	for epoch := range preSampled {
		s.epoch(t, uint64(1000+epoch), func(_ int, g *sample.Subgraph) {
			nodes := int64(0)
			for hop, n := range g.NodesPerHop {
				for _, v := range g.Nodes[nodes : nodes+n] {
					for l := range len(fanouts) - hop + 1 {
						if l < len(fanouts) {
							s.needs[l][v] += 1 / float32(preSampled*batches)
						}
					}
				}
				nodes += n
			}
		})
	}
	return s
}

func (s *simulation) epoch(t testing.TB, epoch uint64, each func(number int, g *sample.Subgraph)) {
	order := slices.Clone(s.seeds)
	rng := rand.New(rand.NewPCG(epoch, 5))
	rng.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
	g := new(sample.Subgraph)
	for number := range len(order) / s.batch {
		seeds := order[number*s.batch:][:s.batch]
		require.NoError(t, s.worker.Sample(context.Background(), sample.Key{Seed: 1, Epoch: epoch, Batch: uint64(number)},
			seeds, g))
		each(number, g)
	}
}

// outcome counts the rows that were read, and that were requested, without the first epoch.
type outcome struct{ read, plain int64 }

func (o outcome) saved() float64 { return 1 - float64(o.read)/float64(o.plain) }

// history is a run with a buffer in which an embedding takes rowBytes.
func (s *simulation) history(t testing.TB, epochs int, c Config, rowBytes int64) (o outcome, stats Stats) {
	c.NumNodes, c.Layers, c.RowBytes, c.GradFraction = s.nodes, len(s.fanouts)-1, rowBytes, 0.9
	c.Reuse = func(layer int, node int64) float32 { return s.needs[layer][node] }
	h, err := New(mem.NewBudget(0), c)
	require.NoError(t, err)
	defer h.Close()
	require.NoError(t, h.SetRow(rowBytes))
	pruner, out := NewPruner(mem.NewBudget(0)), new(Pruned)
	defer pruner.Close()
	defer out.Free()
	rng := rand.New(rand.NewPCG(8, 9))
	admitted := make([]Admitted, c.Layers)
	i := int64(0)
	for epoch := range epochs {
		s.epoch(t, uint64(epoch), func(_ int, g *sample.Subgraph) {
			lookup := func(layer int, node int64) int32 { return looked(h, i, layer, node) }
			require.NoError(t, pruner.Prune(g, int64(s.batch), Each(lookup), out))
			if epoch > 0 {
				o.plain += int64(len(g.Nodes))
				o.read += int64(len(out.Loaded))
			}
			saves := roomForSaves(out)
			require.NoError(t, pruner.Saves(out, func(int64) float32 { return 1 }, saves))
			layers := make([]Observed, c.Layers)
			for l := range layers {
				level, of := &out.Levels[l+1], &layers[l]
				for _, at := range level.Computed {
					of.Nodes, of.Norms = append(of.Nodes, out.Graph.Nodes[level.Nodes[at]]), append(of.Norms, rng.Float32())
				}
				for _, at := range level.Hits {
					of.HitNodes, of.HitNorms = append(of.HitNodes, out.Graph.Nodes[level.Nodes[at]]),
						append(of.HitNorms, rng.Float32())
				}
				of.Saves = saves[l]
			}
			require.NoError(t, h.Update(i, layers, admitted))
			i++
		})
	}
	return o, h.Stats()
}

// TestPolicies: in reads saved, "performance" is above "gradient", by far where the buffer is small: for popularity
// flat and steep, batches that need a tenth of the graph and nearly all of it, ages short and long, embeddings as wide
// as features and wider. -v prints the figures.
func TestPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	for _, c := range []struct {
		nodes          int
		fanouts        []int64
		batch, batches int
		stale          []int64
		percents       []int64 // of the features' bytes
	}{
		{20_000, []int64{10, 8, 5}, 20, 50, []int64{12, 100}, []int64{2, 5, 10, 20, 50}},
		{8_000, []int64{15, 10, 8}, 150, 12, []int64{40}, []int64{2, 10, 20, 50}},
	} {
		for _, exponent := range []float64{0.6, 1} {
			s := newSimulation(t, zipfGraph(1, c.nodes, exponent), c.fanouts, c.batch, c.batches, 4)
			for _, stale := range c.stale {
				for _, wide := range []int64{1, 2} {
					for _, percent := range c.percents {
						o := Config{Bytes: 64 * s.nodes * percent / 100, Stale: stale, Policy: Gradient}
						gradient, _ := s.history(t, 3, o, 64*wide)
						o.Policy = Performance
						performance, stats := s.history(t, 3, o, 64*wide)
						name := fmt.Sprintf("%5d nodes, Zipf %.1f, age %3d, width %d, %2d %%", c.nodes, exponent, stale, wide, percent)
						t.Logf("%s: gradient %.3f, performance %.3f with %d + %d embeddings", name, gradient.saved(),
							performance.saved(), stats.Layers[0].Live, stats.Layers[1].Live)
						require.GreaterOrEqual(t, performance.saved(), gradient.saved(), name)
						if percent <= 2 {
							require.Greater(t, performance.saved(), 1.5*gradient.saved(), name)
						}
					}
				}
			}
		}
	}
}

// TestPoliciesWithRoom: where everything fits, what is saved does not depend on the policy.
func TestPoliciesWithRoom(t *testing.T) {
	s := newSimulation(t, zipfGraph(2, 5000, 0.8), []int64{6, 5, 4}, 20, 20, 2)
	for _, stale := range []int64{5, 30, Forever} {
		c := Config{Bytes: 64 * 2 * s.nodes, Stale: stale, Policy: Gradient}
		gradient, of := s.history(t, 3, c, 64)
		c.Policy = Performance
		performance, with := s.history(t, 3, c, 64)
		require.Equal(t, gradient, performance)
		require.Equal(t, of.Layers, with.Layers)
		require.Zero(t, with.RefusedWorth+with.Overwritten)
	}
}
