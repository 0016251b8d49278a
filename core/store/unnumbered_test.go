package store

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

// TestUnnumbered: a store without edge numbers is the store with them but for their files, needs their space less, and
// spills at most 8 bytes an edge.
func TestUnnumbered(t *testing.T) {
	const nodes, edges = 30_000, 500_000
	g := newRandomGraph(3, nodes, edges, map[string][]int64{"x": {3}}, manifest.DType_FLOAT32)
	memory := smallestBudget(t, g.Input)
	for _, limit := range []int64{memory, 0} {
		numbered := spaceNeeded(t, g.Input, limit).Need
		in := g.Input
		in.Unnumbered = true
		ids := columnOf("", manifest.DType_UINT32, edges)
		require.Equal(t, numbered-storedBytes(&ids), spaceNeeded(t, in, limit).Need)
		err := Convert(context.Background(), little{ssd.OS, numbered - 1}, g.Input, filepath.Join(t.TempDir(), "g"),
			ConvertOptions{Memory: limit})
		require.ErrorContains(t, err, "; edge_ids=False leaves out the numbers of edges")

		path := filepath.Join(t.TempDir(), "g")
		spill, _ := convertWatched(t, little{ssd.OS, math.MaxInt64}, in, path, limit)
		require.Equal(t, limit > 0, spill > 0)
		require.LessOrEqual(t, spill, int64(8*edges))
		s := mustVerify(t, path)
		require.True(t, s.EdgeTypes()[0].Unnumbered)
		require.Nil(t, s.EdgeTypes()[0].EdgeIDs)
		require.True(t, s.Describe().Unnumbered)
		require.Equal(t, 2, s.Describe().Version)
		requireGraph(t, g, s)
		want := contents(t, mustConvert(t, g.Input, 0))
		delete(want, s.EdgeTypes()[0].String()+"edge_ids")
		require.Equal(t, want, contents(t, s))
	}
}

// TestUnnumberedAndSorted: where positions are the numbers nothing is left out, and older programs read the store.
func TestUnnumberedAndSorted(t *testing.T) {
	s := mustConvert(t, Input{NumNodes: 5, EdgeIndex: edgesOf([]int64{4, 0, 3}, []int64{0, 0, 1}), Unnumbered: true}, 0)
	require.False(t, s.EdgeTypes()[0].Unnumbered)
	require.Equal(t, 1, s.Describe().Version)
}

// TestUnnumberedSuccessors: what is made from a store without edge numbers has none, and holds what a conversion of
// everything would.
func TestUnnumberedSuccessors(t *testing.T) {
	ctx := context.Background()
	src, dst := []int64{0, 1, 2, 3}, []int64{3, 4, 0, 1}
	x := NamedSource{"x", Dense(manifest.DType_UINT8, []int64{5, 1}, []byte{1, 2, 3, 4, 5})}
	in := Input{NumNodes: 5, EdgeIndex: edgesOf(src, dst), NodeTensors: []NamedSource{x}, Unnumbered: true}
	s := mustConvert(t, in, 0)
	for name, more := range map[string][2][]int64{
		"in no order": {{4, 4}, {4, 0}}, "sorted": {{1, 2}, {0, 1}}, "behind": {{1, 2}, {4, 4}}, "none": {},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "g")
			growth := Growth{Edges: []EdgeInput{{EdgeIndex: edgesOf(more[0], more[1])}}}
			require.NoError(t, Append(ctx, s, path, growth, ConvertOptions{}))
			all := in
			all.EdgeIndex = edgesOf(slices.Concat(src, more[0]), slices.Concat(dst, more[1]))
			got := mustVerify(t, path)
			require.True(t, got.EdgeTypes()[0].Unnumbered)
			require.Equal(t, contents(t, mustConvert(t, all, 0)), contents(t, got))
		})
	}
	again := filepath.Join(t.TempDir(), "again")
	require.NoError(t, Relayout(ctx, s, again, RelayoutOptions{Order: Community, HotRows: -1}))
	require.True(t, mustVerify(t, again).EdgeTypes()[0].Unnumbered)
	again = filepath.Join(t.TempDir(), "again")
	require.NoError(t, Update(ctx, s, again, Changes{Nodes: []NodeChange{{Drop: []string{"x"}}}}, ConvertOptions{}))
	require.True(t, mustVerify(t, again).EdgeTypes()[0].Unnumbered)
}

// TestUnnumberedRefuses what needs the numbers of edges.
func TestUnnumberedRefuses(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "g")
	w := NamedSource{"w", Dense(manifest.DType_FLOAT32, []int64{2}, make([]byte, 8))}
	in := Input{NumNodes: 5, EdgeIndex: edgesOf([]int64{0, 1}, []int64{3, 1}), Unnumbered: true}
	s := mustConvert(t, in, 0)
	in.EdgeTensors = []NamedSource{w}
	const reason = "w has its rows by the numbers of edges, which edge_ids=False leaves out"
	err := Convert(ctx, ssd.OS, in, path, ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, reason)
	err = Update(ctx, s, path, Changes{Edges: []EdgeChange{{Tensors: []NamedSource{w}}}}, ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, reason)
	growth := Growth{Edges: []EdgeInput{{EdgeIndex: in.EdgeIndex, Tensors: []NamedSource{w}}}}
	err = Append(ctx, s, path, growth, ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, reason)
	require.NoDirExists(t, path)

	in.Unnumbered = false
	m := mustConvert(t, in, 0).Manifest()
	m.EdgeTypes[0].Unnumbered = true
	require.ErrorIs(t, newStore(ssd.OS, path, m).check(), ErrCorrupt)
}

// TestTooManyNodes: a graph with more nodes than loaders can number is refused at once, and so is one that grows to it.
func TestTooManyNodes(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "g")
	in := Input{NumNodes: maxNodes + 1, EdgeIndex: edgesOf([]int64{0}, []int64{1})}
	const reason = "nodes, expected at most 4294967295: a graph has at most 2^32 - 1"
	require.ErrorContains(t, Convert(ctx, ssd.OS, in, path, ConvertOptions{}), reason)
	in = Input{NumNodes: -1, EdgeIndex: edgesOf([]int64{maxNodes}, []int64{1})}
	require.ErrorContains(t, Convert(ctx, ssd.OS, in, path, ConvertOptions{}), reason)
	in = Input{NumNodes: 2, EdgeIndex: edgesOf([]int64{0}, []int64{1})}
	growth := Growth{Nodes: []NodeInput{{NumNodes: maxNodes - 1}}}
	require.ErrorContains(t, Append(ctx, mustConvert(t, in, 0), path, growth, ConvertOptions{}), reason)
	require.NoDirExists(t, path)
}
