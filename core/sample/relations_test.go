package sample

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// With all neighbours and one type, a batch equals the batch of the homogeneous sampler.
func TestHeteroOfOneTypeIsHomogeneous(t *testing.T) {
	g := newTestGraph(800, explore.Seed(t, 3))
	cfg := plainConfig{Fanouts: []int64{-1, -1}}
	seeds := g.seeds(30, 1)
	var one Subgraph
	require.NoError(t, newWorker(t, g.forms()["ram32"], cfg, true, 2).Sample(context.Background(), Key{}, seeds, &one))
	hetero := Graph{NumNodes: []int64{g.nodes()}, Named: true,
		Relations: []Relation{{Indptr: offsets.Of(g.indptr), Indices32: g.narrow}}}
	var got cutBatch
	w := newTypesWorker(t, hetero, Config{Fanouts: [][]int64{cfg.Fanouts}}, true, 2)
	require.NoError(t, w.Sample(context.Background(), Key{}, [][]int64{seeds}, &got))
	r := got.Relations[0]
	requireEqual(t, one, Subgraph{
		Nodes: got.Nodes[0], NodesPerHop: got.NodesPerHop[0], Ptr: r.Ptr, Row: r.Row, Pos: r.Pos, EdgesPerHop: r.EdgesPerHop,
	})
}

// With one type and any method, a batch equals the batch of the homogeneous sampler with the key of the relation.
func TestHeteroDrawsAsTheHomogeneousSampler(t *testing.T) {
	g := newTestGraph(800, explore.Seed(t, 3))
	seeds := g.seeds(30, 1)
	weights := &Weights{Narrow: make([]float32, len(g.wide)), Sums: make([]float64, SumsLen(int64(len(g.wide))))}
	for i := range weights.Narrow {
		weights.Narrow[i] = float32(i % 5)
	}
	Sum(offsets.Of(g.indptr), weights.Narrow, weights.Sums)
	for name, cfg := range map[string]plainConfig{
		"uniform":        {},
		"replaced":       {Replace: true},
		"weighted":       {Weights: weights},
		"LABOR":          {Labor: &Labor{BatchDependency: 1}},
		"LABOR, weights": {Labor: &Labor{BatchDependency: 3, LayerDependency: true}, Weights: weights},
	} {
		for form, graph := range g.forms() {
			t.Run(name+"/"+form, func(t *testing.T) {
				cfg.Fanouts = []int64{10, 5}
				key := Key{Seed: explore.Seed(t, 4), Epoch: 5, Batch: 6}
				var one Subgraph
				require.NoError(t, newWorker(t, graph, cfg, true, 2).Sample(context.Background(), relationKey(key, 0), seeds, &one))
				hetero := Graph{NumNodes: []int64{g.nodes()}, Relations: []Relation{graph.relation()}, Named: true}
				config := cfg.config()
				var got cutBatch
				require.NoError(t, newTypesWorker(t, hetero, config, false, 2).Sample(context.Background(), key, [][]int64{seeds},
					&got))
				r := got.Relations[0]
				requireEqual(t, one, Subgraph{
					Nodes: got.Nodes[0], NodesPerHop: got.NodesPerHop[0], Ptr: r.Ptr, Row: r.Row, Pos: r.Pos,
					Weight: r.Weight, EdgesPerHop: r.EdgesPerHop,
				})
			})
		}
	}
}

// Edges without weight are not drawn, in any type; what has no weights is drawn uniformly.
func TestHeteroWeights(t *testing.T) {
	g := citations(explore.Seed(t, 7))
	cfg := Config{Fanouts: fanouts([]int64{4, 4}, nil), Weights: make([]*Weights, 8)}
	for _, i := range []int{1, 2, 5} {
		r := g.relations[i]
		w := &Weights{Wide: make([]float64, len(r.wide)), Sums: make([]float64, SumsLen(int64(len(r.wide))))}
		for p := range w.Wide {
			w.Wide[p] = float64(p % 2)
		}
		Sum(offsets.Of(r.indptr), w.Wide, w.Sums)
		cfg.Weights[i] = w
	}
	var first cutBatch
	for _, threads := range []int{1, 3} {
		w := newTypesWorker(t, g.form(0), cfg, true, threads)
		var sub cutBatch
		require.NoError(t, w.Sample(context.Background(), Key{},
			[][]int64{{97, 0, 194, 5, 6, 7}, {97, 1, 3}, {0, 7}, nil, {1}}, &sub))
		even := 0
		for i, r := range sub.Relations {
			for e, p := range r.Pos {
				if cfg.Weights[i] != nil {
					require.EqualValues(t, 1, p%2, "relation %d", i)
				} else if p%2 == 0 {
					even++
				}
				require.Equal(t, g.relations[i].wide[p], sub.Nodes[g.relations[i].source][r.Row[e]])
			}
		}
		require.Positive(t, even)
		if threads == 1 {
			first = sub
			for i := range sub.Nodes {
				first.Nodes[i] = append([]int64{}, sub.Nodes[i]...)
			}
			for i, r := range sub.Relations {
				first.Relations[i] = cutEdges{
					Ptr: append([]int64{}, r.Ptr...), Row: append([]uint32{}, r.Row...), Pos: append([]int64{}, r.Pos...),
					EdgesPerHop: append([]int64{}, r.EdgesPerHop...),
				}
			}
		}
		requireCutEqual(t, first, sub)
	}
	cfg.Weights = cfg.Weights[1:]
	_, err := New(g.form(0), cfg)
	require.ErrorIs(t, err, ErrConfig)
	require.EqualError(t, err, "sample: weights of 7 relations, expected 8 as there are, or none: invalid sampler")
}

// TestHeteroDrawsEveryPositionEquallyOften: in each of two relations to one target, which are independent of each other
// although all else of their keys is equal.
func TestHeteroDrawsEveryPositionEquallyOften(t *testing.T) {
	explore.Figures(t)
	const batches = 6000
	for _, tt := range []struct{ deg, k int }{{2, 1}, {11, 10}, {64, 1}, {100, 15}, {100, 40}} {
		for _, replace := range []bool{false, true} {
			t.Run(fmt.Sprintf("deg=%d/k=%d/replace=%v", tt.deg, tt.k, replace), func(t *testing.T) {
				g := star(tt.deg)
				relation := Relation{Source: 1, Target: 0, Indptr: offsets.Of(g.Indptr), Indices32: g.Indices32}
				w := newTypesWorker(t, Graph{NumNodes: []int64{g.NumNodes, g.NumNodes}, Relations: []Relation{relation, relation},
					Named: true},
					Config{Fanouts: [][]int64{{int64(tt.k)}, {int64(tt.k)}}, Replace: replace}, true, 1)
				var counts [2][]int
				for i := range counts {
					counts[i] = make([]int, tt.deg)
				}
				joint := make([]int, tt.deg*tt.deg)
				var sub cutBatch
				for batch := range uint64(batches) {
					require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, [][]int64{{0}, nil}, &sub))
					for i := range counts {
						for _, p := range sub.Relations[i].Pos {
							counts[i][p]++
						}
					}
					joint[int(sub.Relations[0].Pos[0])*tt.deg+int(sub.Relations[1].Pos[0])]++
				}
				for i := range counts {
					if replace {
						require.Less(t, uniformChi(counts[i]), chiLimit(tt.deg-1))
					} else {
						require.Less(t, inclusionChi(counts[i], batches, tt.k), chiLimit(tt.deg-1))
					}
				}
				if tt.k == 1 && tt.deg <= 64 { // enough batches for every pair
					require.Less(t, uniformChi(joint), chiLimit(tt.deg*tt.deg-1))
				}
			})
		}
	}
}

// These numbers are a promise to users who resume or repeat a training.
func TestGoldenHeteroBatch(t *testing.T) {
	g := citations(7)
	w := newTypesWorker(t, g.form(0), Config{Fanouts: fanouts([]int64{15, 10, 5}, nil)}, true, 2)
	var sub cutBatch
	require.NoError(t, w.Sample(context.Background(), Key{1, 2, 3}, [][]int64{{1, 2, 3, 97}, {5}, nil, nil, {4}}, &sub))
	var all []any
	for _, nodes := range sub.Nodes {
		all = append(all, nodes)
	}
	for _, r := range sub.Relations {
		all = append(all, r.Ptr, r.Row, r.Pos)
	}
	require.Equal(t, uint64(0x2c916c78a0df5d38), digest(t, all...))
}

func TestReservedHeteroWorkersAllocateWhatWorkerBytesSays(t *testing.T) {
	g := citations(7)
	for _, form := range []int{0, 1, 2} {
		cfg := Config{Fanouts: fanouts([]int64{5, 5}, nil)}
		if form == 0 {
			cfg.Sampler = &Labor{BatchDependency: 1}
		}
		s, err := New(g.form(form), cfg)
		require.NoError(t, err)
		for _, stamp := range []bool{true, false} {
			budget := mem.NewBudget(0)
			w, err := s.NewWorker(budget, stamp, 2)
			require.NoError(t, err)
			d := Demand{Nodes: g.nodes, Edges: []int64{20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000}}
			require.NoError(t, w.Reserve(d))
			require.LessOrEqual(t, budget.Used(), s.WorkerBytes(d, stamp))
			var out cutBatch
			for batch := range uint64(5) {
				require.NoError(t, cutWorker{w}.Sample(context.Background(), Key{Batch: batch},
					[][]int64{{1, 97, 5}, {97}, {3}, nil, {2}}, &out))
			}
			require.LessOrEqual(t, budget.Peak(), s.WorkerBytes(d, stamp), "a batch within the demand allocated")
			w.Close()
			require.Zero(t, budget.Used())
		}
	}
}

// Threads of a hop's tasks that run together are never more than the Worker has, and every type is served.
func TestHeteroShare(t *testing.T) {
	g := citations(7)
	for _, threads := range []int{1, 2, 3, 8} {
		w := newTypesWorker(t, g.form(0), Config{Fanouts: fanouts([]int64{50, 50}, nil)}, true, threads)
		for i, r := range w.nodes {
			r.first, r.end = 0, int(g.nodes[i])
		}
		var busy, most atomic.Int64
		served := make([]atomic.Bool, len(g.nodes))
		require.NoError(t, w.share(0, func(group, n int) error {
			now := busy.Add(int64(n))
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			runtime.Gosched()
			served[group].Store(true)
			busy.Add(int64(-n))
			return nil
		}))
		require.LessOrEqual(t, most.Load(), int64(threads))
		require.Zero(t, busy.Load())
		for i := range served {
			require.True(t, served[i].Load(), "type %d", i)
		}
		var p *guard.PanicError
		err := guard.Run(func() error { return w.share(0, func(int, int) error { panic("a defect") }) })
		require.ErrorAs(t, err, &p)
	}
}
