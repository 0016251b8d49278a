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
		}, ErrFanout, "sample: fanouts of 7 relations, expected 8 as there are: invalid fanout"},
		{"other hops", func(_ *Graph, c *Config) {
			c.Fanouts[3] = []int64{1}
		}, ErrFanout,
			"sample: 1 fanouts of relation 3 and 2 of relation 0, expected one for each hop: invalid fanout"},
		{"no hops of one", func(_ *Graph, c *Config) {
			c.Fanouts[2] = nil
		}, ErrFanout, "sample: 0 fanouts of relation 2 and 2 of relation 0, expected one for each hop: invalid fanout"},
		{"fanout -2", func(_ *Graph, c *Config) {
			c.Fanouts[3] = []int64{1, -2}
		}, ErrFanout,
			"sample: fanout -2 of relation 3, hop 1, expected a positive number, 0 for none or -1 for all: invalid fanout"},
		{"no relations", func(g *Graph, c *Config) {
			g.Relations, c.Fanouts = nil, nil
		}, ErrGraph, "sample: no relations, expected one at least: inconsistent graph"},
		{"unknown type", func(g *Graph, _ *Config) {
			g.Relations[2].Source = 5
		}, ErrGraph,
			"sample: relation 2: from node type 5 to 1, expected types below 5: inconsistent graph"},
		{"negative nodes", func(g *Graph, _ *Config) {
			g.NumNodes = []int64{1200, 700, 30, -1, 50}
		}, ErrGraph, "sample: -1 nodes of type 3: inconsistent graph"},
		{"indptr of the source", func(g *Graph, _ *Config) {
			g.Relations[1].Indptr = g.Relations[2].Indptr
		}, ErrGraph,
			"sample: relation 1: indptr has the lists of 700 nodes, expected 1200: inconsistent graph"},
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
	require.EqualError(t, err, "sample: 0 threads, expected at least 1")
	budget := mem.NewBudget(minBuffer + 100)
	_, err = s.NewWorker(budget, false, 1)
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Zero(t, budget.Used())
}

func TestHeteroHostileGraphs(t *testing.T) {
	g, cfg := citations(3), Config{Fanouts: fanouts([]int64{-1, -1}, nil)}
	for _, threads := range []int{1, 3} {
		for name, spoil := range map[string]func(r *Relation){
			"source of another type": func(r *Relation) {
				r.Indices32 = append([]int32{}, r.Indices32...)
				r.Indices32[0] = 1200
			},
			"negative source": func(r *Relation) { r.Indices32 = append([]int32{}, r.Indices32...); r.Indices32[0] = -1 },
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
