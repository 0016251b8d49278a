package loader

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// form is a graph as users give it, with types or without: a homogeneous graph has one node type and one relation, and
// neither has a name.
type form struct {
	names     []string // of node types
	counts    []int64
	nodes     [][]GraphTensor
	edges     []GraphEdges
	weightsOf string // as of store.Input, where there are no types
}

// forms are a graph without types, the same with one named type, and one of several types.
func forms(d *dataset) []*form { return []*form{d.form(""), d.form("node"), severalTypes()} }

// rowBytes is the size of a row.
func (t *GraphTensor) rowBytes() int {
	n := t.DType.Size()
	for _, k := range t.RowShape {
		n *= int(k)
	}
	return n
}

func (f *form) String() string {
	switch {
	case len(f.names) > 1:
		return "several types"
	case f.names[0] != "":
		return "one type"
	}
	return "no types"
}

// form is the dataset with one node type of this name, and one relation.
func (d *dataset) form(name string) *form {
	relation := ""
	if name != "" {
		relation = "to"
	}
	attr := GraphTensor{
		Name: "edge_attr", DType: manifest.DType_INT32, RowShape: []int64{2}, Rows: littleEndian(d.edgeAttr),
	}
	return &form{
		names: []string{name}, counts: []int64{d.nodes}, weightsOf: d.weightsOf,
		nodes: [][]GraphTensor{{
			{Name: "wide", DType: manifest.DType_UINT8, RowShape: []int64{wideWidth}, Rows: d.wide},
			{Name: "x", DType: manifest.DType_FLOAT32, RowShape: []int64{width}, Rows: littleEndian(d.x)},
			{Name: "y", DType: manifest.DType_INT64, Rows: littleEndian(d.y)},
		}},
		edges: []GraphEdges{{
			Source: name, Relation: relation, Target: name, EdgeIndex: d.edgeIndex(),
			Tensors: append([]GraphTensor{attr}, d.extra...),
		}},
	}
}

func taggedRows(rows, width int64, tag byte) []byte {
	out := make([]byte, rows*width)
	for v := range rows {
		for j := range width {
			out[v*width+j] = byte(v+v>>8) + 7*byte(j) + 31*tag
		}
	}
	return out
}

// severalTypes has types with one, two and no tensors, a type without nodes and one that nothing reaches, and relations
// of very different sizes. Its tensors tell their type and row: byte j of row v of tensor k is v + 7*j + 31*k, modulo
// 256.
func severalTypes() *form {
	rng := rand.New(rand.NewPCG(3, 4))
	d := &form{names: []string{"user", "item", "tag", "none", "far"}, counts: []int64{900, 2500, 60, 0, 40}}
	add := func(name string, typ int, width int64, tag byte) GraphTensor {
		return GraphTensor{Name: name, DType: manifest.DType_UINT8, RowShape: []int64{width},
			Rows: taggedRows(d.counts[typ], width, tag)}
	}
	d.nodes = [][]GraphTensor{{add("x", 0, 96, 1)}, {add("narrow", 1, 80, 2), add("x", 1, 170, 3), add("y", 1, 8, 4)}, nil,
		{add("x", 3, 100, 5)}, {add("x", 4, 300, 6)}}
	for i, r := range []struct {
		source, target, edges int
		attr                  bool
	}{{0, 1, 9000, true}, {1, 0, 6000, false}, {0, 0, 2000, true}, {1, 2, 4000, false}, {2, 1, 500, true}, {3, 1, 0, true},
		{4, 4, 90, false}} {
		var sources, targets []int64
		for range r.edges {
			u := rng.Float64()
			sources = append(sources, int64(float64(d.counts[r.source])*u*u*u))
			targets = append(targets, rng.Int64N(d.counts[r.target]))
		}
		e := GraphEdges{
			Source: d.names[r.source], Relation: fmt.Sprint("r", i), Target: d.names[r.target],
			EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, int64(r.edges)}, littleEndian(append(sources, targets...))),
		}
		if r.attr {
			weights := make([]float32, r.edges)
			for k := range weights {
				weights[k] = float32(k%5) + 0.5
			}
			e.Tensors = []GraphTensor{
				{
					Name: "attr", DType: manifest.DType_UINT8, RowShape: []int64{70},
					Rows: taggedRows(int64(r.edges), 70, byte(10+i)),
				},
				{Name: "w", DType: manifest.DType_FLOAT32, Rows: littleEndian(weights)},
			}
		}
		d.edges = append(d.edges, e)
	}
	return d
}

// ends are the edges of a relation.
func (f *form) ends(relation int) (sources, targets []int64) {
	e := f.edges[relation].EdgeIndex
	data := unsafe.Slice((*int64)(e.Mem), 2*e.Shape[1]) // as the form made it
	return data[:e.Shape[1]], data[e.Shape[1]:]
}

func (f *form) graph(t *testing.T) *Graph {
	t.Helper()
	var in GraphInput
	for i, name := range f.names {
		in.NodeTypes = append(in.NodeTypes, GraphNodes{Name: name, NumNodes: f.counts[i], Tensors: f.nodes[i]})
	}
	in.EdgeTypes = f.edges
	g, err := NewGraph(context.Background(), in)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func (f *form) store(t *testing.T, fs ssd.FS) *store.Store {
	t.Helper()
	named := func(tensors []GraphTensor) (out []store.NamedSource) {
		for _, x := range tensors {
			shape := append([]int64{int64(len(x.Rows) / x.rowBytes())}, x.RowShape...)
			out = append(out, store.NamedSource{Name: x.Name, Source: store.Dense(x.DType, shape, x.Rows)})
		}
		return out
	}
	in := store.Input{WeightsOf: f.weightsOf}
	for i, name := range f.names {
		in.NodeTypes = append(in.NodeTypes, store.NodeInput{Name: name, NumNodes: f.counts[i], Tensors: named(f.nodes[i])})
	}
	for _, e := range f.edges {
		in.EdgeTypes = append(in.EdgeTypes, store.EdgeInput{Source: e.Source, Relation: e.Relation, Target: e.Target,
			EdgeIndex: e.EdgeIndex, Tensors: named(e.Tensors)})
	}
	if f.names[0] == "" {
		in.NumNodes, in.NodeTensors = f.counts[0], in.NodeTypes[0].Tensors
		in.EdgeIndex, in.EdgeTensors = in.EdgeTypes[0].EdgeIndex, in.EdgeTypes[0].Tensors
		in.NodeTypes, in.EdgeTypes = nil, nil
	}
	path := filepath.Join(t.TempDir(), "graph.freshgo")
	require.NoError(t, store.Convert(context.Background(), ssd.OS, in, path, store.ConvertOptions{Memory: 64 << 20}))
	s, err := store.Open(fs, path)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// options are plain ones. Of several types they have seeds of three, some of them twice.
func (f *form) options() Options {
	o := plain()
	if len(f.names) == 1 {
		return o
	}
	o.BatchSize = 50
	o.RelationFanouts = [][]int64{{4, 3}, {3, -1}, {2, 2}, {5, 0}, {2, 2}, {1, 1}, {1, 1}}
	for v := range int64(300) {
		o.Seeds = append(o.Seeds, 900+v*5) // items
	}
	for v := range int64(150) {
		o.Seeds = append(o.Seeds, v*3%400) // users, each of them once but for some
	}
	o.Seeds = append(o.Seeds, 900+2500+7, 900+2500+9) // tags
	return o
}

// byType is a batch of the sampler cut by node type and relation.
type byType struct {
	Nodes, NodesPerHop [][]int64 // ids within the type
	Relations          []byRelation
}

type byRelation struct {
	Ptr, Pos, EdgesPerHop []int64
	Row                   []uint32
}

// cutBatch cuts a batch of so many hops by its counts.
func cutBatch(g sample.Graph, hops int, sub sample.Subgraph) (out byType) {
	first, reached := int64(0), make([]int64, len(g.NumNodes))
	for typ, n := range g.NumNodes {
		counts := sub.NodesPerHop[typ*(hops+1) : (typ+1)*(hops+1)]
		total := counts[hops]
		for _, k := range counts[:hops] {
			reached[typ] += k
		}
		total += reached[typ]
		var nodes []int64
		for _, v := range sub.Nodes[:total] {
			nodes = append(nodes, v-first)
		}
		out.Nodes, out.NodesPerHop = append(out.Nodes, nodes), append(out.NodesPerHop, counts)
		sub.Nodes, first = sub.Nodes[total:], first+n
	}
	for i, r := range g.Relations {
		e := byRelation{Ptr: sub.Ptr[:reached[r.Target]+1], EdgesPerHop: sub.EdgesPerHop[i*hops : (i+1)*hops]}
		total := e.Ptr[reached[r.Target]]
		e.Row, e.Pos = sub.Row[:total], sub.Pos[:total]
		sub.Ptr, sub.Row, sub.Pos = sub.Ptr[len(e.Ptr):], sub.Row[total:], sub.Pos[total:]
		out.Relations = append(out.Relations, e)
	}
	return out
}

// check compares a batch with what the sampler draws for its seeds, and every row with the tensor that it is of.
func (f *form) check(t *testing.T, g *Graph, w *sample.Worker, o Options, epoch int64, b *seen) {
	t.Helper()
	types := g.parts().types
	lists := make([][]int64, len(f.names))
	first := []int64{0}
	for _, n := range f.counts {
		first = append(first, first[len(first)-1]+n)
	}
	chosen := o.Seeds
	if chosen == nil { // all
		for v := range first[len(f.names)] {
			chosen = append(chosen, v)
		}
	}
	for _, v := range chosen {
		typ := 0
		for v >= first[typ+1] {
			typ++
		}
		lists[typ] = append(lists[typ], v-first[typ])
	}
	seeds, total := make([][]int64, len(f.names)), 0
	for typ := range f.names {
		for _, at := range b.int64s(types.nodeName(typ, "input_id")) {
			seeds[typ] = append(seeds[typ], lists[typ][at])
		}
		total += len(seeds[typ])
	}
	require.EqualValues(t, total, b.numSeeds)
	var flat []int64
	for typ, of := range seeds {
		for _, v := range of {
			flat = append(flat, first[typ]+v)
		}
	}
	var sub sample.Subgraph
	key := sample.Key{Seed: o.Seed, Epoch: uint64(epoch), Batch: uint64(b.index)}
	require.NoError(t, w.Sample(context.Background(), key, flat, &sub))
	want := cutBatch(g.sampled(), o.hops(), sub)
	names := 0
	same := func(name string, want []int64) {
		t.Helper()
		names++
		require.Equal(t, append([]int64{}, want...), b.int64s(name), "%s of batch %d", name, b.index)
	}
	rows := func(name string, x GraphTensor, ids []int64) {
		t.Helper()
		names++
		got := b.arrays[name]
		width := 0
		if len(ids) > 0 {
			width = len(got) / len(ids)
		}
		require.Equal(t, append([]int64{int64(len(ids))}, x.RowShape...), b.shapes[name])
		for i, v := range ids {
			require.True(t, bytes.Equal(x.Rows[int(v)*width:][:width], got[i*width:][:width]),
				"row %d of %s of batch %d, which is %d", i, name, b.index, v)
		}
	}
	for typ := range f.names {
		same(types.nodeName(typ, "n_id"), want.Nodes[typ])
		same(types.nodeName(typ, "num_sampled_nodes"), want.NodesPerHop[typ])
		names++ // input_id
		for _, x := range f.nodes[typ] {
			rows(types.nodeName(typ, x.Name), x, want.Nodes[typ])
		}
	}
	for i, r := range want.Relations {
		name := func(of string) string { return types.edgeName(i, of) }
		same(name("ptr"), r.Ptr)
		same(name("num_sampled_edges"), r.EdgesPerHop)
		edges, ids := make([]int64, 2*len(r.Row)), make([]int64, len(r.Pos))
		fillEdgeIndex(edges, r.Row, r.Ptr)
		same(name("edge_index"), edges)
		csc := g.edges[i].csc
		for k, p := range r.Pos {
			switch {
			case csc.EdgeIDs32 != nil:
				ids[k] = int64(csc.EdgeIDs32[p])
			case csc.EdgeIDs64 != nil:
				ids[k] = csc.EdgeIDs64[p]
			default:
				ids[k] = p
			}
		}
		same(name("e_id"), ids)
		for _, x := range f.edges[i].Tensors {
			rows(name(x.Name), x, ids)
		}
	}
	if o.Labor == nil && !o.Transpose {
		require.Len(t, b.arrays, names)
	}
}

// fanouts are those of each relation.
func (f *form) fanouts(o Options) [][]int64 {
	if o.RelationFanouts != nil {
		return o.RelationFanouts
	}
	return slices.Repeat([][]int64{o.Fanouts}, len(f.edges))
}

func (f *form) worker(t *testing.T, g *Graph, o Options) *sample.Worker {
	t.Helper()
	s, err := sample.New(g.sampled(), sample.Config{Fanouts: f.fanouts(o), Replace: o.Replace, Labor: o.Labor})
	require.NoError(t, err)
	w, err := s.NewWorker(mem.NewBudget(0), false, 1)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// sampled is what a sampler draws from: node types and relations in the order of the input.
func (g *Graph) sampled() sample.Graph {
	out := sample.Graph{Named: !g.Homogeneous()}
	for _, t := range g.nodes {
		out.NumNodes = append(out.NumNodes, t.count)
	}
	for _, e := range g.edges {
		out.Relations = append(out.Relations, sample.Relation{
			Source: e.source, Target: e.target,
			Indptr: e.csc.Indptr, Indices32: e.csc.Indices32, Indices64: e.csc.Indices64,
		})
	}
	return out
}

// some are all of some cases or, of one named type, the first: only names tell it from none.
func some[T any](f *form, cases ...T) []T {
	if len(f.names) == 1 && f.names[0] != "" {
		return cases[:1]
	}
	return cases
}
