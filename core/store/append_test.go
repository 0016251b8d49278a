package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// growing is a random graph that gets more nodes and edges.
type growing struct {
	nodes []*growingNodes
	edges []*growingEdges
}

type growingNodes struct {
	name    string
	count   int64
	tensors []*growingTensor
	splits  map[string][]int64
}

type growingEdges struct {
	source, relation, target string
	from, to                 *growingNodes
	ends                     [2][]int64
	tensors                  []*growingTensor
	order                    int // 0: at random; 1: each part is sorted; 2: all are
}

type growingTensor struct {
	name    string
	dtype   manifest.DType
	shape   []int64 // of a row
	form    narrow.Form
	weights bool
	data    []byte
}

// source is a part of the rows.
func (g *growingTensor) source(data []byte, rows int64) NamedSource {
	return NamedSource{g.name, Dense(g.dtype, append([]int64{rows}, g.shape...), data)}
}

// add makes further rows.
func (g *growingTensor) add(rng *rand.Rand, rows int64) NamedSource {
	n := rows
	for _, d := range g.shape {
		n *= d
	}
	data := randomBytes(rng, n*int64(g.dtype.Size()))
	switch {
	case g.form != narrow.None:
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		data = mem.Bytes(values)
	case g.weights && g.dtype == manifest.DType_FLOAT64:
		values := make([]float64, n)
		for i := range values {
			values[i] = math.Abs(rng.NormFloat64())
		}
		data = mem.Bytes(values)
	case g.weights && g.dtype == manifest.DType_FLOAT32:
		values := make([]float32, n)
		for i := range values {
			values[i] = rng.Float32()
		}
		data = mem.Bytes(values)
	}
	g.data = append(g.data, data...)
	return g.source(data, rows)
}

// newGrowing draws the types of a graph, which has no nodes and no edges yet.
func newGrowing(rng *rand.Rand) *growing {
	g := &growing{}
	names := []string{"paper", "author", "été"}[:1+rng.IntN(3)]
	if rng.IntN(3) == 0 {
		names = []string{""}
	}
	forms := []narrow.Form{narrow.None, narrow.None, narrow.Float16, narrow.BFloat16, narrow.Int8Rows}
	for _, name := range names {
		n := &growingNodes{name: name, splits: map[string][]int64{}}
		for i := range rng.IntN(4) {
			t := &growingTensor{name: fmt.Sprint("x", i), form: forms[rng.IntN(len(forms))]}
			if t.dtype = manifest.DType_FLOAT32; t.form == narrow.None {
				t.dtype = manifest.DType(1 + rng.IntN(int(manifest.DType_FLOAT64)))
			}
			if t.form == narrow.Int8Rows || rng.IntN(2) == 0 {
				t.shape = []int64{8 + rng.Int64N(300)}
			}
			n.tensors = append(n.tensors, t)
		}
		g.nodes = append(g.nodes, n)
	}
	count := 1
	if names[0] != "" {
		count += rng.IntN(4)
	}
	weights := []manifest.DType{
		manifest.DType_FLOAT32, manifest.DType_FLOAT64, manifest.DType_UINT8, manifest.DType_UINT32,
	}
	for i := range count {
		from, to := g.nodes[rng.IntN(len(names))], g.nodes[rng.IntN(len(names))]
		e := &growingEdges{source: from.name, target: to.name, from: from, to: to, order: rng.IntN(3)}
		if names[0] != "" {
			e.relation = fmt.Sprint("to", i)
		}
		for j := range rng.IntN(3) {
			t := &growingTensor{name: fmt.Sprint("w", j), dtype: manifest.DType(1 + rng.IntN(int(manifest.DType_FLOAT64)))}
			if j == 0 && rng.IntN(2) == 0 {
				t.weights, t.dtype = true, weights[rng.IntN(len(weights))]
			}
			e.tensors = append(e.tensors, t)
		}
		g.edges = append(g.edges, e)
	}
	return g
}

// add draws what comes, and adds it.
func (g *growing) add(rng *rand.Rand, scale int64) (more Growth) {
	for _, n := range g.nodes {
		added := rng.Int64N(scale)
		if rng.IntN(3) == 0 && n.count > 0 {
			added = 0
		} else if n.count == 0 {
			added++
		}
		in := NodeInput{Name: n.name, NumNodes: added, Splits: map[string]Source{}}
		if len(n.tensors) > 0 && rng.IntN(2) == 0 {
			in.NumNodes = -1
		}
		for _, t := range n.tensors {
			in.Tensors = append(in.Tensors, t.add(rng, added))
		}
		before := n.count
		n.count += added
		if rng.IntN(2) == 0 {
			ids := []int64{rng.Int64N(n.count), rng.Int64N(n.count)}
			in.Splits["train"] = Dense(manifest.DType_INT64, []int64{2}, int64Bytes(ids))
			n.splits["train"] = append(n.splits["train"], ids...)
		}
		if rng.IntN(2) == 0 {
			mask := make([]byte, added)
			for i := range mask {
				if mask[i] = byte(rng.IntN(2)); mask[i] == 1 {
					n.splits["late"] = append(n.splits["late"], before+int64(i))
				}
			}
			if _, has := n.splits["late"]; has {
				in.Splits["late"] = Dense(manifest.DType_BOOL, []int64{added}, mask)
			}
		}
		if added > 0 || len(in.Splits) > 0 {
			more.Nodes = append(more.Nodes, in)
		}
	}
	for _, e := range g.edges {
		var ends [2][]int64
		if rng.IntN(4) > 0 {
			low := int64(0)
			if all := e.ends[1]; e.order == 2 && len(all) > 0 {
				low = all[len(all)-1]
			}
			for range rng.Int64N(6 * scale) {
				ends[0] = append(ends[0], rng.Int64N(e.from.count))
				ends[1] = append(ends[1], low+int64(float64(e.to.count-low)*math.Pow(rng.Float64(), 3)))
			}
		}
		if e.order > 0 {
			slices.Sort(ends[1])
		}
		in := EdgeInput{Source: e.source, Relation: e.relation, Target: e.target, EdgeIndex: edgesOf(ends[0], ends[1])}
		for _, t := range e.tensors {
			in.Tensors = append(in.Tensors, t.add(rng, int64(len(ends[0]))))
		}
		e.ends[0], e.ends[1] = append(e.ends[0], ends[0]...), append(e.ends[1], ends[1]...)
		if len(ends[0]) > 0 {
			more.Edges = append(more.Edges, in)
		}
	}
	return more
}

// input is the whole graph.
func (g *growing) input() (in Input) {
	for _, n := range g.nodes {
		t := NodeInput{Name: n.name, NumNodes: n.count, Splits: map[string]Source{}}
		for _, x := range n.tensors {
			s := x.source(x.data, n.count)
			s.Narrow = x.form
			t.Tensors = append(t.Tensors, s)
		}
		for name, ids := range n.splits {
			t.Splits[name] = Dense(manifest.DType_INT64, []int64{int64(len(ids))}, int64Bytes(ids))
		}
		in.NodeTypes = append(in.NodeTypes, t)
	}
	for _, e := range g.edges {
		t := EdgeInput{Source: e.source, Relation: e.relation, Target: e.target, EdgeIndex: edgesOf(e.ends[0], e.ends[1])}
		for _, w := range e.tensors {
			t.Tensors = append(t.Tensors, w.source(w.data, int64(len(e.ends[0]))))
			if w.weights {
				t.WeightsOf = w.name
			}
		}
		in.EdgeTypes = append(in.EdgeTypes, t)
	}
	return in
}

// contents is every byte of every array of a store, by what it is, and what the manifest says of it.
func contents(t *testing.T, s *Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name string, a *Array) {
		if a == nil {
			return
		}
		data, err := os.ReadFile(a.Path)
		require.NoError(t, err)
		sums, err := os.ReadFile(a.CRCPath)
		require.NoError(t, err)
		all[name] = fmt.Sprintf("%s %d %v %+v %08x %x %x", a.DType.Label(), a.Rows, a.RowShape, a.Layout, a.crc, data, sums)
	}
	tensors := func(label string, list []Tensor) {
		for i := range list {
			add(label+list[i].Name, &list[i].Array)
			all[fmt.Sprint(label, "number ", i)] = list[i].Name
			if n := list[i].Narrow; n != nil {
				all[label+list[i].Name+" narrow"] = fmt.Sprintf("%+v", *n)
			}
		}
	}
	for i := range s.nodeTypes {
		n := &s.nodeTypes[i]
		tensors(n.Name+".", n.Tensors)
		tensors(n.Name+".split ", n.Splits)
		add(n.Name+".order", n.Order)
	}
	for i := range s.edgeTypes {
		e := &s.edgeTypes[i]
		tensors(e.String(), e.Tensors)
		add(e.String()+"indptr", e.Indptr)
		add(e.String()+"indices", e.Indices)
		add(e.String()+"edge_ids", e.EdgeIDs)
		if w := e.Weights; w != nil {
			add(e.String()+"weights", &w.Array)
			add(e.String()+"sums", &w.Sums)
		}
	}
	tensors("attached ", s.attachments)
	return all
}

// TestAppendsAreConversions: after any sequence of appends a store is what a conversion of everything writes, byte for
// byte, with whatever memory and whether files can be shared or not.
func TestAppendsAreConversions(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(explore.Rounds(60)) {
		rng := explore.Rand(t, 71, seed)
		g := newGrowing(rng)
		g.add(rng, 40)
		path := filepath.Join(t.TempDir(), "s")
		require.NoError(t, Convert(ctx, ssd.OS, g.input(), path, ConvertOptions{}))
		for step := range 3 {
			scale := []int64{2, 40, 400}[rng.IntN(3)]
			next := path
			if rng.IntN(2) == 0 {
				next = fmt.Sprint(path, step)
			}
			refuse := faultfs.New(ssd.OS)
			if rng.IntN(2) == 0 {
				refuse.Arm(faultfs.Fault{Op: faultfs.Share, Errno: syscall.EXDEV, Times: faultfs.Forever, Nth: 1 + rng.IntN(4)})
			}
			src, err := Open(refuse, path)
			require.NoError(t, err)
			more, opts := g.add(rng, scale), ConvertOptions{Overwrite: true}
			if rng.IntN(3) == 0 {
				var short *mem.BudgetError
				err := Append(ctx, src, next, more, ConvertOptions{Overwrite: true, Memory: 1})
				require.ErrorAs(t, err, &short)
				opts.Memory = short.Need
			}
			require.NoError(t, Append(ctx, src, next, more, opts), "seed %d step %d", seed, step)
			require.NoError(t, src.Close())
			if next != path {
				require.NoError(t, os.RemoveAll(path))
			}
			path = next
			whole := path + "whole"
			require.NoError(t, Convert(ctx, ssd.OS, g.input(), whole, ConvertOptions{Overwrite: true}))
			s := mustOpen(t, path)
			require.NoError(t, s.Verify(ctx, nil))
			want, got := contents(t, mustOpen(t, whole)), contents(t, s)
			for name := range want {
				require.Equal(t, want[name], got[name], "seed %d step %d: %s", seed, step, name)
			}
			require.Len(t, got, len(want))
			require.Len(t, s.Describe().History, 2+step)
			require.Equal(t, "append", s.Describe().History[1+step].Action)
		}
	}
}

func TestAppendFaults(t *testing.T) {
	ctx := context.Background()
	rng := explore.Rand(t, 71, 101)
	g := newGrowing(rng)
	g.add(rng, 40)
	path := filepath.Join(t.TempDir(), "s")
	require.NoError(t, Convert(ctx, ssd.OS, g.input(), path, ConvertOptions{}))
	more := g.add(rng, 40)
	whole := path + "whole"
	require.NoError(t, Convert(ctx, ssd.OS, g.input(), whole, ConvertOptions{}))
	want := contents(t, mustOpen(t, whole))
	requireFaults(t, path, func(src *Store) error { return Append(ctx, src, path+"2", more, ConvertOptions{}) },
		func(s *Store) { require.Equal(t, want, contents(t, s)) })
}

func TestAppendBadInput(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s")
	floats := func(name string, shape ...int64) NamedSource {
		n := int64(4)
		for _, d := range shape {
			n *= d
		}
		return NamedSource{name, Dense(manifest.DType_FLOAT32, shape, make([]byte, n))}
	}
	columns := floats("c", 3, 8)
	columns.Narrow = narrow.Int8Columns
	in := Input{NumNodes: 3, EdgeIndex: edgesOf([]int64{0, 1}, []int64{1, 2}),
		NodeTensors: []NamedSource{floats("x", 3, 2)}, EdgeTensors: []NamedSource{floats("w", 2)}, WeightsOf: "w"}
	require.NoError(t, Convert(ctx, ssd.OS, in, path, ConvertOptions{}))
	in.NodeTensors = []NamedSource{columns}
	require.NoError(t, Convert(ctx, ssd.OS, in, path+"columns", ConvertOptions{}))
	nodes := func(tensors ...NamedSource) Growth {
		return Growth{Nodes: []NodeInput{{NumNodes: -1, Tensors: tensors}}}
	}
	edges := func(from, to int64, tensors ...NamedSource) Growth {
		return Growth{Edges: []EdgeInput{{EdgeIndex: edgesOf([]int64{from}, []int64{to}), Tensors: tensors}}}
	}
	bad := NamedSource{"w", Dense(manifest.DType_FLOAT32, []int64{1}, mem.Bytes([]float32{-1}))}
	ids := NamedSource{"x", Dense(manifest.DType_FLOAT64, []int64{1, 2}, make([]byte, 16))}
	for name, tc := range map[string]struct {
		more Growth
		err  error
		text string
	}{
		"unknown type":      {Growth{Nodes: []NodeInput{{Name: "paper"}}}, ErrNotFound, "paper"},
		"unknown edge type": {Growth{Edges: []EdgeInput{{Relation: "r"}}}, ErrNotFound, "edge type"},
		"twice":             {Growth{Nodes: []NodeInput{{}, {}}}, ErrInvalid, "given twice"},
		"missing":           {Growth{Nodes: []NodeInput{{NumNodes: 1}}}, ErrInvalid, "x has no new rows, expected 1"},
		"unknown tensor":    {nodes(floats("x", 1, 2), floats("z", 1)), ErrInvalid, "z is not in the store"},
		"shape":             {nodes(floats("x", 1, 3)), ErrInvalid, "rows of shape [3], expected [2]"},
		"dtype":             {nodes(ids), ErrInvalid, "holds float64, expected float32"},
		"source":            {edges(3, 0, floats("w", 1)), ErrInvalid, "edge_index[0, 0] is 3, expected an id in [0, 3)"},
		"target":            {edges(0, 3, floats("w", 1)), ErrInvalid, "edge_index[1, 0] is 3"},
		"missing of edges":  {edges(0, 1), ErrInvalid, "w has no new rows"},
		"weight":            {edges(0, 1, bad), ErrInvalid, "w[0] is -1"},
		"attachment":        {Growth{Attachments: []NamedSource{floats("a", 1)}}, ErrInvalid, `no attachment "a"`},
		"split": {Growth{Nodes: []NodeInput{{NumNodes: 0, Splits: map[string]Source{
			"s": Dense(manifest.DType_INT64, []int64{1}, int64Bytes([]int64{3}))}}}}, ErrInvalid, `element 0 of split "s" is 3`},
	} {
		t.Run(name, func(t *testing.T) {
			err := Append(ctx, mustOpen(t, path), path+"2", tc.more, ConvertOptions{})
			require.ErrorIs(t, err, tc.err)
			require.ErrorContains(t, err, tc.text)
			require.NoDirExists(t, path+"2")
			require.NoDirExists(t, path+"2"+partialSuffix)
		})
	}
	err := Append(ctx, mustOpen(t, path+"columns"), path+"2", nodes(floats("c", 1, 8)), ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "depend on all rows")
	require.NoError(t, Append(ctx, mustOpen(t, path+"columns"), path+"3", edges(0, 1, floats("w", 1)), ConvertOptions{}))
	require.ErrorIs(t, Append(ctx, mustOpen(t, path), path, Growth{}, ConvertOptions{}), ErrExists)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	more := edges(0, 1, floats("w", 1))
	require.ErrorIs(t, Append(canceled, mustOpen(t, path), path+"4", more, ConvertOptions{}), context.Canceled)
	require.NoDirExists(t, path+"4")
}
