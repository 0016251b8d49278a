package sample

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

func TestNewHeteroRefuses(t *testing.T) {
	g := citations(7)
	for _, tt := range []struct {
		name    string
		change  func(g *Graph, cfg *Config)
		target  error
		message string
	}{
		{"missing fanouts", func(_ *Graph, c *Config) {
			c.Fanouts = c.Fanouts[1:]
		}, ErrFanout, "sample: fanouts of 7 relations, want 8 as there are: invalid fanout"},
		{"other hops", func(_ *Graph, c *Config) {
			c.Fanouts[3] = []int64{1}
		}, ErrFanout,
			"sample: 1 fanouts of relation 3 and 2 of relation 0, want one for each hop: invalid fanout"},
		{"no hops of one", func(_ *Graph, c *Config) {
			c.Fanouts[2] = nil
		}, ErrFanout, "sample: 0 fanouts of relation 2 and 2 of relation 0, want one for each hop: invalid fanout"},
		{"fanout -2", func(_ *Graph, c *Config) {
			c.Fanouts[3] = []int64{1, -2}
		}, ErrFanout,
			"sample: fanout -2 of relation 3, hop 1, want a positive number, 0 for none or -1 for all: invalid fanout"},
		{"no relations", func(g *Graph, c *Config) {
			g.Relations, c.Fanouts = nil, nil
		}, ErrGraph, "sample: no relations, want one at least: inconsistent graph"},
		{"unknown type", func(g *Graph, _ *Config) {
			g.Relations[2].Source = 5
		}, ErrGraph,
			"sample: relation 2: from node type 5 to 1, want types below 5: inconsistent graph"},
		{"negative nodes", func(g *Graph, _ *Config) {
			g.NumNodes = []int64{1200, 700, 30, -1, 50}
		}, ErrGraph, "sample: -1 nodes of type 3: inconsistent graph"},
		{"indptr of the source", func(g *Graph, _ *Config) {
			g.Relations[1].Indptr = g.Relations[2].Indptr
		}, ErrGraph,
			"sample: relation 1: indptr has 701 elements for 1200 nodes, want one more than nodes: inconsistent graph"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			graph, cfg := g.form(0), Config{Fanouts: fanouts([]int64{2, 2}, nil)}
			tt.change(&graph, &cfg)
			_, err := New(graph, cfg)
			require.ErrorIs(t, err, tt.target)
			require.EqualError(t, err, tt.message)
		})
	}
	s, err := New(g.form(0), Config{Fanouts: fanouts([]int64{2, 2}, nil)})
	require.NoError(t, err)
	_, err = s.NewWorker(mem.NewBudget(0), false, 0)
	require.EqualError(t, err, "sample: 0 threads, want at least 1")
	budget := mem.NewBudget(minBuffer + 100)
	_, err = s.NewWorker(budget, false, 1)
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Zero(t, budget.Used())
}

func requireHeteroWorks(t *testing.T, w cutWorker, g *testTypes, cfg Config) {
	t.Helper()
	seeds := [][]int64{{97, 1, 2}, {4, 5}, nil, nil, {3}}
	var sub cutBatch
	require.NoError(t, w.Sample(context.Background(), Key{Batch: 77}, seeds, &sub))
	requireCutEqual(t, g.reference(cfg, Key{Batch: 77}, seeds, nil, nil), sub)
}

func TestHeteroBadSeeds(t *testing.T) {
	g, cfg := citations(3), Config{Fanouts: fanouts([]int64{3, 3}, nil)}
	w := newTypesWorker(t, g.form(0), cfg, true, 2)
	total := w.sampler.First()[5]
	for _, bad := range []int64{-1, total} {
		out := Subgraph{Nodes: []int64{42}}
		err := w.Draw(context.Background(), Key{}, Request{Seeds: []int64{3, bad}}, &out)
		require.ErrorIs(t, err, ErrSeed)
		require.EqualError(t, err, fmt.Sprintf("sample: seed %d at index 1, want a node in [0, %d): seed out of range", bad,
			total))
		require.Equal(t, Subgraph{Nodes: []int64{42}}, out)
		requireHeteroWorks(t, w, g, cfg)
	}
}

func TestHeteroCancelAtEveryLook(t *testing.T) {
	g, cfg := citations(3), Config{Fanouts: fanouts([]int64{20, 5}, nil)}
	for form := range 3 {
		for _, threads := range []int{1, 3} {
			w := newTypesWorker(t, g.form(form), cfg, false, threads)
			for n := 0; ; n += 1 + n/4 {
				sub := cutBatch{Nodes: [][]int64{{42}}}
				err := w.Sample(newCountdown(n), Key{}, [][]int64{{97, 0, 194}, {1, 97}, {0}, nil, nil}, &sub)
				if err == nil {
					require.Greater(t, n, 20, "too few looks at the context")
					break
				}
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, cutBatch{Nodes: [][]int64{{42}}}, sub)
				requireHeteroWorks(t, w, g, cfg)
			}
		}
	}
}

func TestHeteroFetchErrorsComeThrough(t *testing.T) {
	g, cfg := citations(3), Config{Fanouts: fanouts([]int64{3, 3}, nil)}
	for relation := range 3 {
		for hop := range 2 {
			graph := g.form(0)
			r := &graph.Relations[relation]
			f := &failingFetch{testGraph: g.relations[relation].testGraph, err: errors.New("disk"), good: hop}
			r.Indices32, r.Indices64, r.Adjacency = nil, nil, f
			w := newTypesWorker(t, graph, cfg, true, 2)
			var sub cutBatch
			err := w.Sample(context.Background(), Key{}, [][]int64{{97, 1}, {97, 2}, nil, nil, nil}, &sub)
			require.ErrorIs(t, err, f.err)
			require.ErrorContains(t, err, fmt.Sprintf("sample: relation %d: sample: fetching", relation))
			requireHeteroWorks(t, w, g, cfg)
		}
	}
}

// Whatever the budget, a batch is right or refused, and all memory comes back.
func TestHeteroBudgets(t *testing.T) {
	g, cfg := citations(3), Config{Fanouts: fanouts([]int64{40, -1}, nil)}
	seeds := [][]int64{{97, 0, 194, 291}, {97, 194}, {0}, nil, {1}}
	want := g.reference(cfg, Key{}, seeds, nil, nil)
	for _, threads := range []int{1, 3} {
		s, err := New(g.form(1), cfg)
		require.NoError(t, err)
		refused := 0
		for limit := int64(512 << 10); ; limit += limit / 8 {
			budget := mem.NewBudget(limit)
			w, err := s.NewWorker(budget, threads == 1, threads)
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
	}
}

func TestHeteroHostileGraphs(t *testing.T) {
	g, cfg := citations(3), Config{Fanouts: fanouts([]int64{-1, -1}, nil)}
	for _, threads := range []int{1, 3} {
		for name, spoil := range map[string]func(r *Relation){
			"source of another type": func(r *Relation) {
				r.Indices32 = append([]int32{}, r.Indices32...)
				r.Indices32[0] = 1200
			},
			"negative source":  func(r *Relation) { r.Indices32 = append([]int32{}, r.Indices32...); r.Indices32[0] = -1 },
			"indptr decreases": func(r *Relation) { r.Indptr = append([]int64{}, r.Indptr...); r.Indptr[1] = 1 << 40 },
		} {
			t.Run(fmt.Sprint(name, threads), func(t *testing.T) {
				graph := g.form(0)
				spoil(&graph.Relations[0])
				w := newTypesWorker(t, graph, cfg, true, threads)
				var sub cutBatch
				err := w.Sample(context.Background(), Key{}, [][]int64{{0, 97}, {97}, nil, nil, nil}, &sub)
				var p *guard.PanicError
				require.True(t, errors.As(err, &p) || errors.Is(err, ErrTooLarge), "%v", err)
			})
		}
	}
}
