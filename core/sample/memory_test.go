package sample

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

func TestReservedWorkersAllocateWhatWorkerBytesSays(t *testing.T) {
	const nodes = 5000
	indptr, indices := make([]int64, nodes+1), make([]int32, 0, nodes*8)
	for v := range nodes {
		for j := range 8 {
			indices = append(indices, int32((v*31+j*977+1)%nodes))
		}
		indptr[v+1] = int64(len(indices))
	}
	s, err := newPlain(plainGraph{NumNodes: nodes, Indptr: indptr, Indices32: indices},
		plainConfig{Fanouts: []int64{5, 5, 5}})
	require.NoError(t, err)
	seeds := make([]int64, 200)
	for i := range seeds {
		seeds[i] = int64(i)
	}
	for _, stamp := range []bool{true, false} {
		budget := mem.NewBudget(0)
		w, err := s.NewWorker(budget, stamp, 1)
		require.NoError(t, err)
		d := plainDemand(nodes, 200*(5+25+125))
		require.NoError(t, w.Reserve(d))
		reserved := budget.Used()
		require.LessOrEqual(t, reserved, s.WorkerBytes(d, stamp))
		var out Subgraph
		for batch := range uint64(5) {
			require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, seeds, &out))
		}
		require.Equal(t, reserved, budget.Used(), "a batch within the demand allocated")
		require.Equal(t, budget.Used(), budget.Peak(), "a reserve held more for a while")
		w.Close()
		require.Zero(t, budget.Used())
	}
}
