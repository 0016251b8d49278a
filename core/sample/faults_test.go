package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

func TestNewRefuses(t *testing.T) {
	good := star(3)
	graph := func(change func(*plainGraph)) plainGraph { g := good; change(&g); return g }
	tests := []struct {
		name    string
		graph   plainGraph
		fanouts []int64
		target  error
		message string
	}{
		{"fanout -2", good, []int64{-2}, ErrFanout,
			"sample: fanout -2 of relation 0, hop 0, expected a positive number, 0 for none or -1 for all: invalid fanout"},
		{"short indptr", graph(func(g *plainGraph) {
			g.Indptr = g.Indptr[1:]
		}), []int64{1}, ErrGraph,
			"sample: indptr has the lists of 3 nodes, expected 4: inconsistent graph"},
		{"negative nodes", plainGraph{NumNodes: -1}, []int64{1}, ErrGraph, "sample: -1 nodes of type 0: inconsistent graph"},
		{"indptr not from 0", graph(func(g *plainGraph) {
			g.Indptr = []int64{1, 3, 3, 3, 3}
		}), []int64{1}, ErrGraph,
			"sample: indptr starts with 1, expected 0: inconsistent graph"},
		{"no array", graph(func(g *plainGraph) { g.Indices32 = nil }), []int64{1}, ErrGraph,
			"sample: 0 index arrays, expected one of Indices32, Indices64, Packed and Adjacency: inconsistent graph"},
		{"two arrays", graph(func(g *plainGraph) {
			g.Indices64 = make([]int64, 3)
		}), []int64{1}, ErrGraph,
			"sample: 2 index arrays, expected one of Indices32, Indices64, Packed and Adjacency: inconsistent graph"},
		{"short array", graph(func(g *plainGraph) {
			g.Indices32 = g.Indices32[1:]
		}), []int64{1}, ErrGraph,
			"sample: 2 indices, expected 3 as indptr ends: inconsistent graph"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newPlain(tt.graph, plainConfig{Fanouts: tt.fanouts})
			require.ErrorIs(t, err, tt.target)
			require.EqualError(t, err, tt.message)
		})
	}
}

func TestNewWorkerRefuses(t *testing.T) {
	s, err := newPlain(star(1000), plainConfig{Fanouts: []int64{5}})
	require.NoError(t, err)
	_, err = s.NewWorker(mem.NewBudget(0), true, 0)
	require.EqualError(t, err, "sample: 0 threads, expected at least 1")
	for _, stamp := range []bool{true, false} {
		_, err = s.NewWorker(mem.NewBudget(100), stamp, 1)
		require.ErrorIs(t, err, mem.ErrBudget)
	}
}

func TestGraphWithoutNodesOrEdges(t *testing.T) {
	for _, g := range []plainGraph{{Indptr: []int64{0}}, {NumNodes: 3, Indptr: make([]int64, 4)}} {
		w := newWorker(t, g, plainConfig{Fanouts: []int64{5, -1}}, true, 1)
		seeds := []int64{2, 0, 2}[:min(3, g.NumNodes)]
		var sub Subgraph
		require.NoError(t, w.Sample(context.Background(), Key{}, seeds, &sub))
		requireEqual(t, reference(g.Indptr, nil, plainConfig{Fanouts: []int64{5, -1}}, Key{}, seeds), sub)
	}
}

// A failed Sample leaves the Subgraph untouched and the Worker as good as new.
func TestBadSeeds(t *testing.T) {
	for _, g := range testForms(500, 3) {
		cfg := Config{Fanouts: g.fanouts([]int64{3, 3}, nil)}
		w := newTypesWorker(t, g.form(0), cfg, true, 2)
		first := w.sampler.first
		total := first[len(first)-1]
		for _, bad := range []int64{-1, total, math.MinInt64, math.MaxInt64} {
			out := Subgraph{Nodes: []int64{42}}
			err := w.Draw(context.Background(), Key{}, Request{Seeds: []int64{1, 2, bad}}, &out)
			require.ErrorIs(t, err, ErrSeed)
			require.EqualError(t, err, fmt.Sprintf("sample: seed %d at index 2, expected a node in [0, %d): seed out of range",
				bad, total))
			require.Equal(t, Subgraph{Nodes: []int64{42}}, out)
			requireWorks(t, w, g, cfg)
		}
	}
}

func requireWorks(t *testing.T, w cutWorker, g *testTypes, cfg Config) {
	t.Helper()
	seeds := g.someSeeds(20, 8)
	var sub cutBatch
	require.NoError(t, w.Sample(context.Background(), Key{Batch: 77}, seeds, &sub))
	requireCutEqual(t, g.reference(cfg, Key{Batch: 77}, seeds, nil, nil), sub)
}

// countdown is a context that is cancelled by the n-th look at it.
type countdown struct {
	context.Context
	looks chan struct{}
}

func newCountdown(n int) countdown {
	c := countdown{context.Background(), make(chan struct{}, n)}
	for range n {
		c.looks <- struct{}{}
	}
	return c
}

func (c countdown) Err() error {
	select {
	case <-c.looks:
		return nil
	default:
		return context.Canceled
	}
}

func TestCancelAtEveryLook(t *testing.T) {
	for name, g := range testForms(500, 3) {
		cfg, seeds := Config{Fanouts: g.fanouts([]int64{20, 5, -1}, nil)}, g.someSeeds(200, 4)
		if len(g.nodes) > 1 {
			cfg.Fanouts, seeds = fanouts([]int64{20, 5}, nil), [][]int64{{97, 0, 194}, {1, 97}, {0}, nil, nil}
		}
		for form := range 3 {
			for _, threads := range []int{1, 3} {
				explore.Run(t, fmt.Sprintf("%s/form=%d/threads=%d", name, form, threads), func(t *testing.T) {
					w := newTypesWorker(t, g.form(form), cfg, false, threads)
					for n := 0; ; n += 1 + n/4 {
						sub := cutBatch{Nodes: [][]int64{{42}}}
						err := w.Sample(newCountdown(n), Key{}, seeds, &sub)
						if err == nil {
							require.Greater(t, n, 20, "too few looks at the context")
							return
						}
						require.ErrorIs(t, err, context.Canceled)
						require.Equal(t, cutBatch{Nodes: [][]int64{{42}}}, sub)
						requireWorks(t, w, g, cfg)
					}
				})
			}
		}
	}
}

type failingFetch struct {
	*testGraph
	err  error
	good int // calls that succeed
}

func (f *failingFetch) Fetch(ctx context.Context, d Drawn, out []int64) error {
	if f.good--; f.good == -1 {
		return f.err
	}
	return f.testGraph.Fetch(ctx, d, out)
}

func TestFetchErrorsComeThrough(t *testing.T) {
	for name, g := range testForms(500, 3) {
		cfg, seeds := Config{Fanouts: g.fanouts([]int64{3, 3, 3}, nil)}, g.someSeeds(20, 1)
		for relation := range min(3, len(g.relations)) {
			for hop := range cfg.Fanouts[0] {
				graph := g.form(0)
				r := &graph.Relations[relation]
				f := &failingFetch{testGraph: g.relations[relation].testGraph, err: errors.New("disk"), good: hop}
				r.Indices32, r.Indices64, r.Adjacency = nil, nil, f
				w := newTypesWorker(t, graph, cfg, true, 1)
				var sub cutBatch
				err := w.Sample(context.Background(), Key{}, seeds, &sub)
				require.ErrorIs(t, err, f.err)
				where := "sample: fetching"
				if name != "no types" {
					where = fmt.Sprintf("sample: relation %d: sample: fetching", relation)
				}
				require.ErrorContains(t, err, where)
				requireWorks(t, w, g, cfg)
			}
		}
	}
}

// Whatever the budget, a batch is right or refused, and all memory comes back.
func TestBudgets(t *testing.T) {
	for name, g := range testForms(500, 3) {
		cfg, seeds, least := Config{Fanouts: g.fanouts([]int64{40, 40, -1}, nil)}, g.someSeeds(300, 4), int64(128<<10)
		if len(g.nodes) > 1 {
			cfg.Fanouts, least = fanouts([]int64{40, -1}, nil), 512<<10
			seeds = [][]int64{{97, 0, 194, 291}, {97, 194}, {0}, nil, {1}}
		}
		want := g.reference(cfg, Key{}, seeds, nil, nil)
		for form := range 3 {
			for threads, stamp := range map[int]bool{1: true, 2: true, 3: false} {
				t.Run(fmt.Sprintf("%s/form=%d/threads=%d", name, form, threads), func(t *testing.T) {
					s, err := New(g.form(form), cfg)
					require.NoError(t, err)
					refused := 0
					for limit := least; ; limit += limit / 8 {
						budget := mem.NewBudget(limit)
						w, err := s.NewWorker(budget, stamp, threads)
						require.NoError(t, err)
						var sub cutBatch
						err = cutWorker{w}.Sample(context.Background(), Key{}, seeds, &sub)
						if err == nil {
							requireCutEqual(t, want, sub)
						} else {
							require.ErrorIs(t, err, mem.ErrBudget)
							refused++
						}
						w.Close()
						require.Zero(t, budget.Used())
						if err == nil {
							break
						}
					}
					require.Greater(t, refused, 5)
				})
			}
		}
	}
}

func TestTooManyEdges(t *testing.T) {
	w := newWorker(t, star(3), plainConfig{Fanouts: []int64{maxEdges + 1}, Replace: true}, true, 1)
	var sub Subgraph
	err := w.Sample(context.Background(), Key{}, []int64{0}, &sub)
	require.ErrorIs(t, err, ErrTooLarge)
	require.EqualError(t, err,
		"sample: 0 edges drawn and 1099511627777 for node 0, expected at most 1099511627776: batch too large")
}

func TestTooManyNodes(t *testing.T) {
	var m idMap
	require.NoError(t, m.init(mem.NewBudget(0), 10, true))
	defer m.free()
	m.begin()
	require.NoError(t, m.reserve(nil, maxLocals))
	require.ErrorIs(t, m.reserve(nil, maxLocals+1), ErrTooLarge)
	require.ErrorIs(t, m.reserve(make([]int64, 10), maxLocals-9), ErrTooLarge)
}

// A source that is not a node is a broken promise of the caller; it ends as an error and reaches no memory.
func TestHostileGraphs(t *testing.T) {
	hostile := map[string]func(*plainGraph){
		"source too large":  func(g *plainGraph) { g.Indices32[len(g.Indices32)/2] = math.MaxInt32 },
		"source negative":   func(g *plainGraph) { g.Indices32[len(g.Indices32)/2] = -1 },
		"indptr decreases":  func(g *plainGraph) { g.Indptr[250] = 0 },
		"indptr beyond end": func(g *plainGraph) { g.Indptr[250] = math.MaxInt64 / 2 },
	}
	for name, spoil := range hostile {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(t *testing.T) {
				graph := newTestGraph(500, 3).forms()["ram32"]
				spoil(&graph)
				all := make([]int64, 500)
				for i := range all {
					all[i] = int64(i)
				}
				w := newWorker(t, graph, plainConfig{Fanouts: []int64{-1, -1}}, true, threads)
				var sub Subgraph
				err := w.Sample(context.Background(), Key{}, all, &sub)
				var p *guard.PanicError
				require.True(t, errors.As(err, &p) || errors.Is(err, ErrTooLarge), "%v", err)
			})
		}
	}
}

func TestShuffleStopsWithTheContext(t *testing.T) {
	ids := make([]int64, 10*ahead)
	for i := range ids {
		ids[i] = int64(i)
	}
	err := Shuffle(newCountdown(3), ids, 1, 2)
	require.ErrorIs(t, err, context.Canceled)
	have := map[int64]bool{}
	for _, v := range ids {
		have[v] = true
	}
	require.Len(t, have, len(ids), "no longer a permutation")
}
