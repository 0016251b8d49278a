package loader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// form is a graph as users give it, with types or without: a homogeneous graph has one node type and one relation, and
// neither has a name.
type form struct {
	names     []string // of node types
	counts    []int64
	nodes     [][]draw.GraphTensor
	edges     []draw.GraphEdges
	weightsOf string              // as of store.Input, where there are no types
	in        []map[int64][]int64 // see inEdges
}

// forms are a graph without types, the same with one named type, and one of several types.
func forms(d *dataset) []*form { return []*form{d.form(""), d.form("node"), severalTypes()} }

// rowBytes is the size of a row.
func rowBytes(t draw.GraphTensor) int {
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
	attr := draw.GraphTensor{
		Name: "edge_attr", DType: manifest.DType_INT32, RowShape: []int64{2}, Rows: mem.Bytes(d.edgeAttr),
	}
	return &form{
		names: []string{name}, counts: []int64{d.nodes}, weightsOf: d.weightsOf,
		nodes: [][]draw.GraphTensor{{
			{Name: "wide", DType: manifest.DType_UINT8, RowShape: []int64{wideWidth}, Rows: d.wide},
			{Name: "x", DType: manifest.DType_FLOAT32, RowShape: []int64{width}, Rows: mem.Bytes(d.x)},
			{Name: "y", DType: manifest.DType_INT64, Rows: mem.Bytes(d.y)},
		}},
		edges: []draw.GraphEdges{{
			Source: name, Relation: relation, Target: name, EdgeIndex: d.edgeIndex(),
			Tensors: append([]draw.GraphTensor{attr}, d.extra...),
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
	add := func(name string, typ int, width int64, tag byte) draw.GraphTensor {
		return draw.GraphTensor{Name: name, DType: manifest.DType_UINT8, RowShape: []int64{width},
			Rows: taggedRows(d.counts[typ], width, tag)}
	}
	d.nodes = [][]draw.GraphTensor{{add("x", 0, 96, 1)}, {add("narrow", 1, 80, 2), add("x", 1, 170, 3), add("y", 1, 8,
		4)}, nil,
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
		e := draw.GraphEdges{
			Source: d.names[r.source], Relation: fmt.Sprint("r", i), Target: d.names[r.target],
			EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, int64(r.edges)}, mem.Bytes(append(sources, targets...))),
		}
		if r.attr {
			weights := make([]float32, r.edges)
			for k := range weights {
				weights[k] = float32(k%5) + 0.5
			}
			e.Tensors = []draw.GraphTensor{
				{
					Name: "attr", DType: manifest.DType_UINT8, RowShape: []int64{70},
					Rows: taggedRows(int64(r.edges), 70, byte(10+i)),
				},
				{Name: "w", DType: manifest.DType_FLOAT32, Rows: mem.Bytes(weights)},
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

// inEdges returns the in-edges of each node along a relation.
func (f *form) inEdges(relation int) map[int64][]int64 {
	if f.in == nil {
		f.in = make([]map[int64][]int64, len(f.edges))
	}
	if f.in[relation] == nil {
		f.in[relation] = map[int64][]int64{}
		_, targets := f.ends(relation)
		for id, v := range targets {
			f.in[relation][v] = append(f.in[relation][v], int64(id))
		}
	}
	return f.in[relation]
}

func (f *form) graph(t *testing.T) *draw.Graph {
	t.Helper()
	var in draw.GraphInput
	for i, name := range f.names {
		in.NodeTypes = append(in.NodeTypes, draw.GraphNodes{Name: name, NumNodes: f.counts[i], Tensors: f.nodes[i]})
	}
	in.EdgeTypes = f.edges
	g, err := draw.NewGraph(context.Background(), in)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// input is the form as a store is made of it.
func (f *form) input() store.Input {
	named := func(tensors []draw.GraphTensor) (out []store.NamedSource) {
		for _, x := range tensors {
			shape := append([]int64{int64(len(x.Rows) / rowBytes(x))}, x.RowShape...)
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
	return in
}

// store converts the form and opens it through fs.
func (f *form) store(t *testing.T, fs ssd.FS) *store.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "graph.freshgo")
	err := store.Convert(context.Background(), ssd.OS, f.input(), path, store.ConvertOptions{Memory: 64 << 20})
	require.NoError(t, err)
	return opened(t, fs, path)
}

// options are plain ones. Of several types they have seeds of three, some of them twice.
func (f *form) options() draw.Options {
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

// some are all of some cases or, of one named type, the first: only names tell it from none.
func some[T any](f *form, cases ...T) []T {
	if len(f.names) == 1 && f.names[0] != "" {
		return cases[:1]
	}
	return cases
}

// few are all of some cases without types, and else the first: enough where nothing depends on how many types there
// are.
func few[T any](f *form, cases ...T) []T {
	if f.names[0] != "" {
		return cases[:1]
	}
	return cases
}
