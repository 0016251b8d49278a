package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// int64Bytes views values as memory.
func int64Bytes(v []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*8) // the bytes of v
}

// edgesOf returns a [2, E] source over src and dst.
func edgesOf(src, dst []int64) Source {
	return Dense(manifest.DType_INT64, []int64{2, int64(len(src))}, int64Bytes(append(slices.Clone(src), dst...)))
}

// oracle is the simplest stable sort by target.
func oracle(src, dst []int64, numNodes int64) (indptr, indices, ids []int64) {
	order := make([]int64, len(src))
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortStableFunc(order, func(a, b int64) int { return int(dst[a] - dst[b]) })
	indptr = make([]int64, numNodes+1)
	for _, e := range order {
		indices = append(indices, src[e])
		indptr[dst[e]+1]++
	}
	for i := range numNodes {
		indptr[i+1] += indptr[i]
	}
	return indptr, indices, order
}

func randomEdges(rng *rand.Rand, n int64, e int) (src, dst []int64) {
	for range e {
		src = append(src, rng.Int64N(n))
		f := rng.Float64()
		dst = append(dst, int64(float64(n)*f*f*f)) // skewed: low ids have many in-edges
	}
	return src, dst
}

// buildCSC sorts the edges of a homogeneous graph.
func buildCSC(ctx context.Context, edges EdgeSource, numNodes int64, budget *mem.Budget) (*CSC, error) {
	return BuildRelation(ctx, edges, edgesName, numNodes, numNodes, budget)
}

func TestBuildCSC(t *testing.T) {
	rng := explore.Rand(t, 1, 2)
	for _, tc := range []struct {
		name string
		n    int64
		e    int
	}{{"no edges", 3, 0}, {"one edge", 1, 1}, {"small", 7, 50}, {"several threads", 1000, 100_017}} {
		t.Run(tc.name, func(t *testing.T) {
			src, dst := randomEdges(rng, tc.n, tc.e)
			budget := mem.NewBudget(0)
			csc, err := buildCSC(context.Background(), edgesOf(src, dst), tc.n, budget)
			require.NoError(t, err)
			indptr, indices, ids := oracle(src, dst, tc.n)
			require.Equal(t, indptr, allOffsets(csc.Indptr))
			for i := range indices {
				require.EqualValues(t, indices[i], csc.Indices32[i])
				if csc.EdgeIDs32 != nil {
					require.EqualValues(t, ids[i], csc.EdgeIDs32[i])
				} else {
					require.EqualValues(t, ids[i], i)
				}
			}
			csc.Close()
			csc.Close()
			require.Zero(t, budget.Used())
		})
	}
}

// TestFailedBuildLeavesNothing builds within budgets from too small to enough, and under a context that is cancelled.
func TestFailedBuildLeavesNothing(t *testing.T) {
	src, dst := randomEdges(rand.New(rand.NewPCG(3, 3)), 500, 20_000)
	edges := edgesOf(src, dst)
	failures := 0
	for limit := int64(1); ; limit *= 2 {
		budget := mem.NewBudget(limit)
		csc, err := buildCSC(context.Background(), edges, 500, budget)
		if err == nil {
			require.EqualValues(t, 20_000, csc.NumEdges())
			csc.Close()
			require.Zero(t, budget.Used())
			break
		}
		require.ErrorIs(t, err, mem.ErrBudget)
		require.Zero(t, budget.Used())
		failures++
	}
	require.Greater(t, failures, 10)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	budget := mem.NewBudget(0)
	_, err := buildCSC(ctx, edges, 500, budget)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, budget.Used())
	_, err = buildCSC(context.Background(), Source{DType: manifest.DType_INT64, Shape: []int64{2, 1}, File: "e.npy"}, 500,
		budget)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = buildCSC(context.Background(), edges, 0, budget)
	require.ErrorIs(t, err, ErrInvalid)
}
