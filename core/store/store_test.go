package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/ssd"
)

// randomGraph is an input with its expected topology.
type randomGraph struct {
	Input
	indptr, indices, ids []int64
	rows                 map[string][]byte // dense rows of each tensor
}

// newRandomGraph makes a graph with a tensor of random bytes for each of the given row shapes.
func newRandomGraph(
	seed uint64, numNodes int64, numEdges int, shapes map[string][]int64, dtype manifest.DType,
) *randomGraph {
	rng := rand.New(rand.NewPCG(seed, 7))
	src, dst := randomEdges(rng, numNodes, numEdges)
	g := &randomGraph{rows: map[string][]byte{}}
	g.indptr, g.indices, g.ids = oracle(src, dst, numNodes)
	g.NumNodes = numNodes
	g.EdgeIndex = edgesOf(src, dst)
	g.Splits = map[string]Source{}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		shape := shapes[name]
		n := numNodes * int64(dtype.Size())
		for _, d := range shape {
			n *= d
		}
		data := randomBytes(rng, n)
		g.rows[name] = data
		g.NodeTensors = append(g.NodeTensors, NamedSource{name, Dense(dtype, append([]int64{numNodes}, shape...), data)})
	}
	return g
}

func randomBytes(rng *rand.Rand, n int64) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

// mustConvert converts within memory and opens the result.
func mustConvert(t *testing.T, in Input, memory int64) *Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g.freshgo")
	budget := mem.NewBudget(memory)
	require.NoError(t, convert(context.Background(), ssd.OS, in, path, ConvertOptions{}, budget))
	require.Zero(t, budget.Used(), "memory left behind")
	names, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, names, 1, "files left behind")
	s := mustOpen(t, path)
	require.NoError(t, s.Verify(context.Background(), nil))
	return s
}

// allOffsets returns where each list begins, and the last one ends.
func allOffsets(t *offsets.Table) (all []int64) {
	for v := range t.NumNodes() + 1 {
		all = append(all, t.Begin(v))
	}
	return all
}

// requireGraph compares everything that a store holds with the graph it was made from.
func requireGraph(t *testing.T, g *randomGraph, s *Store) {
	t.Helper()
	ctx, budget := context.Background(), mem.NewBudget(0)
	indptr, err := s.EdgeTypes()[0].LoadIndptr(ctx, budget, mem.Topology)
	require.NoError(t, err)
	require.Equal(t, g.indptr, allOffsets(indptr))
	indices, err := s.edgeTypes[0].Indices.LoadIDs(ctx, s.edgeTypes[0].NumSources, budget, mem.Topology)
	require.NoError(t, err)
	for i, v := range mem.Slice[int32](indices) {
		if g.indices[i] != int64(v) {
			require.Equal(t, g.indices[i], v, "indices[%d]", i)
		}
	}
	require.EqualValues(t, len(g.indices), s.EdgeTypes()[0].NumEdges)
	if s.EdgeTypes()[0].EdgeIDs != nil {
		ids, err := s.edgeTypes[0].EdgeIDs.LoadIDs(ctx, s.edgeTypes[0].NumEdges, budget, mem.Topology)
		require.NoError(t, err)
		for i, v := range mem.Slice[uint32](ids) {
			if g.ids[i] != int64(v) {
				require.Equal(t, g.ids[i], v, "edge_ids[%d]", i)
			}
		}
		ids.Free()
	}
	for _, tensor := range s.NodeTypes()[0].Tensors {
		block, err := tensor.Load(ctx, budget, mem.FeatureCache)
		require.NoError(t, err)
		require.True(t, bytes.Equal(g.rows[tensor.Name], block.Bytes()), tensor.Name)
		block.Free()
	}
	indptr.Free()
	indices.Free()
	require.Zero(t, budget.Used())
}

func TestRoundTripOfEveryDType(t *testing.T) {
	for d := manifest.DType_BOOL; d.Known(); d++ {
		t.Run(d.Label(), func(t *testing.T) {
			g := newRandomGraph(uint64(d), 1000, 5000, map[string][]int64{"x": {3}, "z": {}}, d)
			s := mustConvert(t, g.Input, 0)
			require.Equal(t, d, s.NodeTypes()[0].Tensors[0].DType)
			requireGraph(t, g, s)
		})
	}
}

func TestRoundTripOfEveryLayout(t *testing.T) {
	for _, tc := range []struct {
		rowBytes, perPage int64
	}{{1, 4096}, {400, 10}, {512, 8}, {1000, 4}, {1100, 0}, {1300, 3}, {3000, 0}, {4000, 1}, {4096, 1}, {4097, 0}, {8192,
		0}, {70000, 0}, {1 << 20, 0}, {1<<20 + 1, 0}} {
		explore.Run(t, fmt.Sprint(tc.rowBytes), func(t *testing.T) {
			n := max(3, min(3000, (4<<20)/tc.rowBytes))
			g := newRandomGraph(uint64(tc.rowBytes), n, 10, map[string][]int64{"x": {tc.rowBytes}}, manifest.DType_UINT8)
			s := mustConvert(t, g.Input, 0)
			require.EqualValues(t, tc.perPage, s.NodeTypes()[0].Tensors[0].Layout.RowsPerPage)
			requireGraph(t, g, s)
		})
	}
}
