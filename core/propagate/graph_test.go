package propagate

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// randomGraph is a graph of one type or of several, with rows that are exact in every type of float.
type randomGraph struct {
	names  []string // of node types; one empty: homogeneous
	counts []int64
	widths []int
	dtypes []manifest.DType
	x      [][]float64
	edges  []randomEdges
}

type randomEdges struct {
	from, to         int
	sources, targets []int64
	w                []float64 // nil: the edge type has no weights
	byPosition       bool
}

var floats = []manifest.DType{
	manifest.DType_FLOAT32, manifest.DType_FLOAT16, manifest.DType_BFLOAT16, manifest.DType_FLOAT64,
}

// newRandomGraph draws a graph. Sources are skewed; there are self-loops, edges that occur twice and nodes without any.
func newRandomGraph(rng *rand.Rand, types int) *randomGraph {
	g := &randomGraph{}
	for t := range types {
		name := ""
		if types > 1 {
			name = fmt.Sprint("t", t)
		}
		g.names = append(g.names, name)
		n, width := 1+rng.Int64N(400), 1+rng.IntN(70)
		if rng.IntN(4) == 0 {
			width = 200 + rng.IntN(1500) // rows that are packed, or longer than a page
		}
		g.counts, g.widths = append(g.counts, n), append(g.widths, width)
		g.dtypes = append(g.dtypes, floats[rng.IntN(len(floats))])
		x := make([]float64, n*int64(width))
		for i := range x {
			x[i] = float64(rng.IntN(255) - 127)
		}
		g.x = append(g.x, x)
	}
	relations := 1
	if types > 1 {
		relations = 1 + rng.IntN(4)
	}
	for range relations {
		e := randomEdges{from: rng.IntN(types), to: rng.IntN(types)}
		for range rng.IntN(2500) {
			u := rng.Float64()
			source, target := int64(float64(g.counts[e.from])*u*u), rng.Int64N(g.counts[e.to])
			if rng.IntN(5) == 0 {
				target = rng.Int64N(1 + g.counts[e.to]/9)
			}
			if e.from == e.to && rng.IntN(20) == 0 {
				source = target
			}
			e.sources, e.targets = append(e.sources, source), append(e.targets, target)
		}
		if rng.IntN(2) == 0 { // sorted by target: positions are edge numbers
			slices.Sort(e.targets)
		}
		if rng.IntN(2) == 0 {
			e.w, e.byPosition = make([]float64, len(e.sources)), rng.IntN(2) == 0
			for i := range e.w {
				e.w[i] = float64(rng.IntN(9)) / 4
			}
		}
		g.edges = append(g.edges, e)
	}
	return g
}

func bytesOf(dtype manifest.DType, values []float64) []byte {
	out := make([]byte, len(values)*dtype.Size())
	store.EncodeFloats(dtype, values, out)
	return out
}

// store converts the graph.
func (g *randomGraph) store(t testing.TB, fs ssd.FS) *store.Store {
	t.Helper()
	var nodes []store.NodeInput
	for i, name := range g.names {
		shape := []int64{g.counts[i], int64(g.widths[i])}
		nodes = append(nodes, store.NodeInput{Name: name, NumNodes: g.counts[i], Tensors: []store.NamedSource{
			{Name: "x", Source: store.Dense(g.dtypes[i], shape, bytesOf(g.dtypes[i], g.x[i]))},
		}})
	}
	var edges []store.EdgeInput
	for i, e := range g.edges {
		ends := []byte{}
		for _, v := range append(slices.Clone(e.sources), e.targets...) {
			ends = binary.LittleEndian.AppendUint64(ends, uint64(v))
		}
		in := store.EdgeInput{
			Source: g.names[e.from], Relation: fmt.Sprint("r", i), Target: g.names[e.to],
			EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, int64(len(e.sources))}, ends),
		}
		if e.w != nil {
			in.Tensors = []store.NamedSource{{Name: "w", Source: store.Dense(manifest.DType_FLOAT32,
				[]int64{int64(len(e.w))}, bytesOf(manifest.DType_FLOAT32, e.w))}}
			if e.byPosition {
				in.WeightsOf = "w"
			}
		}
		edges = append(edges, in)
	}
	input := store.Input{NodeTypes: nodes, EdgeTypes: edges}
	if g.names[0] == "" {
		input = store.Input{NumNodes: g.counts[0], EdgeIndex: edges[0].EdgeIndex, NodeTensors: nodes[0].Tensors,
			EdgeTensors: edges[0].Tensors, WeightsOf: edges[0].WeightsOf}
	}
	path := filepath.Join(t.TempDir(), "g.freshgo")
	require.NoError(t, store.Convert(context.Background(), ssd.OS, input, path, store.ConvertOptions{}))
	return open(t, fs, path)
}

func open(t testing.TB, fs ssd.FS, path string) *store.Store {
	t.Helper()
	s, err := store.Open(fs, path)
	require.NoError(t, err)
	return s
}

// relaid puts the rows of a store in a random order.
func relaid(t testing.TB, s *store.Store, rng *rand.Rand) *store.Store {
	t.Helper()
	var scores []float32
	for _, n := range s.NodeTypes() {
		for range n.Count {
			scores = append(scores, 1+rng.Float32())
		}
	}
	path := filepath.Join(t.TempDir(), "r.freshgo")
	opts := store.RelayoutOptions{Order: store.Hot, Scores: scores}
	require.NoError(t, store.Relayout(context.Background(), s, path, opts))
	return open(t, s.FS(), path)
}

// along is the reference: what comes along an edge type, in float64, one edge after the other.
func (g *randomGraph) along(e *randomEdges, rows []float64, width int, kind string, weighted bool) []float64 {
	n := g.counts[e.to]
	out, degree := make([]float64, n*int64(width)), make([]float64, n)
	loop, count := make([]float64, n), make([]float64, n)
	weight := func(i int) float64 {
		if weighted && e.w != nil {
			return e.w[i]
		}
		return 1
	}
	for v := range loop {
		loop[v] = 1
	}
	for i, t := range e.targets {
		count[t]++
		if kind == GCN && e.sources[i] == t {
			loop[t] = weight(i)
		} else {
			degree[t] += weight(i)
		}
	}
	inverse := func(v int64) float64 {
		if d := degree[v] + loop[v]; d > 0 {
			return 1 / math.Sqrt(d)
		}
		return 0
	}
	add := func(u, t int64, c float64) {
		for j := range width {
			out[t*int64(width)+int64(j)] += c * rows[u*int64(width)+int64(j)]
		}
	}
	for i, t := range e.targets {
		switch u := e.sources[i]; {
		case kind != GCN:
			add(u, t, weight(i))
		case u != t:
			add(u, t, weight(i)*inverse(u)*inverse(t))
		}
	}
	for v := range n {
		switch {
		case kind == GCN:
			add(v, v, loop[v]*inverse(v)*inverse(v))
		case kind == Mean && count[v] > 0:
			for j := range width {
				out[v*int64(width)+int64(j)] /= count[v]
			}
		}
	}
	return out
}

// read returns the rows of a tensor in the user's order as float64.
func read(t testing.TB, s *store.Store, of *store.Tensor) []float64 {
	t.Helper()
	rows := make([]byte, of.Rows*int64(of.Layout.RowBytes))
	require.NoError(t, s.ReadTensor(context.Background(), &of.Array, rows, mem.NewBudget(0)))
	out := make([]float64, of.Rows*of.RowShape[0])
	store.DecodeFloats(of.DType, rows[:len(out)*of.DType.Size()], out)
	return out
}

// columnsOf is some columns of rows.
func columnsOf(rows []float64, width, first, count int) []float64 {
	var out []float64
	for at := 0; at < len(rows); at += width {
		out = append(out, rows[at+first:at+first+count]...)
	}
	return out
}

// requireNear compares with the precision of a type, relative to the largest number.
func requireNear(t *testing.T, dtype manifest.DType, want, got []float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	precision := map[manifest.DType]float64{
		manifest.DType_FLOAT16: 1.0 / (1 << 11), manifest.DType_BFLOAT16: 1.0 / (1 << 8),
		manifest.DType_FLOAT32: 1.0 / (1 << 24), manifest.DType_FLOAT64: 1e-13,
	}[dtype]
	for i, w := range want {
		if dtype == manifest.DType_FLOAT16 && math.Abs(w) > 65000 {
			continue // beyond what it holds
		}
		if off := math.Abs(w - got[i]); !(off <= (math.Abs(w)+1e-3)*precision*1.001+1e-12) {
			require.Failf(t, what, "number %d is %v, expected %v", i, got[i], w)
		}
	}
}
