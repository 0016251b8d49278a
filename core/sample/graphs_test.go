package sample

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// testGraph is a graph with skewed degrees: isolated nodes, many small ones, a few hubs, repeated edges and self-loops.
type testGraph struct {
	indptr, wide []int64
	narrow       []int32
}

func newTestGraph(nodes int, seed uint64) *testGraph {
	rng := newReferenceRNG(seed, 0)
	g := &testGraph{indptr: make([]int64, 1, nodes+1)}
	for v := range nodes {
		deg := []int64{0, 1, 3, 10, 11, 40, 64, 65, 90}[rng.below(9)]
		if v%97 == 0 {
			deg = 500 + rng.below(3000)
		}
		for range deg {
			u := rng.below(1 + rng.below(int64(nodes))) // small ids more often
			g.wide, g.narrow = append(g.wide, u), append(g.narrow, int32(u))
		}
		g.indptr = append(g.indptr, int64(len(g.wide)))
	}
	return g
}

func (g *testGraph) nodes() int64 { return int64(len(g.indptr) - 1) }

func (g *testGraph) seeds(n int, seed uint64) []int64 {
	rng := newReferenceRNG(seed, 1)
	seeds := make([]int64, n)
	for i := range seeds {
		seeds[i] = rng.below(g.nodes())
	}
	return seeds
}

// Fetch implements Adjacency. It finds every edge through its target, as a cache of single lists does.
func (g *testGraph) Fetch(_ context.Context, d Drawn, out []int64) error {
	if len(d.Ptr) != len(d.Targets)+1 || len(d.Pos) != len(out) || d.Ptr[len(d.Targets)]-d.Ptr[0] != int64(len(out)) {
		return fmt.Errorf("%d targets, %d offsets, %d positions for %d ids", len(d.Targets), len(d.Ptr), len(d.Pos), len(out))
	}
	for i, v := range d.Targets {
		list := g.wide[g.indptr[v]:g.indptr[v+1]]
		for e := d.Ptr[i] - d.Ptr[0]; e < d.Ptr[i+1]-d.Ptr[0]; e++ {
			offset := d.Pos[e] - g.indptr[v]
			if offset < 0 || offset >= int64(len(list)) {
				return fmt.Errorf("position %d of target %d, whose edges are at %d to %d", d.Pos[e], v, g.indptr[v], g.indptr[v+1])
			}
			out[e] = list[offset]
		}
	}
	return nil
}

// forms are the ways in which a graph's adjacency can be given.
func (g *testGraph) forms() map[string]plainGraph {
	return map[string]plainGraph{
		"ram32":     {NumNodes: g.nodes(), Indptr: g.indptr, Indices32: g.narrow},
		"ram64":     {NumNodes: g.nodes(), Indptr: g.indptr, Indices64: g.wide},
		"adjacency": {NumNodes: g.nodes(), Indptr: g.indptr, Adjacency: g},
	}
}

// newWorker returns a Worker that the test closes, after which nothing may be left of its memory.
func newWorker(t testing.TB, g plainGraph, cfg plainConfig, stamp bool, threads int) *Worker {
	t.Helper()
	s, err := newPlain(g, cfg)
	require.NoError(t, err)
	return workerOf(t, s, stamp, threads)
}

func workerOf(t testing.TB, s *Sampler, stamp bool, threads int) *Worker {
	t.Helper()
	budget := mem.NewBudget(0)
	w, err := s.NewWorker(budget, stamp, threads)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.Close()
		require.Zero(t, budget.Used())
	})
	return w
}

// requireEqual compares batches element by element; require.Equal alone would tell nil from empty.
func requireEqual(t testing.TB, want, got Subgraph) {
	t.Helper()
	require.Equal(t, want.NodesPerHop, got.NodesPerHop)
	require.Equal(t, want.EdgesPerHop, got.EdgesPerHop)
	require.Equal(t, append([]int64{}, want.Nodes...), append([]int64{}, got.Nodes...))
	require.Equal(t, append([]int64{}, want.Ptr...), append([]int64{}, got.Ptr...))
	require.Equal(t, append([]int64{}, want.Pos...), append([]int64{}, got.Pos...))
	require.Equal(t, append([]uint32{}, want.Row...), append([]uint32{}, got.Row...))
	require.Equal(t, append([]uint32{}, want.Tree...), append([]uint32{}, got.Tree...))
	require.Len(t, got.Weight, len(want.Weight))
	for i, w := range want.Weight { // of floating point, whose last digits depend on the order of work
		require.InEpsilon(t, w, got.Weight[i], 1e-5)
	}
}

// testTypes is a graph of node types and relations: it has a testGraph for each relation.
type testTypes struct {
	nodes     []int64
	relations []testRelation
	named     bool
	nodeTimes [][]int64 // by type, by which edges have the times of their sources; nil: edges have times of their own
}

// plainTypes is a graph without types.
func plainTypes(g *testGraph) *testTypes {
	return &testTypes{nodes: []int64{g.nodes()}, relations: []testRelation{{testGraph: g}}}
}

type testRelation struct {
	*testGraph
	source, target int
}

// testForms are a graph without types, the same with one named type, and one of several types.
func testForms(nodes int, seed uint64) map[string]*testTypes {
	plain := newTestGraph(nodes, seed)
	named := plainTypes(plain)
	named.named = true
	return map[string]*testTypes{"no types": plainTypes(plain), "one type": named, "several types": citations(seed)}
}

// newTestTypes has named types, and relations whose sources are drawn anew.
func newTestTypes(seed uint64, nodes []int64, ends ...[2]int) *testTypes {
	g := &testTypes{nodes: nodes, named: true}
	for i, end := range ends {
		r := testRelation{testGraph: newTestGraph(int(nodes[end[1]]), seed+uint64(i)), source: end[0], target: end[1]}
		rng := newReferenceRNG(seed, uint64(i), 5)
		if nodes[r.source] == 0 {
			clear(r.indptr)
			r.wide, r.narrow = nil, nil
		}
		for p := range r.wide {
			r.wide[p] = rng.below(1 + rng.below(nodes[r.source]))
			r.narrow[p] = int32(r.wide[p])
		}
		g.relations = append(g.relations, r)
	}
	return g
}

// citations has relations within a type, between types both ways, two that number the same type, and a type without
// nodes.
func citations(seed uint64) *testTypes {
	return newTestTypes(seed, []int64{1200, 700, 30, 0, 50}, [2]int{0, 0}, [2]int{1, 0}, [2]int{0, 1}, [2]int{2, 0},
		[2]int{0, 2}, [2]int{1, 2}, [2]int{3, 1}, [2]int{4, 4})
}

// form gives the graph with relation i in form i+shift of those that there are.
func (g *testTypes) form(shift int) Graph {
	out := Graph{NumNodes: g.nodes, Named: g.named}
	for i, r := range g.relations {
		relation := Relation{Source: r.source, Target: r.target, Indptr: offsets.Of(r.indptr)}
		switch (i + shift) % 3 {
		case 0:
			relation.Indices32 = r.narrow
		case 1:
			relation.Indices64 = r.wide
		case 2:
			relation.Adjacency = r.testGraph
		}
		out.Relations = append(out.Relations, relation)
	}
	return out
}

// fanouts gives every relation of citations the same or, with a part, others.
func fanouts(all []int64, part map[int][]int64) [][]int64 {
	return (&testTypes{relations: make([]testRelation, 8)}).fanouts(all, part)
}

// fanouts gives every relation the same or, with a part, others.
func (g *testTypes) fanouts(all []int64, part map[int][]int64) [][]int64 {
	out := make([][]int64, len(g.relations))
	for i := range out {
		out[i] = all
		if k, ok := part[i]; ok {
			out[i] = k
		}
	}
	return out
}

// someSeeds returns up to n nodes of each type, some of them twice.
func (g *testTypes) someSeeds(n int64, seed uint64) [][]int64 {
	out := make([][]int64, len(g.nodes))
	for i, count := range g.nodes {
		rng := newReferenceRNG(seed, uint64(i))
		for range min(n, count) {
			out[i] = append(out[i], rng.below(count))
		}
	}
	return out
}

func newTypesWorker(t testing.TB, g Graph, cfg Config, stamp bool, threads int) cutWorker {
	t.Helper()
	s, err := New(g, cfg)
	require.NoError(t, err)
	return cutWorker{workerOf(t, s, stamp, threads)}
}

func requireCutEqual(t testing.TB, want, got cutBatch) {
	t.Helper()
	require.Equal(t, want.NodesPerHop, got.NodesPerHop)
	require.Len(t, got.Nodes, len(want.Nodes))
	for i := range want.Nodes {
		require.Equal(t, want.Nodes[i], append([]int64{}, got.Nodes[i]...), "nodes of type %d", i)
	}
	require.Len(t, got.Trees, len(want.Trees))
	for i := range want.Trees {
		require.Equal(t, want.Trees[i], append([]uint32{}, got.Trees[i]...), "trees of type %d", i)
	}
	require.Len(t, got.Relations, len(want.Relations))
	for i, r := range got.Relations {
		require.Equal(t, want.Relations[i], cutEdges{
			Ptr: append([]int64{}, r.Ptr...), Row: append([]uint32{}, r.Row...), Pos: append([]int64{}, r.Pos...),
			EdgesPerHop: append([]int64{}, r.EdgesPerHop...),
		}, "relation %d", i)
	}
}
