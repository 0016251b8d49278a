package sample

import (
	"context"
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// reference draws a batch as the documentation says, slowly: one edge after the other, with Go maps, without units,
// stages, stamps or threads. It shares no code with the package.
func reference(indptr, indices []int64, cfg plainConfig, key Key, seeds []int64) Subgraph {
	sub := Subgraph{Nodes: append([]int64{}, seeds...), Ptr: []int64{0}, Row: []uint32{}, Pos: []int64{},
		NodesPerHop: []int64{int64(len(seeds))}}
	local := map[int64]int{}
	for i, v := range seeds {
		if _, found := local[v]; !found {
			local[v] = i
		}
	}
	first := 0
	for hop, k := range cfg.Fanouts {
		end := len(sub.Nodes)
		edges := len(sub.Row)
		for _, v := range sub.Nodes[first:end] {
			for _, e := range referenceEdges(indptr, indices, cfg, key, hop, v, k) {
				if _, found := local[e.source]; !found {
					local[e.source] = len(sub.Nodes)
					sub.Nodes = append(sub.Nodes, e.source)
				}
				if cfg.Walks == nil {
					sub.Pos = append(sub.Pos, e.pos)
				}
				if cfg.Labor != nil || cfg.Walks != nil {
					sub.Weight = append(sub.Weight, e.weight)
				}
				sub.Row = append(sub.Row, uint32(local[e.source]))
			}
			sub.Ptr = append(sub.Ptr, int64(len(sub.Row)))
		}
		sub.NodesPerHop = append(sub.NodesPerHop, int64(len(sub.Nodes)-end))
		sub.EdgesPerHop = append(sub.EdgesPerHop, int64(len(sub.Row)-edges))
		first = end
	}
	return sub
}

type referenceEdge struct {
	pos, source int64
	weight      float32
}

// referenceEdges is what target v gets in a hop.
func referenceEdges(indptr, indices []int64, cfg plainConfig, key Key, hop int, v, k int64) (edges []referenceEdge) {
	begin, end := indptr[v], indptr[v+1]
	rng := newReferenceRNG(1, key.Seed, key.Epoch, key.Batch, uint64(hop), uint64(v))
	var offsets []int64
	switch {
	case cfg.Walks != nil:
		return referenceWalks(indptr, indices, cfg.Walks[hop], key, hop, v, k)
	case cfg.Labor != nil:
		return referenceLabor(indices[begin:end], referenceWeights(cfg.Weights, begin, end), begin, *cfg.Labor, key, hop, k)
	case cfg.Weights != nil:
		offsets = referenceWeighted(rng, referenceWeights(cfg.Weights, begin, end), k, cfg.Replace)
	default:
		offsets = referenceDraw(rng, end-begin, k, cfg.Replace)
	}
	for _, offset := range offsets {
		edges = append(edges, referenceEdge{pos: begin + offset, source: indices[begin+offset]})
	}
	return edges
}

func referenceDraw(rng *referenceRNG, deg, k int64, replace bool) []int64 {
	var drawn []int64
	switch {
	case k == -1 || !replace && deg <= k:
		for i := range deg {
			drawn = append(drawn, i)
		}
	case replace:
		for i := int64(0); i < k && deg > 0; i++ {
			drawn = append(drawn, rng.below(deg))
		}
	default:
		have := map[int64]bool{}
		for j := deg - k; j < deg; j++ {
			t := rng.below(j + 1)
			if have[t] {
				t = j
			}
			have[t] = true
			drawn = append(drawn, t)
		}
	}
	return drawn
}

// referenceRNG is splitmix64, keyed as the documentation of stream says.
type referenceRNG struct{ state uint64 }

func newReferenceRNG(words ...uint64) *referenceRNG {
	r := &referenceRNG{}
	for _, word := range words {
		r.state ^= word
		r.state = r.next()
	}
	return r
}

func (r *referenceRNG) next() uint64 {
	r.state += 11400714819323198485
	z := r.state
	z ^= z >> 30
	z *= 13787848793156543929
	z ^= z >> 27
	z *= 10723151780598845931
	return z ^ (z >> 31)
}

func (r *referenceRNG) below(n int64) int64 {
	for {
		hi, lo := bits.Mul64(r.next(), uint64(n))
		if lo >= -uint64(n)%uint64(n) {
			return int64(hi)
		}
	}
}

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
	require.Len(t, got.Weight, len(want.Weight))
	for i, w := range want.Weight { // of floating point, whose last digits depend on the order of work
		require.InEpsilon(t, w, got.Weight[i], 1e-5)
	}
}
