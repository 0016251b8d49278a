package offsets

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// randomOffsets returns offsets of lists of very different lengths.
func randomOffsets(rng *rand.Rand, nodes int) []int64 {
	all := make([]int64, 1, nodes+1)
	longest := []int64{1, 3, 40, 70_000, 1 << 40}[rng.IntN(5)]
	for range nodes {
		degree := rng.Int64N(3)
		if rng.IntN(9) == 0 {
			degree = rng.Int64N(longest)
		}
		all = append(all, all[len(all)-1]+degree)
	}
	return all
}

func check(t *testing.T, want []int64, got *Table) {
	t.Helper()
	nodes := int64(len(want)) - 1
	for _, first := range []int64{0, 1, nodes / 3, nodes / 2} {
		for _, end := range []int64{first, nodes / 2, nodes - 1, nodes} {
			degrees := make([]int64, max(end-first, 0))
			got.Degrees(first, degrees)
			for i, degree := range degrees {
				require.Equal(t, want[first+int64(i)+1]-want[first+int64(i)], degree, "node %d from %d", i, first)
			}
		}
	}
	require.Equal(t, nodes, got.NumNodes())
	require.Equal(t, want[nodes], got.NumEdges())
	require.Equal(t, want[nodes], got.Begin(nodes))
	longest := int64(0)
	defer func() { require.Equal(t, longest, got.Longest()) }()
	for v := range nodes {
		longest = max(longest, want[v+1]-want[v])
		begin, end := got.Range(v)
		require.Equal(t, [2]int64{want[v], want[v+1]}, [2]int64{begin, end}, "node %d of %d", v, nodes)
		require.Equal(t, want[v], got.Begin(v))
		require.Equal(t, want[v+1]-want[v], got.Degree(v))
		if end > begin {
			require.Equal(t, v, got.Find(begin))
			require.Equal(t, v, got.Find(end-1))
		}
	}
}

// TestTablesHoldOffsets compares tables with their offsets, put in one piece or in pieces of any size, in any order and
// at the same time.
func TestTablesHoldOffsets(t *testing.T) {
	rng := explore.Rand(t, 1, 1)
	sizes := []int{0, 1, 2, 27, 28, 29, 55, 56, 57, 84, 1000}
	for range explore.Rounds(300) {
		want := randomOffsets(rng, sizes[rng.IntN(len(sizes))])
		nodes := int64(len(want)) - 1
		check(t, want, Of(want))

		budget := mem.NewBudget(0)
		b, err := NewBuilder(budget, mem.Topology, nodes, want[nodes])
		require.NoError(t, err)
		require.Equal(t, Bytes(nodes, want[nodes]), budget.Used())
		cuts := []int{0, len(want)}
		for range rng.IntN(8) {
			cuts = append(cuts, rng.IntN(len(want)))
		}
		slices.Sort(cuts)
		var all sync.WaitGroup
		for _, i := range rng.Perm(len(cuts) - 1) {
			all.Go(func() { b.Put(int64(cuts[i]), want[cuts[i]:cuts[i+1]]) })
		}
		all.Wait()
		check(t, want, b.Table())
		b.Table().Free()
		require.Zero(t, budget.Used())
	}
}

// TestWrongOffsetsDoNoHarm puts offsets that fall or exceed the edges: whoever checks them finds out, and frees the
// table.
func TestWrongOffsetsDoNoHarm(t *testing.T) {
	rng := explore.Rand(t, 1, 2)
	for range explore.Rounds(100) {
		wrong := make([]int64, 1+rng.IntN(100))
		for i := range wrong {
			wrong[i] = rng.Int64() - rng.Int64()
		}
		b, err := NewBuilder(mem.NewBudget(0), mem.Topology, int64(len(wrong))-1, 1000)
		require.NoError(t, err)
		b.Put(0, wrong)
		b.Table().Free()
	}
}

// TestOffsetsOfManyNodesAreSmall computes the memory at the sizes of papers100M, MAG240M and a graph of two hubs.
func TestOffsetsOfManyNodesAreSmall(t *testing.T) {
	require.Less(t, Bytes(111_059_956, 1_615_685_872), int64(260_000_000))
	require.Less(t, Bytes(244_160_499, 1_728_364_232), int64(565_000_000))
	require.Equal(t, int64(lineBytes+wideNodes*8), Bytes(2, 1<<40))
}
