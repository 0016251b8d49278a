package sample

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// Seeds of several types, mixed, are drawn for as those of each type in their order.
func TestMixedSeeds(t *testing.T) {
	g := citations(explore.Seed(t, 7))
	first := []int64{0}
	for _, n := range g.form(0).NumNodes {
		first = append(first, first[len(first)-1]+n)
	}
	seeds := [][]int64{{97, 1, 2, 97}, {4, 5}, nil, nil, {3}}
	mixed := []int64{first[4] + 3, 97, first[1] + 4, 1, first[1] + 5, 2, 97}
	for form := range 3 {
		for _, cfg := range []Config{
			{Fanouts: fanouts([]int64{5, 3}, map[int][]int64{2: {0, -1}})},
			{Fanouts: fanouts([]int64{5, 3}, nil), Sampler: &Labor{BatchDependency: 1}},
		} {
			w := newTypesWorker(t, g.form(form), cfg, true, 2)
			require.Equal(t, first, w.sampler.first)
			for batch := range uint64(4) {
				var flat Subgraph
				require.NoError(t, w.Draw(context.Background(), Key{Batch: batch}, Request{Seeds: mixed}, &flat))
				flat.Ptr, flat.Row, flat.Pos = slices.Clone(flat.Ptr), slices.Clone(flat.Row), slices.Clone(flat.Pos)
				flat.Weight = slices.Clone(flat.Weight)
				got := w.sampler.cut(flat)
				require.LessOrEqual(t, int64(len(flat.Row)), flat.Room)
				var want cutBatch
				require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, seeds, &want))
				require.Equal(t, want.NodesPerHop, got.NodesPerHop)
				for i, nodes := range want.Nodes {
					require.True(t, slices.Equal(nodes, got.Nodes[i]), "nodes of type %d", i)
				}
				for i, r := range want.Relations {
					e := got.Relations[i]
					same := slices.Equal(r.Ptr, e.Ptr) && slices.Equal(r.Row, e.Row) && slices.Equal(r.Pos, e.Pos) &&
						slices.Equal(r.Weight, e.Weight)
					require.True(t, same && slices.Equal(r.EdgesPerHop, e.EdgesPerHop), "relation %d", i)
				}
				require.Equal(t, cfg.Sampler != nil, flat.Weight != nil)
			}
		}
	}
}

func TestTypeOf(t *testing.T) {
	first := []int64{0, 0, 5, 5, 9, 9}
	for v := range int64(9) {
		want := slices.IndexFunc(first[1:], func(end int64) bool { return v < end })
		require.Equal(t, want, TypeOf(first, v))
	}
}

// Within its demand a worker that draws flat batches allocates nothing.
func TestReservedFlatWorkers(t *testing.T) {
	g := citations(7)
	s, err := New(g.form(2), Config{Fanouts: fanouts([]int64{5, 5}, nil), Sampler: &Labor{BatchDependency: 1}})
	require.NoError(t, err)
	budget, stamp := mem.NewBudget(0), false
	w, err := s.NewWorker(budget, stamp, 1)
	require.NoError(t, err)
	defer w.Close()
	d := Demand{Nodes: g.nodes, Edges: []int64{20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000}}
	require.NoError(t, w.Reserve(d))
	for batch := range uint64(5) {
		var out Subgraph
		require.NoError(t, w.Draw(context.Background(), Key{Batch: batch}, Request{Seeds: []int64{1, 97, 5, 1300}}, &out))
	}
	require.LessOrEqual(t, budget.Peak(), s.WorkerBytes(d, stamp))
}
