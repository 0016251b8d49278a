package history

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// A Pruner and a Pruned take the memory that PrunedBytes returns.
func TestPrunedBytes(t *testing.T) {
	cases(t, func(t *testing.T, g *sample.Subgraph, lookup single) {
		need := PrunedBytes(g.NodesPerHop, g.EdgesPerHop)
		p, out := NewPruner(mem.NewBudget(need)), new(Pruned)
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(lookup), out))
		require.Equal(t, need, p.budget.Peak())
		require.NoError(t, p.Saves(out, one, roomForSaves(out)))
		require.Equal(t, need, p.budget.Peak())
		out.Free()
		p.Close()
		require.Zero(t, p.budget.Used())
	})
}

// Without memory nothing is pruned and nothing is kept; with it, the same Pruner works.
func TestPruneWithoutMemory(t *testing.T) {
	g := drawn(t, 5, []int64{3, 3, 3}, 20)
	need := PrunedBytes(g.NodesPerHop, g.EdgesPerHop)
	for _, free := range []int64{1, need / 2, need - 1} {
		budget := mem.NewBudget(need)
		p, out := NewPruner(budget), new(Pruned)
		require.NoError(t, budget.Reserve(mem.Batch, need-free))
		require.ErrorIs(t, p.Prune(g, 20, Each(misses), out), mem.ErrBudget)
		require.Equal(t, flatten(&Pruned{}), flatten(out))
		budget.Release(mem.Batch, need-free)
		require.NoError(t, p.Prune(g, 20, Each(misses), out))
		require.Equal(t, longs(g.Nodes), longs(out.Graph.Nodes))
		out.Free()
		p.Close()
		require.Zero(t, budget.Used())
	}
}

func TestPruneTooLarge(t *testing.T) {
	p, out := newPruner(t)
	g := drawn(t, 5, []int64{3}, 20)
	require.NoError(t, p.Prune(g, 20, Each(misses), out))
	huge := sample.Subgraph{Ptr: []int64{0, 0}, NodesPerHop: []int64{1, 0}, EdgesPerHop: []int64{math.MaxInt32 + 1}}
	require.ErrorIs(t, p.Prune(&huge, 1, Each(misses), out), sample.ErrTooLarge)
	require.Equal(t, flatten(&Pruned{}), flatten(out))
}

func TestPruneTakesTheSeedsOfTheBatch(t *testing.T) {
	p, out := newPruner(t)
	g := drawn(t, 5, []int64{3, 2}, 20)
	require.Panics(t, func() { _ = p.Prune(g, 19, Each(misses), out) })
}

// In steady state nothing is allocated.
func TestPruneAllocatesNothing(t *testing.T) {
	p, out := newPruner(t)
	batches := []*sample.Subgraph{drawn(t, 1, []int64{4, 3, 2}, 30), drawn(t, 2, []int64{4, 3, 2}, 20)}
	var saves [2][][]float32
	for i, g := range batches {
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(slots(0, 0)), out))
		saves[i] = roomForSaves(out)
	}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for i, g := range batches {
			if p.Prune(g, g.NodesPerHop[0], Each(misses), out) != nil || p.Saves(out, one, saves[i]) != nil {
				t.FailNow()
			}
		}
	}))
}
