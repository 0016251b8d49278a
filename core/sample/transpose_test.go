package sample

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// Every edge is found once under its source, with its target, in ascending order.
func checkTransposed(t *testing.T, g *Subgraph) {
	t.Helper()
	ptr, target, edge := make([]int64, len(g.Nodes)+1), make([]int32, len(g.Row)), make([]int32, len(g.Row))
	for i := range ptr {
		ptr[i] = -7 // what was there before does not matter
	}
	g.Transpose(ptr, target, edge)
	require.Zero(t, ptr[0])
	require.EqualValues(t, len(g.Row), ptr[len(g.Nodes)])
	seen := make([]bool, len(g.Row))
	for s := range g.Nodes {
		last := int32(-1)
		for i := ptr[s]; i < ptr[s+1]; i++ {
			e := edge[i]
			require.Greater(t, e, last)
			require.EqualValues(t, s, g.Row[e])
			require.LessOrEqual(t, g.Ptr[target[i]], int64(e))
			require.Greater(t, g.Ptr[target[i]+1], int64(e))
			require.False(t, seen[e])
			seen[e], last = true, e
		}
	}
}

func TestTransposeGroupsEdgesBySource(t *testing.T) {
	rng := explore.Rand(t, 5, 6)
	for _, size := range []struct{ nodes, edges int }{{1, 0}, {1, 3}, {7, 40}, {300, 5000}, {2000, 100}} {
		indptr, indices := make([]int64, size.nodes+1), make([]int64, size.edges)
		for range size.edges {
			indptr[1+rng.IntN(size.nodes)]++
		}
		for v := range size.nodes {
			indptr[v+1] += indptr[v]
		}
		for i := range indices {
			indices[i] = rng.Int64N(int64(size.nodes))
		}
		for _, fanouts := range [][]int64{{All}, {3, 2}, {2, All, 4}} {
			t.Run(fmt.Sprint(size, fanouts), func(t *testing.T) {
				s, err := newPlain(plainGraph{NumNodes: int64(size.nodes), Indptr: indptr, Indices64: indices},
					plainConfig{Fanouts: fanouts})
				require.NoError(t, err)
				w, err := s.NewWorker(mem.NewBudget(0), true, 1)
				require.NoError(t, err)
				defer w.Close()
				var g Subgraph
				require.NoError(t, w.Sample(context.Background(), Key{}, []int64{0, int64(size.nodes) - 1, 0}, &g))
				checkTransposed(t, &g)
			})
		}
	}
}

func TestTransposeRefusesSlicesOfOtherSizes(t *testing.T) {
	g := &Subgraph{Nodes: []int64{4, 5}, Ptr: []int64{0, 1}, Row: []uint32{1}}
	require.Panics(t, func() { g.Transpose(make([]int64, 2), make([]int32, 1), make([]int32, 1)) })
	require.Panics(t, func() { g.Transpose(make([]int64, 3), make([]int32, 2), make([]int32, 1)) })
	g.Transpose(make([]int64, 3), make([]int32, 1), make([]int32, 1))
}

func BenchmarkTranspose(b *testing.B) {
	const nodes, targets, degree = 100_000, 20_000, 10
	rng := rand.New(rand.NewPCG(1, 1))
	g := &Subgraph{Nodes: make([]int64, nodes), Ptr: make([]int64, targets+1), Row: make([]uint32, targets*degree)}
	for t := range g.Ptr {
		g.Ptr[t] = int64(t) * degree
	}
	for e := range g.Row {
		g.Row[e] = uint32(rng.IntN(nodes))
	}
	ptr, target, edge := make([]int64, nodes+1), make([]int32, len(g.Row)), make([]int32, len(g.Row))
	for b.Loop() {
		g.Transpose(ptr, target, edge)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(g.Row)), "ns/edge")
}
