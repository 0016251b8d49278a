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
	"freshgo/core/sample"
)

// drawn is a batch of a random graph with isolated nodes, self loops, repeated edges and hubs, of seeds that repeat.
func drawn(t testing.TB, seed uint64, fanouts []int64, numSeeds int) *sample.Subgraph {
	return drawnOf(t, 1+int(seed*37%120), seed, fanouts, numSeeds)
}

func drawnOf(t testing.TB, nodes int, seed uint64, fanouts []int64, numSeeds int) *sample.Subgraph {
	rng := rand.New(rand.NewPCG(seed, 1))
	indptr, indices := []int64{0}, []int32{}
	for v := range nodes {
		degree := []int{0, 0, 1, 2, 4, 9}[rng.IntN(6)]
		for range degree {
			switch source := rng.IntN(nodes); rng.IntN(8) {
			case 0:
				indices = append(indices, int32(v), int32(v)) // twice, so that draws without replacement repeat it
			case 1:
				indices = append(indices, int32(source), int32(source))
			case 2:
				indices = append(indices, int32(source%(1+nodes/20)))
			default:
				indices = append(indices, int32(source))
			}
		}
		indptr = append(indptr, int64(len(indices)))
	}
	sampler, err := sample.New(homogeneous(int64(nodes), indptr, indices),
		sample.Config{Fanouts: [][]int64{fanouts}, Replace: seed%3 == 0})
	require.NoError(t, err)
	worker, err := sampler.NewWorker(mem.NewBudget(0), true, 1)
	require.NoError(t, err)
	t.Cleanup(worker.Close)
	seeds := make([]int64, numSeeds)
	for i := range seeds {
		seeds[i] = rng.Int64N(int64(nodes))
	}
	var g sample.Subgraph
	require.NoError(t, worker.Sample(context.Background(), sample.Key{Seed: seed}, seeds, &g))
	return &g
}

// single returns the slot of one node's row in the history, or Miss.
type single = func(layer int, node int64) int32

// slots is a history that has about a fraction of the rows, of each layer and node by themselves.
func slots(seed uint64, fraction float64) single {
	return func(layer int, node int64) int32 {
		rng := rand.New(rand.NewPCG(seed, uint64(layer)<<32|uint64(node)))
		if rng.Float64() < fraction {
			return rng.Int32()
		}
		return Miss
	}
}

func hits(lookup single) func(int, int64) bool {
	return func(layer int, node int64) bool { return lookup(layer, node) != Miss }
}

func newPruner(t testing.TB) (*Pruner, *Pruned) {
	p, out := NewPruner(mem.NewBudget(0)), new(Pruned)
	t.Cleanup(func() {
		p.Close()
		out.Free()
		require.Zero(t, p.budget.Used())
	})
	return p, out
}

// cases calls check with many batches and histories.
func cases(t *testing.T, check func(t *testing.T, g *sample.Subgraph, lookup single)) {
	for _, fanouts := range [][]int64{{3}, {-1}, {3, 2}, {-1, 4}, {4, 3, 2}, {2, -1, 3}, {3, 2, 2, 2}, {1, 1, 1, 1}} {
		for _, fraction := range []float64{0, 0.1, 0.5, 0.9, 1} {
			t.Run(fmt.Sprintf("%v/%v", fanouts, fraction), func(t *testing.T) {
				for seed := range uint64(12) {
					check(t, drawn(t, seed, fanouts, []int{0, 1, 5, 30}[seed%4]), slots(seed, fraction))
				}
			})
		}
	}
}

// A pruned batch is what a breadth-first search leaves of it, from the same Pruner for batch after batch.
func TestPruneEqualsReference(t *testing.T) {
	p, out := newPruner(t)
	cases(t, func(t *testing.T, g *sample.Subgraph, lookup single) {
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(lookup), out))
		reference := referencePrune(g, hits(lookup))
		require.Equal(t, reference.flat(g, lookup), flatten(out))
		for l := 1; l <= reference.layers; l++ {
			csr := &p.rows[l-1]
			for v := range csr.End {
				want := []int{}
				if reference.computed[state{l, v}] {
					want = append(want, inEdges(g, v)...)
				}
				require.Equal(t, want, ints(csr.Row(v)), "layer %d, row %d", l, v)
				require.Equal(t, int64(len(want)), csr.Len(v))
			}
			for v := len(csr.End); v < len(g.Nodes); v++ {
				require.False(t, reference.computed[state{l, v}])
			}
		}
	})
}

// Layers of several chunks, and leaves that are named in more than one of them.
func TestPruneLargeBatch(t *testing.T) {
	p, out := newPruner(t)
	for seed, fraction := range []float64{0, 0.2, 0.4} {
		g, lookup := drawnOf(t, 20_000, uint64(seed), []int64{5, 6, 7}, 1000), slots(uint64(seed), fraction)
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(lookup), out))
		require.Greater(t, len(out.Layers[0].Edge), 2*edgeChunk)
		require.Equal(t, referencePrune(g, hits(lookup)).flat(g, lookup), flatten(out))
	}
}

// Lookup is asked once for each row of a hidden level, from the outermost inwards.
func TestLookups(t *testing.T) {
	p, out := newPruner(t)
	cases(t, func(t *testing.T, g *sample.Subgraph, lookup single) {
		got := [][2]int64{}
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(func(layer int, node int64) int32 {
			got = append(got, [2]int64{int64(layer), node})
			return lookup(layer, node)
		}), out))
		want := [][2]int64{}
		for l := len(out.Levels) - 1; l > 0; l-- {
			for _, v := range out.Levels[l].Nodes {
				want = append(want, [2]int64{int64(l), out.Graph.Nodes[v]})
			}
		}
		require.Equal(t, want, got)
	})
}

// After Decide the hidden levels are as they remain, in numbers of the batch before.
func TestDecide(t *testing.T) {
	p, out := newPruner(t)
	cases(t, func(t *testing.T, g *sample.Subgraph, lookup single) {
		require.NoError(t, p.Decide(g, g.NodesPerHop[0], Each(lookup), out))
		decided := flatten(out)
		p.Build(g, out)
		built := flatten(out)
		for l := 1; l < len(out.Levels); l++ {
			require.Equal(t, decided.Computed[l], built.Computed[l])
			require.Equal(t, decided.Hits[l], built.Hits[l])
			require.Equal(t, decided.Slots[l], built.Slots[l])
			require.Len(t, decided.Tables[l], len(built.Tables[l]))
			for i, n := range built.Tables[l] {
				require.Equal(t, built.Kept[n], decided.Tables[l][i])
			}
		}
	})
}

func misses(int, int64) int32 { return Miss }

// Prune is Decide, then Build.
func (p *Pruner) Prune(g *sample.Subgraph, numSeeds int64, lookup Lookup, out *Pruned) error {
	if err := p.Decide(g, numSeeds, lookup, out); err != nil {
		return err
	}
	p.Build(g, out)
	return nil
}

// Where the history has nothing the batch is untouched, and the levels are its hops.
func TestNothingHit(t *testing.T) {
	p, out := newPruner(t)
	cases(t, func(t *testing.T, g *sample.Subgraph, _ single) {
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(misses), out))
		require.Equal(t, flatten(&Pruned{Graph: *g}).Row, flatten(out).Row)
		require.Equal(t, longs(g.Nodes), longs(out.Graph.Nodes))
		require.Equal(t, longs(g.Ptr), longs(out.Graph.Ptr))
		require.Equal(t, longs(g.Pos), longs(out.Graph.Pos))
		require.Equal(t, g.NodesPerHop, out.Graph.NodesPerHop)
		require.Equal(t, g.EdgesPerHop, out.Graph.EdgesPerHop)
		all := upTo(len(g.Nodes))
		require.Equal(t, all, ints(out.Loaded))
		require.Equal(t, all, ints(out.Kept))
		layers, rows := len(g.EdgesPerHop), 0
		for l := layers; l >= 0; l-- {
			rows += int(g.NodesPerHop[layers-l])
			if l == layers {
				require.Equal(t, int64(rows), out.Layers[l-1].NumDst)
				continue
			}
			require.Equal(t, all[:rows], ints(out.Levels[l].Nodes))
			require.Equal(t, ints(g.Row[:g.Ptr[out.Layers[l].NumDst]]), ints(out.Layers[l].Source))
			require.Equal(t, upTo(len(out.Layers[l].Edge)), ints(out.Layers[l].Edge))
			if l > 0 {
				require.Equal(t, all[:rows], ints(out.Levels[l].Computed))
				require.Empty(t, out.Levels[l].Hits)
			}
		}
	})
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// Lists that are pruned need not have been drawn: their content changes nothing, and leaving those of the last hop out
// changes nothing but what is said of them.
func TestPrunedListsDoNotMatter(t *testing.T) {
	p, out := newPruner(t)
	cases(t, func(t *testing.T, g *sample.Subgraph, lookup single) {
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(lookup), out))
		want := flatten(out)
		reference := referencePrune(g, hits(lookup))

		spoilt := *g
		spoilt.Row = slices.Clone(g.Row)
		spoilt.Pos = slices.Clone(g.Pos)
		for v := range len(g.Ptr) - 1 {
			if !reference.any(reference.computed, v) {
				for e := g.Ptr[v]; e < g.Ptr[v+1]; e++ {
					spoilt.Row[e], spoilt.Pos[e] = math.MaxUint32, math.MinInt64
				}
			}
		}
		require.NoError(t, p.Prune(&spoilt, g.NodesPerHop[0], Each(lookup), out))
		require.Equal(t, want, flatten(out))

		less := withoutLists(g, reference)
		require.NoError(t, p.Prune(less, g.NodesPerHop[0], Each(lookup), out))
		got := flatten(out)
		for n, v := range want.Kept {
			if v < len(g.Ptr)-1 && !reference.any(reference.computed, v) {
				require.Contains(t, []int{0, want.Degree[n]}, got.Degree[n])
			} else {
				require.Equal(t, want.Degree[n], got.Degree[n])
			}
		}
		for _, f := range []*flat{&want, &got} {
			f.Degree, f.Kept, f.PlainNodes, f.PlainEdges = nil, nil, 0, 0
		}
		require.Equal(t, want, got)
	})
}

// withoutLists is g without the lists of nodes of the last expanded hop that are not computed, and so without the
// leaves that only they name: what a sampler would draw that asked the history first.
func withoutLists(g *sample.Subgraph, r *plainReference) *sample.Subgraph {
	inner := len(g.Ptr) - 1
	last := inner - int(g.NodesPerHop[r.layers-1])
	less := &sample.Subgraph{
		Nodes: slices.Clone(g.Nodes[:inner]), Ptr: []int64{0},
		NodesPerHop: slices.Clone(g.NodesPerHop), EdgesPerHop: slices.Clone(g.EdgesPerHop),
	}
	less.NodesPerHop[r.layers], less.EdgesPerHop[r.layers-1] = 0, 0
	leaf := map[uint32]uint32{}
	for v := range inner {
		for e := g.Ptr[v]; e < g.Ptr[v+1] && (v < last || r.any(r.computed, v)); e++ {
			source := g.Row[e]
			if int(source) >= inner {
				if _, found := leaf[source]; !found {
					leaf[source] = uint32(len(less.Nodes))
					less.Nodes = append(less.Nodes, g.Nodes[source])
					less.NodesPerHop[r.layers]++
				}
				source = leaf[source]
			}
			less.Row, less.Pos = append(less.Row, source), append(less.Pos, g.Pos[e])
			if v >= last {
				less.EdgesPerHop[r.layers-1]++
			}
		}
		less.Ptr = append(less.Ptr, int64(len(less.Row)))
	}
	return less
}

// With more in the history nothing more is loaded or kept.
func TestMoreHitsLoadNoMore(t *testing.T) {
	p, out := newPruner(t)
	for seed := range uint64(60) {
		g := drawn(t, seed, []int64{4, 3, 2}, 12)
		var before map[int32]bool
		for _, fraction := range []float64{0, 0.2, 0.4, 0.8, 1} { // each history has what the one before has
			require.NoError(t, p.Prune(g, 12, Each(slots(seed, fraction)), out))
			loaded := map[int32]bool{}
			for _, n := range out.Loaded {
				loaded[out.Kept[n]] = true
			}
			for v := range loaded {
				require.True(t, before == nil || before[v])
			}
			before = loaded
		}
	}
}
