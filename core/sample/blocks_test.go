package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// blockGraph is weights that are fetched, with sums.
type blockGraph struct {
	*weightedGraph
	sums    []float64
	worth   func(deg, k int64) bool
	located int   // points
	fetched int   // weights of whole lists
	waves   int   // calls
	fail    error // of the last call
	left    int   // calls before it
}

func (g *weightedGraph) blocks(worth func(deg, k int64) bool) *blockGraph {
	b := &blockGraph{weightedGraph: g, sums: make([]float64, SumsLen(int64(len(g.weights)))), worth: worth, left: -1}
	Sum(offsets.Of(g.indptr), g.weights, b.sums)
	return b
}

func always(int64, int64) bool { return true }

func (g *blockGraph) Worth(deg, k int64) bool { return g.worth(deg, k) }

func (g *blockGraph) FetchWeights(ctx context.Context, d Drawn, out []float64) error {
	g.fetched += len(d.Pos)
	return g.weightedGraph.FetchWeights(ctx, d, out)
}

// Locate looks at one sum after the other.
func (g *blockGraph) Locate(_ context.Context, points []Point) error {
	if g.left--; g.left == -1 {
		return g.fail
	}
	g.located += len(points)
	g.waves++
	for i := range points {
		p := &points[i]
		p.Block, p.Before = 0, 0
		for ; p.Block < p.Deg/SumBlock; p.Block++ {
			sum := g.sums[p.Start/SumBlock+p.Block]
			if sum > p.Below {
				break
			}
			p.Before = sum
		}
		from := p.Start + p.Block*SumBlock
		copy(p.Weights[:], g.weights[from:from+p.Len()])
	}
	return nil
}

// fromMemory is the batch that weights in memory give.
func (g *weightedGraph) fromMemory(t *testing.T, cfg plainConfig, key Key, seeds []int64) (sub Subgraph) {
	t.Helper()
	if cfg.Weights != nil {
		cfg.Weights = g.with("ram64")
	}
	w := newWorker(t, g.forms()["ram64"], cfg, false, 1)
	require.NoError(t, w.Sample(context.Background(), key, seeds, &sub))
	return sub
}

// Draws by blocks are those from memory, to the bit, be all long lists drawn so or some.
func TestDrawsByBlocksEqualThoseFromMemory(t *testing.T) {
	g := newWeightedGraph(500, explore.Seed(t, 7))
	batches := map[string][]int64{"one hub": {97}, "none": nil, "repeated": {97, 5, 97, 5, 5, 399, 0, 0, 3},
		"all": g.seeds(500, 4)}
	b := g.blocks(nil)
	for name, cfg := range methodConfigs(&Weights{Source: b}) {
		if cfg.Weights == nil {
			continue
		}
		for batch, seeds := range batches {
			key := Key{Seed: explore.Seed(t, 1), Epoch: 2, Batch: uint64(len(batch))}
			want := g.fromMemory(t, cfg, key, seeds)
			for worthName, worth := range map[string]func(deg, k int64) bool{
				"always": always, "sometimes": func(deg, k int64) bool { return (deg+k)%3 != 0 }, "never": func(int64, int64) bool {
					return false
				},
			} {
				b.worth, b.located, b.fetched = worth, 0, 0
				for _, threads := range []int{1, 2, 8} {
					w := newWorker(t, g.forms()[[]string{"ram32", "adjacency"}[threads%2]], cfg, threads == 1, threads)
					var got Subgraph
					require.NoError(t, w.Sample(context.Background(), key, seeds, &got))
					requireEqual(t, want, got)
				}
				if batch == "all" {
					require.Equal(t, worthName != "never" && cfg.Labor == nil, b.located > 0, name)
					require.Positive(t, b.fetched)
				}
			}
		}
	}
}

// manyLists is lists of one length with weights from 0 on.
func manyLists(nodes, deg int) *weightedGraph {
	g := &weightedGraph{testGraph: &testGraph{indptr: []int64{0}}}
	for v := range nodes {
		for i := range deg {
			g.wide, g.narrow = append(g.wide, int64((v+i)%nodes)), append(g.narrow, int32((v+i)%nodes))
			g.weights = append(g.weights, float64((v*31+i*17)%23))
		}
		g.indptr = append(g.indptr, int64(len(g.wide)))
	}
	return g
}

// More lists and points than fit one wave.
func TestManyWaves(t *testing.T) {
	g := manyLists(2*wavePoints+100, 70)
	b := g.blocks(always)
	seeds := make([]int64, g.nodes())
	for i := range seeds {
		seeds[i] = int64(i)
	}
	for _, replace := range []bool{false, true} {
		b.located, b.fetched = 0, 0
		cfg := plainConfig{Fanouts: []int64{5}, Replace: replace, Weights: &Weights{Source: b}}
		w := newWorker(t, g.forms()["ram32"], cfg, true, 1)
		var got Subgraph
		require.NoError(t, w.Sample(context.Background(), Key{1, 2, 3}, seeds, &got))
		requireEqual(t, g.fromMemory(t, cfg, Key{1, 2, 3}, seeds), got)
		require.Greater(t, b.located, 5*len(seeds))
		require.Zero(t, b.fetched)
	}
}

// A hub costs a few points for an edge, and nothing of its length.
func TestHubByBlocks(t *testing.T) {
	g := manyLists(1, 1<<20)
	b := g.blocks(always)
	var got Subgraph
	w := newWorker(t, g.forms()["ram32"], plainConfig{Fanouts: []int64{10}, Weights: &Weights{Source: b}}, true, 1)
	for batch := range uint64(100) {
		b.located, b.waves = 0, 0
		require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &got))
		require.Len(t, got.Pos, 10)
		require.LessOrEqual(t, b.located, 13) // one for the sum of all, ten, and perhaps two more where a point hits again
		require.LessOrEqual(t, b.waves, 4)
	}
	require.Zero(t, b.fetched)
}

// Where one weight is nearly all of the sum, and where all are 0.
func TestBlocksOfOneHeavyWeight(t *testing.T) {
	g := manyLists(3, 1000)
	for i := range g.weights[:1000] {
		g.weights[i], g.weights[2000+i] = 1e-9, 0
	}
	g.weights[700] = 1e9
	b := g.blocks(always)
	cfg := plainConfig{Fanouts: []int64{4}, Weights: &Weights{Source: b}}
	w := newWorker(t, g.forms()["ram64"], cfg, true, 1)
	for batch := range uint64(20) {
		var got Subgraph
		require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{2, 0, 1}, &got))
		requireEqual(t, g.fromMemory(t, cfg, Key{Batch: batch}, []int64{2, 0, 1}), got)
	}
	require.Equal(t, 20*1000, b.fetched) // the heavy one, whole each time
}

// What sums of damaged files say changes what is drawn at most, never where from.
func TestSumsThatAreWrong(t *testing.T) {
	g := manyLists(5, 300)
	for _, wrong := range []float64{math.NaN(), math.Inf(1), -1, 0, 1e300} {
		b := g.blocks(always)
		for i := range b.sums {
			if i%3 == 0 {
				b.sums[i] = wrong
			}
		}
		for _, replace := range []bool{false, true} {
			w := newWorker(t, g.forms()["ram32"], plainConfig{Fanouts: []int64{7}, Replace: replace,
				Weights: &Weights{Source: b}}, true, 1)
			for batch := range uint64(20) {
				var got Subgraph
				require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0, 1, 2, 3, 4}, &got))
				for i := range 5 {
					for _, p := range got.Pos[got.Ptr[i]:got.Ptr[i+1]] {
						v := got.Nodes[i]
						require.True(t, p >= g.indptr[v] && p < g.indptr[v+1])
					}
				}
			}
		}
	}
}

// Excluded edges weigh nothing, in trees too: lists that have some are read whole.
func TestExcludedEdgesOfBlocks(t *testing.T) {
	g := newWeightedGraph(300, explore.Seed(t, 9))
	seeds := g.seeds(70, 9)
	slices.Sort(seeds)
	links := g.someLinks(slices.Compact(slices.Clone(seeds)), 9)
	for _, disjoint := range []bool{false, true} {
		for _, replace := range []bool{false, true} {
			cfg := plainConfig{Fanouts: []int64{5, 4}, Replace: replace, Disjoint: disjoint}
			b := g.blocks(always)
			var want, got Subgraph
			cfg.Weights = g.with("ram64")
			require.NoError(t, newWorker(t, g.forms()["ram64"], cfg, false, 1).Draw(context.Background(), Key{1, 2, 3},
				Request{Seeds: seeds, Exclude: [][]Link{links}}, &want))
			cfg.Weights = &Weights{Source: b}
			w := newWorker(t, g.forms()["ram64"], cfg, false, 3)
			require.NoError(t, w.Draw(context.Background(), Key{1, 2, 3}, Request{Seeds: seeds, Exclude: [][]Link{links}}, &got))
			requireEqual(t, want, got)
			require.Positive(t, b.located)
		}
	}
}

// A failure at any call ends the batch, and the worker works on.
func TestLocateFails(t *testing.T) {
	g := newWeightedGraph(300, 5)
	b := g.blocks(always)
	w := newWorker(t, g.forms()["ram32"], plainConfig{Fanouts: []int64{5, 5}, Weights: &Weights{Source: b}}, true, 1)
	var want, got Subgraph
	require.NoError(t, w.Sample(context.Background(), Key{}, g.seeds(20, 1), &want))
	nodes := slices.Clone(want.Nodes)
	b.fail = errors.New("disk")
	calls := b.waves
	require.Greater(t, calls, 2)
	for n := range calls {
		b.left = n
		require.ErrorIs(t, w.Sample(context.Background(), Key{}, g.seeds(20, 1), &got), b.fail, n)
	}
	b.left = -1
	require.NoError(t, w.Sample(context.Background(), Key{}, g.seeds(20, 1), &got))
	require.Equal(t, nodes, got.Nodes)
}

func TestBlocksStayWithinWorkerBytes(t *testing.T) {
	explore.Figures(t)
	g := newWeightedGraph(3000, 7)
	seeds := g.seeds(100, 1)
	for name, cfg := range methodConfigs(&Weights{Source: g.blocks(always)}) {
		t.Run(fmt.Sprint(name), func(t *testing.T) {
			s, err := newPlain(g.forms()["adjacency"], cfg)
			require.NoError(t, err)
			demand := plainDemand(g.nodes(), 100_000)
			budget := mem.NewBudget(0)
			w, err := s.NewWorker(budget, true, 1)
			require.NoError(t, err)
			defer w.Close()
			require.NoError(t, w.Reserve(demand))
			var sub Subgraph
			for batch := range uint64(3) {
				require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, seeds, &sub))
				demand = plainDemand(max(demand.Nodes[0], int64(len(sub.Nodes))), max(demand.Edges[0], sub.Room))
			}
			require.LessOrEqual(t, budget.Used(), s.WorkerBytes(demand, true))
		})
	}
}
