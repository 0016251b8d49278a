package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// heteroGraph is a random heterogeneous Input and what a store of it must hold.
type heteroGraph struct {
	Input
	splits map[string][]int64 // by label and name
	edges  [][2][]int64       // ends of the edges of each type
	rows   map[string][]byte  // dense rows of each tensor, by label and name
}

// newHeteroGraph makes a graph of a random schema with about scale nodes and edges of each type.
func newHeteroGraph(seed uint64, scale int64) *heteroGraph {
	rng := rand.New(rand.NewPCG(seed, 19))
	g := &heteroGraph{splits: map[string][]int64{}, rows: map[string][]byte{}}
	names := []string{"paper", "author", "a type/with: odd names", "été"}[:1+rng.IntN(4)]
	for _, name := range names {
		t := NodeInput{Name: name, NumNodes: 1 + rng.Int64N(scale), Splits: map[string]Source{}}
		if rng.IntN(6) == 0 {
			t.NumNodes = 0
		}
		for i := range rng.IntN(4) {
			t.Tensors = append(t.Tensors, g.tensor(rng, name+".", fmt.Sprint("x", i), t.NumNodes))
		}
		if rng.IntN(2) == 0 && t.NumNodes > 0 {
			ids := make([]int64, rng.IntN(20))
			for i := range ids {
				ids[i] = rng.Int64N(t.NumNodes)
			}
			t.Splits["train"] = Dense(manifest.DType_INT64, []int64{int64(len(ids))}, int64Bytes(ids))
			g.splits[name+".train"] = ids
		}
		if rng.IntN(2) == 0 {
			mask := make([]byte, t.NumNodes)
			ids := []int64{}
			for i := range mask {
				if mask[i] = byte(rng.IntN(2)); mask[i] != 0 {
					ids = append(ids, int64(i))
				}
			}
			t.Splits["val"] = Dense(manifest.DType_BOOL, []int64{t.NumNodes}, mask)
			g.splits[name+".val"] = ids
		}
		g.NodeTypes = append(g.NodeTypes, t)
	}
	for i := range 1 + rng.IntN(5) {
		from, to := g.NodeTypes[rng.IntN(len(names))], g.NodeTypes[rng.IntN(len(names))]
		e := EdgeInput{Source: from.Name, Relation: fmt.Sprint("to", i), Target: to.Name}
		var ends [2][]int64
		if from.NumNodes > 0 && to.NumNodes > 0 && rng.IntN(5) > 0 {
			for range rng.Int64N(4 * scale) {
				ends[0] = append(ends[0], rng.Int64N(from.NumNodes))
				ends[1] = append(ends[1], rng.Int64N(to.NumNodes))
			}
		}
		e.EdgeIndex = edgesOf(ends[0], ends[1])
		for i := range rng.IntN(3) {
			e.Tensors = append(e.Tensors,
				g.tensor(rng, edgeLabel(e.Source, e.Relation, e.Target), fmt.Sprint("w", i), int64(len(ends[0]))))
		}
		g.EdgeTypes, g.edges = append(g.EdgeTypes, e), append(g.edges, ends)
	}
	return g
}

// tensor makes random rows of a random type and width.
func (g *heteroGraph) tensor(rng *rand.Rand, label, name string, rows int64) NamedSource {
	dtype := manifest.DType(1 + rng.IntN(int(manifest.DType_FLOAT64)))
	shape := []int64{rows}
	for range rng.IntN(3) {
		shape = append(shape, 1+rng.Int64N(40))
	}
	return g.dense(rng, label, name, dtype, shape...)
}

func (g *heteroGraph) dense(rng *rand.Rand, label, name string, dtype manifest.DType, shape ...int64) NamedSource {
	n := int64(dtype.Size())
	for _, d := range shape {
		n *= d
	}
	g.rows[label+name] = randomBytes(rng, n)
	return NamedSource{name, Dense(dtype, shape, g.rows[label+name])}
}

// requireHetero compares everything that a store holds with the graph it was made from.
func requireHetero(t *testing.T, g *heteroGraph, s *Store) {
	t.Helper()
	ctx, budget := context.Background(), mem.NewBudget(0)
	require.True(t, s.Heterogeneous())
	require.Len(t, s.NodeTypes(), len(g.NodeTypes))
	require.Len(t, s.EdgeTypes(), len(g.EdgeTypes))
	tensors := func(label string, want []NamedSource, have []Tensor) {
		require.Len(t, have, len(want))
		for i := range have {
			require.Equal(t, want[i].Name, have[i].Name)
			require.Equal(t, want[i].DType, have[i].DType)
			require.Equal(t, want[i].Shape, append([]int64{have[i].Rows}, have[i].RowShape...))
			rows := tensorRows(t, s, &have[i].Array, budget)
			require.True(t, bytes.Equal(g.rows[label+have[i].Name], rows), label+have[i].Name)
		}
	}
	for i, want := range g.NodeTypes {
		have, err := s.NodeType(want.Name)
		require.NoError(t, err)
		require.Equal(t, s.NodeTypes()[i].Name, have.Name)
		require.Equal(t, want.NumNodes, have.Count)
		tensors(want.Name+".", want.Tensors, have.Tensors)
		require.Len(t, have.Splits, len(want.Splits))
		for name := range want.Splits {
			ids, err := have.LoadSplit(ctx, name)
			require.NoError(t, err)
			require.Equal(t, g.splits[want.Name+"."+name], append([]int64{}, ids...))
		}
	}
	for i, want := range g.EdgeTypes {
		have, err := s.EdgeType(want.Source, want.Relation, want.Target)
		require.NoError(t, err)
		require.Equal(t, s.EdgeTypes()[i].String(), have.String())
		tensors(have.String()+".", want.Tensors, have.Tensors)
		indptr, indices, ids := oracle(g.edges[i][0], g.edges[i][1], have.NumNodes)
		table, err := have.LoadIndptr(ctx, budget, mem.Topology)
		require.NoError(t, err)
		require.Equal(t, indptr, allOffsets(table))
		table.Free()
		block, err := have.Indices.LoadIDs(ctx, have.NumSources, budget, mem.Topology)
		require.NoError(t, err)
		require.Equal(t, indices, widened(mem.Slice[int32](block)))
		block.Free()
		if have.EdgeIDs == nil {
			require.True(t, slices.IsSorted(ids))
			continue
		}
		block, err = have.EdgeIDs.LoadIDs(ctx, have.NumEdges, budget, mem.Topology)
		require.NoError(t, err)
		require.Equal(t, ids, widened(mem.Slice[uint32](block)))
		block.Free()
	}
	require.Zero(t, budget.Used())
}

// widened returns ids as int64, nil where there are none.
func widened[T int32 | uint32](ids []T) (out []int64) {
	for _, id := range ids {
		out = append(out, int64(id))
	}
	return out
}

// TestTypesRoundTrip converts random schemas within every kind of budget.
func TestTypesRoundTrip(t *testing.T) {
	for seed := range uint64(16) {
		g := newHeteroGraph(seed, 200)
		requireHetero(t, g, mustConvert(t, g.Input, 0))
		if seed%8 == 0 {
			requireHetero(t, g, mustConvert(t, g.Input, smallestBudget(t, g.Input)))
		}
	}
}

// largeHeteroGraph has an edge type that the smallest budget cannot hold, and one to a type without nodes.
func largeHeteroGraph() *heteroGraph {
	rng := rand.New(rand.NewPCG(5, 19))
	g := &heteroGraph{splits: map[string][]int64{"user.train": {0, 7}}, rows: map[string][]byte{}}
	g.NodeTypes = []NodeInput{
		{Name: "user", NumNodes: 2000,
			Splits: map[string]Source{"train": Dense(manifest.DType_INT64, []int64{2}, int64Bytes([]int64{0, 7}))}},
		{Name: "item", NumNodes: 3000}, {Name: "tag", NumNodes: 0},
	}
	g.NodeTypes[0].Tensors = []NamedSource{g.dense(rng, "user.", "x", manifest.DType_FLOAT32, 2000, 25)}
	g.NodeTypes[1].Tensors = []NamedSource{g.dense(rng, "item.", "x", manifest.DType_INT16, 3000)}
	for _, e := range []struct {
		from, to int
		count    int
	}{{0, 1, 60_000}, {1, 0, 60_000}, {1, 2, 0}, {2, 2, 0}} {
		var ends [2][]int64
		for range e.count {
			ends[0] = append(ends[0], rng.Int64N(g.NodeTypes[e.from].NumNodes))
			ends[1] = append(ends[1], rng.Int64N(g.NodeTypes[e.to].NumNodes))
		}
		edge := EdgeInput{Source: g.NodeTypes[e.from].Name, Relation: "to",
			Target: g.NodeTypes[e.to].Name, EdgeIndex: edgesOf(ends[0], ends[1])}
		edge.Tensors = []NamedSource{g.dense(rng, edgeLabel(edge.Source, "to", edge.Target), "time",
			manifest.DType_INT64, int64(e.count))}
		g.EdgeTypes, g.edges = append(g.EdgeTypes, edge), append(g.edges, ends)
	}
	return g
}

// TestTypesShareOneBudget: types are converted one after the other, so that a budget for the largest is enough for all.
func TestTypesShareOneBudget(t *testing.T) {
	g := largeHeteroGraph()
	least := smallestBudget(t, g.Input)
	alone := g.Input
	alone.EdgeTypes = alone.EdgeTypes[:1]
	require.Equal(t, least, smallestBudget(t, alone))
	budget := mem.NewBudget(least)
	path := filepath.Join(t.TempDir(), "g")
	spilled := 0
	progress := func(stage string, _, _ int64) {
		if _, err := os.Stat(filepath.Join(path+partialSuffix, spillName)); err == nil {
			spilled++
		}
	}
	require.NoError(t, convert(context.Background(), ssd.OS, g.Input, path, ConvertOptions{Progress: progress}, budget))
	require.Positive(t, spilled)
	require.LessOrEqual(t, budget.Peak(), least)
	require.Zero(t, budget.Used())
	s := mustOpen(t, path)
	requireHetero(t, g, s)
}

func TestTypesAreCountedByTheirIDs(t *testing.T) {
	in := Input{
		NodeTypes: []NodeInput{{Name: "user", NumNodes: -1}, {Name: "item", NumNodes: -1}, {Name: "tag", NumNodes: -1}},
		EdgeTypes: []EdgeInput{
			{Source: "user", Relation: "rates", Target: "item", EdgeIndex: edgesOf([]int64{4, 0}, []int64{1, 2})},
			{Source: "item", Relation: "rated", Target: "user", EdgeIndex: edgesOf([]int64{9}, []int64{2})},
		},
	}
	s := mustConvert(t, in, 0)
	for name, want := range map[string]int64{"user": 5, "item": 10, "tag": 0} {
		have, err := s.NodeType(name)
		require.NoError(t, err)
		require.Equal(t, want, have.Count)
	}
}

func TestUnknownTypes(t *testing.T) {
	s := mustConvert(t, largeHeteroGraph().Input, 0)
	_, err := s.NodeType("usr")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, `["user" "item" "tag"]`)
	_, err = s.EdgeType("user", "likes", "item")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err,
		"edge type (user, likes, item), the edge types of "+s.Path()+
			" are [(user, to, item) (item, to, user) (item, to, tag) (tag, to, tag)]")
	user, err := s.NodeType("user")
	require.NoError(t, err)
	_, err = user.LoadSplit(context.Background(), "test")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, `split "user.test"`)
}

func TestBadTypes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "e.npy")
	require.NoError(t, os.WriteFile(file, int64Bytes([]int64{0, 1, 2, 7}), 0o600))
	bytes4 := func(rows int64) Source { return Dense(manifest.DType_FLOAT32, []int64{rows}, make([]byte, 4*rows)) }
	for name, tc := range map[string]struct {
		change func(in *Input)
		want   string
	}{
		"source out of range": {func(in *Input) { in.EdgeTypes[0].EdgeIndex = edgesOf([]int64{0, 2}, []int64{0, 0}) },
			"(user, rates, item).edge_index[0, 1] is 2, expected an id in [0, 2)"},
		"target out of range": {func(in *Input) { in.EdgeTypes[0].EdgeIndex = edgesOf([]int64{0, 1}, []int64{2, 3}) },
			"(user, rates, item).edge_index[1, 1] is 3, expected an id in [0, 3)"},
		"of a file": {func(in *Input) {
			in.EdgeTypes[0].EdgeIndex = Source{DType: manifest.DType_INT64, Shape: []int64{2, 2}, File: file}
		}, "(user, rates, item).edge_index[1, 1] in " + file + " is 7, expected an id in [0, 3)"},
		"to no nodes":   {func(in *Input) { in.NodeTypes[1].NumNodes = 0 }, "expected an id in [0, 0)"},
		"from no nodes": {func(in *Input) { in.NodeTypes[0].NumNodes = 0 }, "expected an id in [0, 0)"},
		"unknown node type": {func(in *Input) { in.EdgeTypes[0].Target = "itm" },
			`the edge type (user, rates, itm) has the unknown node type "itm", the node types are ["item" "user"]`},
		"node type twice": {func(in *Input) { in.NodeTypes = append(in.NodeTypes, in.NodeTypes[0]) },
			`the node type "user" is empty or given twice`},
		"nameless node type": {func(in *Input) { in.NodeTypes[0].Name = "" }, `the node type "" is empty or given twice`},
		"edge type twice": {func(in *Input) { in.EdgeTypes = append(in.EdgeTypes, in.EdgeTypes[0]) },
			"(user, rates, item) has no relation or is given twice"},
		"nameless relation": {func(in *Input) { in.EdgeTypes[0].Relation = "" },
			"(user, , item) has no relation or is given twice"},
		"no edge type": {func(in *Input) { in.EdgeTypes = nil }, "the graph has no edge type"},
		"ragged nodes": {func(in *Input) { in.NodeTypes[1].Tensors = []NamedSource{{"x", bytes4(4)}} },
			"item.x has 4 rows, expected 3 as the number of nodes"},
		"ragged edges": {func(in *Input) { in.EdgeTypes[0].Tensors = []NamedSource{{"time", bytes4(3)}} },
			"(user, rates, item).time has 3 rows, expected 2 as (user, rates, item).edge_index has edges"},
		"tensor twice": {func(in *Input) {
			in.NodeTypes[1].Tensors = []NamedSource{{"x", bytes4(3)},
				{"x", bytes4(3)}}
		}, `the tensor name "item.x" is empty or given twice`},
		"float split": {func(in *Input) { in.NodeTypes[1].Splits = map[string]Source{"train": bytes4(1)} },
			`split "item.train" holds float32`},
		"split out of range": {func(in *Input) {
			in.NodeTypes[1].Splits = map[string]Source{"train": Dense(manifest.DType_INT64, []int64{2},
				int64Bytes([]int64{2, 3}))}
		}, `element 1 of split "item.train" is 3, expected an id in [0, 3)`},
		"too many nodes": {func(in *Input) { in.NodeTypes[1].NumNodes = maxNodes - 1 },
			"item.4294967294 nodes, expected at most 4294967293: a graph has at most 2^32 - 1"},
		"too many types": {func(in *Input) {
			for i := range maxTypes {
				in.NodeTypes = append(in.NodeTypes, NodeInput{Name: fmt.Sprint(i)})
			}
		}, "16386 node types and 1 edge types, expected at most 16384 of each"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{
				NodeTypes: []NodeInput{{Name: "user", NumNodes: 2}, {Name: "item", NumNodes: 3}},
				EdgeTypes: []EdgeInput{{Source: "user", Relation: "rates", Target: "item",
					EdgeIndex: edgesOf([]int64{0, 1}, []int64{0, 2})}},
			}
			tc.change(&in)
			dir := t.TempDir()
			err := Convert(context.Background(), ssd.OS, in, filepath.Join(dir, "g"), ConvertOptions{})
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, tc.want)
			requireNothing(t, dir)
		})
	}
}

func TestHostileTypes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, Convert(context.Background(), ssd.OS, largeHeteroGraph().Input, path, ConvertOptions{}))
	name := filepath.Join(path, manifest.Name)
	original, err := os.ReadFile(name)
	require.NoError(t, err)
	for what, tc := range map[string]struct {
		change func(m *manifest.Manifest)
		target error
		text   string
	}{
		"no edge types": {func(m *manifest.Manifest) { m.EdgeTypes = nil }, ErrCorrupt, "3 node types and 0 edge types"},
		"nameless first": {func(m *manifest.Manifest) { m.NodeTypes[0].Name = "" }, ErrCorrupt,
			"the first without a name"},
		"nameless": {func(m *manifest.Manifest) { m.NodeTypes[1].Name = "" }, ErrCorrupt, `node type "" is empty`},
		"name twice": {func(m *manifest.Manifest) { m.NodeTypes[1].Name = "user" }, ErrCorrupt,
			`node type "user" is empty or occurs twice`},
		"no relation": {func(m *manifest.Manifest) { m.EdgeTypes[0].Relation = "" }, ErrCorrupt,
			"edge type (user, , item)"},
		"edge type twice": {func(m *manifest.Manifest) { m.EdgeTypes[1] = m.EdgeTypes[0] }, ErrCorrupt,
			"(user, to, item) is wrong or occurs twice"},
		"unknown source": {func(m *manifest.Manifest) { m.EdgeTypes[0].Source = "usr" }, ErrCorrupt,
			`edges from "usr" to "item"`},
		"unknown target": {func(m *manifest.Manifest) { m.EdgeTypes[0].Target = "" }, ErrCorrupt,
			`edges from "user" to ""`},
		"other target": {func(m *manifest.Manifest) { m.EdgeTypes[0].Target = "user" }, ErrCorrupt,
			"(user, to, user).indptr has 3001 rows, expected 2001"},
		"negative nodes": {func(m *manifest.Manifest) { m.NodeTypes[2].Count = -1 }, ErrCorrupt, "tag.-1 nodes"},
		"nodes of no array": {func(m *manifest.Manifest) { m.NodeTypes[2].Count = maxCount + 1 }, ErrCorrupt,
			"tag.281474976710657 nodes"},
		"too many edges": {func(m *manifest.Manifest) { m.EdgeTypes[3].Count = maxCount + 1 }, ErrCorrupt,
			"(tag, to, tag).281474976710657 edges"},
		"one node less": {func(m *manifest.Manifest) { m.NodeTypes[1].Count-- }, ErrCorrupt,
			"item.x has 3000 rows, expected 2999"},
		"file of another": {func(m *manifest.Manifest) { m.EdgeTypes[1].Indptr.File = m.EdgeTypes[0].Indptr.File },
			ErrCorrupt, "which is taken"},
		"quantised": {func(m *manifest.Manifest) { m.NodeTypes[1].Tensors[0].Scale = 2 }, ErrVersion,
			`item.tensor "x" is quantised`},
		"too many types": {func(m *manifest.Manifest) {
			for i := range maxTypes {
				m.NodeTypes = append(m.NodeTypes, &manifest.NodeType{Name: fmt.Sprint(i)})
			}
		}, ErrVersion, "16387 node types"},
	} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, os.WriteFile(name, original, 0o600))
			forge(t, path, tc.change)
			_, err := Open(ssd.OS, path)
			require.ErrorIs(t, err, tc.target)
			require.ErrorContains(t, err, tc.text)
		})
	}
}

func TestDescribeTypes(t *testing.T) {
	g := largeHeteroGraph()
	s := mustConvert(t, g.Input, 0)
	text, err := json.Marshal(s.Describe())
	require.NoError(t, err)
	var d map[string]any
	require.NoError(t, json.Unmarshal(text, &d))
	require.EqualValues(t, 5000, d["num_nodes"])
	require.EqualValues(t, 120_000, d["num_edges"])
	for _, key := range []string{"topology", "tensors", "edge_tensors", "splits"} {
		require.Empty(t, d[key], key)
		require.NotNil(t, d[key], key)
	}
	user := d["node_types"].([]any)[0].(map[string]any)
	require.Equal(t, "user", user["name"])
	require.EqualValues(t, 2000, user["num_nodes"])
	require.Equal(t, "t0_user_node0_x.bin", user["tensors"].([]any)[0].(map[string]any)["file"])
	require.Equal(t, "train", user["splits"].([]any)[0].(map[string]any)["name"])
	edge := d["edge_types"].([]any)[1].(map[string]any)
	require.Equal(t, []any{"item", "to", "user"}, []any{edge["source"], edge["relation"], edge["target"]})
	require.EqualValues(t, 60_000, edge["num_edges"])
	require.Len(t, edge["topology"], 3)
	require.Equal(t, "e1_item_to_user_edge0_time.bin", edge["tensors"].([]any)[0].(map[string]any)["file"])

	homogeneous := mustConvert(t, tiny(3), 0).Describe()
	require.Empty(t, homogeneous.NodeTypes)
	require.Empty(t, homogeneous.EdgeTypes)
}

// TestOrderOfAType: rows of one node type in an order of their own come back in the user's, those of the others are
// as they were. Nothing writes such stores yet, but the format has them.
func TestOrderOfAType(t *testing.T) {
	ctx, budget := context.Background(), mem.NewBudget(0)
	path := filepath.Join(t.TempDir(), "g")
	x := Dense(manifest.DType_INT64, []int64{4}, int64Bytes([]int64{10, 11, 12, 13}))
	in := Input{
		NodeTypes: []NodeInput{{Name: "a", NumNodes: 4, Tensors: []NamedSource{{"x", x}}},
			{Name: "b", NumNodes: 4, Tensors: []NamedSource{{"x", x}}}},
		EdgeTypes: []EdgeInput{{Source: "a", Relation: "to", Target: "b", EdgeIndex: edgesOf([]int64{3}, []int64{0})}},
	}
	require.NoError(t, Convert(ctx, ssd.OS, in, path, ConvertOptions{}))
	w, err := newArrayWriter(ssd.OS, path, "order", manifest.DType_UINT32, nil, frugal.chunk, budget)
	require.NoError(t, err)
	require.NoError(t, w.write(mem.Bytes([]uint32{2, 0, 3, 1})))
	order, err := w.finish(4)
	require.NoError(t, err)
	forge(t, path, func(m *manifest.Manifest) { m.NodeTypes[1].Order = order })
	s := mustOpen(t, path)
	require.NoError(t, s.Verify(ctx, nil))
	for i, want := range [][]int64{{10, 11, 12, 13}, {11, 13, 10, 12}} {
		rows := tensorRows(t, s, &s.NodeTypes()[i].Tensors[0].Array, budget)
		require.Equal(t, mem.Bytes(want), rows)
	}
}
