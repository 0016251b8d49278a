package loader

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// heteroInputs are one heterogeneous graph for memory and for a store.
func heteroInputs() (draw.GraphInput, store.Input) {
	rng := rand.New(rand.NewPCG(7, 7))
	counts := map[string]int64{"user": 400, "item": 900, "tag": 0}
	memory := draw.GraphInput{}
	disk := store.Input{}
	for _, name := range []string{"user", "item", "tag"} {
		x := make([]byte, 8*counts[name])
		memory.NodeTypes = append(memory.NodeTypes, draw.GraphNodes{
			Name: name, NumNodes: counts[name], Tensors: []draw.GraphTensor{{Name: "x", DType: manifest.DType_FLOAT32,
				RowShape: []int64{2}, Rows: x}},
		})
		disk.NodeTypes = append(disk.NodeTypes, store.NodeInput{Name: name, NumNodes: counts[name]})
	}
	for _, name := range [][3]string{{"user", "likes", "item"}, {"item", "liked", "user"}, {"user", "knows", "user"},
		{"tag", "of", "item"}} {
		var sources, targets []int64
		if counts[name[0]] > 0 {
			for range 5000 {
				sources, targets = append(sources, rng.Int64N(counts[name[0]])), append(targets, rng.Int64N(counts[name[2]]))
			}
		}
		edges := store.Dense(manifest.DType_INT64, []int64{2, int64(len(sources))}, mem.Bytes(append(sources, targets...)))
		memory.EdgeTypes = append(memory.EdgeTypes,
			draw.GraphEdges{Source: name[0], Relation: name[1], Target: name[2], EdgeIndex: edges})
		disk.EdgeTypes = append(disk.EdgeTypes, store.EdgeInput{Source: name[0], Relation: name[1], Target: name[2],
			EdgeIndex: edges})
	}
	return memory, disk
}

// TestHeteroGraphIsSampledAsItsStore: the same graph in memory and on disk gives the same batches.
func TestHeteroGraphIsSampledAsItsStore(t *testing.T) {
	memory, disk := heteroInputs()
	g, err := draw.NewGraph(context.Background(), memory)
	require.NoError(t, err)
	defer func() { require.Zero(t, g.Budget.Used()) }()
	defer g.Close()
	require.Len(t, g.Parts().Tensors, 3)
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, store.Convert(context.Background(), ssd.OS, disk, path, store.ConvertOptions{}))
	s, err := store.Open(ssd.OS, path)
	require.NoError(t, err)

	ctx, budget := context.Background(), mem.NewBudget(0)
	stored := sample.Graph{Named: true}
	place := map[string]int{}
	for i, n := range s.NodeTypes() {
		stored.NumNodes, place[n.Name] = append(stored.NumNodes, n.Count), i
	}
	for _, e := range s.EdgeTypes() {
		indptr, err := e.LoadIndptr(ctx, budget, mem.Topology)
		require.NoError(t, err)
		indices, err := e.Indices.LoadIDs(ctx, e.NumSources, budget, mem.Topology)
		require.NoError(t, err)
		defer indptr.Free()
		defer indices.Free()
		stored.Relations = append(stored.Relations, sample.Relation{
			Source: place[e.Source], Target: place[e.Target], Indptr: indptr,
			Indices32: mem.Slice[int32](indices),
		})
	}
	var batches [2]sample.Subgraph
	for i, graph := range []sample.Graph{sampledGraph(g), stored} {
		sampler, err := sample.New(graph, sample.Config{Fanouts: [][]int64{{5, 3}, {5, 3}, {5, 3}, {5, 3}}})
		require.NoError(t, err)
		w, err := sampler.NewWorker(budget, i == 0, 1+i)
		require.NoError(t, err)
		defer w.Close()
		seeds := []int64{1, 2, 3, graph.NumNodes[0] + 4, graph.NumNodes[0] + 5}
		require.NoError(t, w.Sample(ctx, sample.Key{Seed: 1}, seeds, &batches[i]))
	}
	require.Positive(t, batches[0].EdgesPerHop[0])
	require.Equal(t, batches[0], batches[1])
}

func TestHeteroGraphRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(in *draw.GraphInput)
		want   string
	}{
		"unknown type": {func(in *draw.GraphInput) {
			in.EdgeTypes[0].Target = "itm"
		}, `unknown node type "itm", the node types are ["item" "tag" "user"]`},
		"no edge types": {func(in *draw.GraphInput) { in.EdgeTypes = nil }, "no edge type"},
		"other type":    {func(in *draw.GraphInput) { in.EdgeTypes[0].Target = "tag" }, "(user, likes, tag).edge_index[1, "},
		"short tensor": {func(in *draw.GraphInput) {
			in.NodeTypes[1].Tensors[0].Rows = make([]byte, 8)
		}, `tensor "item.x" has 8 bytes, expected 900 rows of 8 bytes`},
		"negative nodes": {func(in *draw.GraphInput) { in.NodeTypes[2].NumNodes = -1; in.NodeTypes[2].Tensors = nil },
			"-1 nodes"},
		"ragged edges": {func(in *draw.GraphInput) {
			in.EdgeTypes[1].Tensors = []draw.GraphTensor{{Name: "time", DType: manifest.DType_INT64, Rows: make([]byte, 8)}}
		}, `tensor "(item, liked, user).time" has 8 bytes, expected 5000 rows`},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := heteroInputs()
			tc.change(&in)
			_, err := draw.NewGraph(context.Background(), in)
			require.ErrorIs(t, err, store.ErrInvalid)
			require.ErrorContains(t, err, tc.want)
		})
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	in, _ := heteroInputs()
	_, err := draw.NewGraph(cancelled, in)
	require.ErrorIs(t, err, context.Canceled)
}
