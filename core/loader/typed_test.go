package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// typedDataset is a graph with types whose tensors tell their type and row: byte j of row v of tensor k is v + 7*j + 31*k (mod 256).
type typedDataset struct {
	names  []string
	counts []int64
	nodes  [][]GraphTensor
	edges  []GraphEdges
}

func typedRows(rows, width int64, tag byte) []byte {
	out := make([]byte, rows*width)
	for v := range rows {
		for j := range width {
			out[v*width+j] = byte(v+v>>8) + 7*byte(j) + 31*tag
		}
	}
	return out
}

// newTypedDataset has types with one, two and no tensors, a type without nodes and one that nothing reaches, and relations of very different sizes.
func newTypedDataset() *typedDataset {
	rng := rand.New(rand.NewPCG(3, 4))
	d := &typedDataset{names: []string{"user", "item", "tag", "none", "far"}, counts: []int64{900, 2500, 60, 0, 40}}
	add := func(name string, typ int, width int64, tag byte) GraphTensor {
		return GraphTensor{Name: name, DType: manifest.DType_UINT8, RowShape: []int64{width}, Rows: typedRows(d.counts[typ], width, tag)}
	}
	d.nodes = [][]GraphTensor{{add("x", 0, 96, 1)}, {add("narrow", 1, 80, 2), add("x", 1, 170, 3), add("y", 1, 8, 4)}, nil, {add("x", 3, 100, 5)}, {add("x", 4, 300, 6)}}
	for i, r := range []struct {
		source, target, edges int
		attr                  bool
	}{{0, 1, 9000, true}, {1, 0, 6000, false}, {0, 0, 2000, true}, {1, 2, 4000, false}, {2, 1, 500, true}, {3, 1, 0, true}, {4, 4, 90, false}} {
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
				{Name: "attr", DType: manifest.DType_UINT8, RowShape: []int64{70}, Rows: typedRows(int64(r.edges), 70, byte(10+i))},
				{Name: "w", DType: manifest.DType_FLOAT32, Rows: littleEndian(weights)},
			}
		}
		d.edges = append(d.edges, e)
	}
	return d
}

func (d *typedDataset) graph(t *testing.T) *TypedGraph {
	t.Helper()
	var in TypedGraphInput
	for i, name := range d.names {
		in.NodeTypes = append(in.NodeTypes, GraphNodes{Name: name, NumNodes: d.counts[i], Tensors: d.nodes[i]})
	}
	in.EdgeTypes = d.edges
	g, err := NewTypedGraph(context.Background(), in)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func (d *typedDataset) store(t *testing.T, fs ssd.FS) *store.Store {
	t.Helper()
	named := func(tensors []GraphTensor) (out []store.NamedSource) {
		for _, x := range tensors {
			width := int64(x.DType.Size())
			for _, n := range x.RowShape {
				width *= n
			}
			shape := append([]int64{int64(len(x.Rows)) / width}, x.RowShape...)
			out = append(out, store.NamedSource{Name: x.Name, Source: store.Dense(x.DType, shape, x.Rows)})
		}
		return out
	}
	var in store.Input
	for i, name := range d.names {
		in.NodeTypes = append(in.NodeTypes, store.NodeInput{Name: name, NumNodes: d.counts[i], Tensors: named(d.nodes[i])})
	}
	for _, e := range d.edges {
		in.EdgeTypes = append(in.EdgeTypes, store.EdgeInput{Source: e.Source, Relation: e.Relation, Target: e.Target, EdgeIndex: e.EdgeIndex, Tensors: named(e.Tensors)})
	}
	path := filepath.Join(t.TempDir(), "typed.freshgo")
	require.NoError(t, store.Convert(context.Background(), ssd.OS, in, path, store.ConvertOptions{Memory: 64 << 20}))
	s, err := store.Open(fs, path)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// typedOptions have seeds of three types, some of them twice.
func (d *typedDataset) options() Options {
	o := plain()
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

// check compares a batch with what the sampler draws for its seeds, and every row with the tensor that it is of.
func (d *typedDataset) check(t *testing.T, g *TypedGraph, w *sample.HeteroWorker, o Options, epoch int64, b *seen) {
	t.Helper()
	lists := make([][]int64, len(d.names))
	first := []int64{0}
	for _, n := range d.counts {
		first = append(first, first[len(first)-1]+n)
	}
	for _, v := range o.Seeds {
		typ := 0
		for v >= first[typ+1] {
			typ++
		}
		lists[typ] = append(lists[typ], v-first[typ])
	}
	seeds, total := make([][]int64, len(d.names)), 0
	for typ := range d.names {
		for _, at := range b.int64s(fmt.Sprintf("n%d/input_id", typ)) {
			seeds[typ] = append(seeds[typ], lists[typ][at])
		}
		total += len(seeds[typ])
	}
	require.EqualValues(t, total, b.numSeeds)
	var want sample.HeteroSubgraph
	require.NoError(t, w.Sample(context.Background(), sample.Key{Seed: o.Seed, Epoch: uint64(epoch), Batch: uint64(b.index)}, seeds, &want))
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
			require.True(t, bytes.Equal(x.Rows[int(v)*width:][:width], got[i*width:][:width]), "row %d of %s of batch %d, which is %d", i, name, b.index, v)
		}
	}
	for typ := range d.names {
		at := fmt.Sprintf("n%d/", typ)
		same(at+"n_id", want.Nodes[typ])
		same(at+"num_sampled_nodes", want.NodesPerHop[typ])
		names++ // input_id
		for _, x := range d.nodes[typ] {
			rows(at+x.Name, x, want.Nodes[typ])
		}
	}
	for i, r := range want.Relations {
		at := fmt.Sprintf("e%d/", i)
		same(at+"ptr", r.Ptr)
		same(at+"num_sampled_edges", r.EdgesPerHop)
		edges, ids := make([]int64, 2*len(r.Row)), make([]int64, len(r.Pos))
		fillEdgeIndex(edges, r.Row, r.Ptr)
		same(at+"edge_index", edges)
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
		same(at+"e_id", ids)
		for _, x := range d.edges[i].Tensors {
			rows(at+x.Name, x, ids)
		}
	}
	if o.Labor == nil && !o.Transpose {
		require.Len(t, b.arrays, names)
	}
}

func (d *typedDataset) worker(t *testing.T, g *TypedGraph, o Options) *sample.HeteroWorker {
	t.Helper()
	s, err := sample.NewHetero(g.Sampled(), sample.HeteroConfig{Fanouts: o.RelationFanouts, Replace: o.Replace, Labor: o.Labor})
	require.NoError(t, err)
	w, err := s.NewWorker(mem.NewBudget(0), make([]bool, len(d.names)), 1)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

func TestTypedBatchesAreWhatTheSamplerDraws(t *testing.T) {
	d := newTypedDataset()
	g := d.graph(t)
	s := d.store(t, ssd.OS)
	for _, tt := range []struct {
		name   string
		source Source
		change func(o *Options)
	}{
		{"memory", g, func(o *Options) {}},
		{"memory, 8 threads", g, func(o *Options) { o.Workers, o.Prefetch = 8, 5 }},
		{"memory, budget, one at a time", g, func(o *Options) { o.Workers, o.Prefetch, o.Memory = 2, 0, 24<<20 }},
		{"memory, not shuffled, replaced", g, func(o *Options) { o.Shuffle, o.Replace = false, true }},
		{"store", OpenStore(s), func(o *Options) {}},
		{"store, topology on disk", OpenStore(s), func(o *Options) { o.NeighborCache, o.FeatureCache, o.Workers, o.Prefetch = 0, 0, 1, 0 }},
		{"degree", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "degree", 60<<10 }},
		{"in-degree", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "in-degree", 60<<10 }},
		{"presc", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "presc", 60<<10 }},
		{"random", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "random", 60<<10 }},
		{"lru", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache, o.Prefetch = "lru", 60<<10, 4 }},
		{"match", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache, o.NeighborCache = "match", 90<<10, 0 }},
		{"all held", OpenStore(s), func(o *Options) { o.Cache = "degree" }},
		{"auto in a budget", OpenStore(s), func(o *Options) { o.Cache, o.Memory, o.Prefetch = "auto", 24<<20, 3 }},
		{"belady", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache, o.Prefetch = "belady", 120<<10, 3 }},
		{"belady, page-once", OpenStore(s), func(o *Options) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.Checksums = "belady", 120<<10, "page-once", 3, true
		}},
		{"belady, scan", OpenStore(s), func(o *Options) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory, o.Prefetch = "belady", 120<<10, "scan+forward", 4, 8<<20, 1
		}},
		{"belady, pack, reordered", OpenStore(s), func(o *Options) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory, o.Prefetch = "belady", 120<<10, "pack+forward", 4, 8<<20, 1
			o.CarryOver = false
		}},
		{"belady, forward, disk", OpenStore(s), func(o *Options) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory, o.NeighborCache = "belady", 120<<10, "forward", 5, 4<<20, 0
			o.Scratch = t.TempDir()
		}},
		{"labor", OpenStore(s), func(o *Options) { o.Labor, o.Cache, o.FeatureCache = &sample.Labor{BatchDependency: 1}, "lru", 60<<10 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := d.options()
			tt.change(&o)
			w := d.worker(t, g, o)
			l := open(t, tt.source, o)
			found := map[string]int{}
			for epoch := range int64(2) {
				clear(found)
				for _, b := range epochOf(t, l, epoch) {
					d.check(t, g, w, o, epoch, b)
					for typ := range d.names {
						for _, at := range b.int64s(fmt.Sprintf("n%d/input_id", typ)) {
							found[fmt.Sprint(typ, " ", at)]++
						}
					}
				}
				require.Len(t, found, len(o.Seeds))
			}
			st := l.Stats()
			if o.Transfer != "random" {
				require.Positive(t, st.Packed)
			}
			require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses)
			if o.Cache != "none" && tt.source != Source(g) {
				require.Positive(t, st.Hits)
			}
		})
	}
}

// TestTypedResume: an epoch that is resumed in the middle, and batches that are put in another order, are those of the epoch.
func TestTypedResume(t *testing.T) {
	d := newTypedDataset()
	o := d.options()
	o.Cache, o.FeatureCache, o.Superbatch, o.Reorder, o.Prefetch, o.ReorderRows = "belady", 120<<10, 8, 4, 2, 200
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	whole := epochOf(t, l, 1)
	for _, first := range []int64{3, 6} {
		require.NoError(t, l.Start(1, first, Train))
		requireSame(t, whole[first:], rest(t, l))
	}
	require.NoError(t, l.Start(1, 2, Trace))
	seen := map[string]bool{}
	for _, b := range rest(t, l) {
		require.Len(t, b.arrays, 2*len(d.names))
		seen[fmt.Sprint(b.int64s("n1/n_id"))] = true
	}
	require.Greater(t, len(seen), 5)
}

// TestTypedBudgets: whatever the memory, batches are right or the smallest that works is named.
func TestTypedBudgets(t *testing.T) {
	d := newTypedDataset()
	g, s := d.graph(t), d.store(t, ssd.OS)
	for name, change := range map[string]func(o *Options){
		"plain":   func(*Options) {},
		"labor":   func(o *Options) { o.Labor, o.Transpose = &sample.Labor{BatchDependency: 1}, true },
		"weights": func(o *Options) { o.WeightAttr = "w" },
	} {
		for kind, source := range map[string]Source{"memory": g, "store": OpenStore(s)} {
			o := d.options()
			change(&o)
			w := d.worker(t, g, o)
			o.Memory, o.Cache = 1<<20, "auto"
			_, err := Open(context.Background(), source, o, mem.NewAllocator())
			var short *mem.BudgetError
			require.ErrorAs(t, err, &short)
			for _, more := range []int64{0, 100 << 10, 3 << 20} {
				o.Memory = short.Need + more
				l := open(t, source, o)
				for _, b := range epochOf(t, l, 0) {
					if o.WeightAttr == "" {
						d.check(t, g, w, o, 0, b)
					}
				}
				require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory, "%s, %s", name, kind)
			}
		}
	}
}

// TestTypedBatchesAreCounted: a batch takes the bytes that room was made for.
func TestTypedBatchesAreCounted(t *testing.T) {
	d := newTypedDataset()
	for _, mode := range []Mode{Train, Trace} {
		o := d.options()
		o.Labor, o.Transpose = &sample.Labor{BatchDependency: 1}, true
		l := open(t, d.graph(t), o)
		require.NoError(t, l.Start(0, 0, mode))
		b, err := l.Next(context.Background())
		require.NoError(t, err)
		total := int64(0)
		for _, a := range b.Arrays {
			n := int64(a.DType.Size())
			for _, k := range a.Shape {
				n *= k
			}
			total += n
		}
		require.Equal(t, total, b.bytes)
		b.Release()
	}
}

func TestTypedSeedsOfEveryNode(t *testing.T) {
	d := newTypedDataset()
	o := d.options()
	o.Seeds, o.Shuffle, o.RelationFanouts, o.Fanouts = nil, false, nil, []int64{2, 1}
	l := open(t, d.graph(t), o)
	at := make([]int64, len(d.names))
	for _, b := range epochOf(t, l, 0) {
		for typ := range d.names {
			for i, input := range b.int64s(fmt.Sprintf("n%d/input_id", typ)) {
				require.Equal(t, at[typ], input)
				require.Equal(t, at[typ], b.int64s(fmt.Sprintf("n%d/n_id", typ))[i])
				at[typ]++
			}
		}
	}
	require.Equal(t, d.counts, at)
}

// TestTypedWeights: of a relation with weights no edge of weight zero is drawn; those without draw the same as ever.
func TestTypedWeights(t *testing.T) {
	d := newTypedDataset()
	for i := range d.edges {
		if len(d.edges[i].Tensors) > 0 {
			w := d.edges[i].Tensors[1]
			weights := mem.View[float32](w.Rows)
			for k := range weights {
				weights[k] = float32(k % 2)
			}
		}
	}
	s := d.store(t, ssd.OS)
	for name, source := range map[string]Source{"memory": d.graph(t), "store": OpenStore(s)} {
		for _, neighbors := range []int64{Auto, 0} {
			o := d.options()
			o.WeightAttr, o.NeighborCache = "w", neighbors
			drawn := 0
			for _, b := range epochOf(t, open(t, source, o), 0) {
				for i := range d.edges {
					if len(d.edges[i].Tensors) == 0 {
						continue
					}
					for _, e := range b.int64s(fmt.Sprintf("e%d/e_id", i)) {
						require.EqualValues(t, 1, e%2, name)
						drawn++
					}
				}
			}
			require.Greater(t, drawn, 100)
		}
	}
}

func TestTypedTranspose(t *testing.T) {
	d := newTypedDataset()
	o := d.options()
	o.Transpose = true
	for _, b := range epochOf(t, open(t, d.graph(t), o), 0) {
		for i := range d.edges {
			at := fmt.Sprintf("e%d/", i)
			edges, ptr := b.int64s(at+"edge_index"), b.int64s(at+TransposedNames[0])
			n := len(edges) / 2
			target, edge := mem.View[int32](b.arrays[at+TransposedNames[1]]), mem.View[int32](b.arrays[at+TransposedNames[2]])
			require.Len(t, edge, n)
			require.EqualValues(t, n, ptr[len(ptr)-1])
			for s := range len(ptr) - 1 {
				for k := ptr[s]; k < ptr[s+1]; k++ {
					require.EqualValues(t, s, edges[edge[k]])
					require.EqualValues(t, edges[n+int(edge[k])], target[k])
				}
			}
		}
	}
}

func TestTypedHotness(t *testing.T) {
	d := newTypedDataset()
	s := d.store(t, ssd.OS)
	o := d.options()
	o.Cache = "degree"
	scores := make([]float32, 3500)
	require.NoError(t, Hotness(context.Background(), OpenStore(s), o, scores))
	want := make([]float32, 3500)
	g := d.graph(t)
	first := g.parts().types.first
	for _, e := range g.edges {
		for _, v := range e.csc.Indices32 {
			want[first[e.source]+int64(v)]++
		}
	}
	require.True(t, slices.Equal(want, scores))
	o.Cache, o.PreSCEpochs = "presc", 2
	require.NoError(t, Hotness(context.Background(), g, o, scores))
	l := open(t, g, o)
	clear(want)
	for epoch := range int64(2) {
		require.NoError(t, l.Start(epoch, 0, Trace))
		for _, b := range rest(t, l) {
			for typ := range d.names {
				ids := b.int64s(fmt.Sprintf("n%d/n_id", typ))
				slices.Sort(ids)
				for _, v := range slices.Compact(ids) {
					want[first[typ]+v]++
				}
			}
		}
	}
	require.True(t, slices.Equal(want, scores))
}

func TestTypedOptionsThatAreRefused(t *testing.T) {
	d := newTypedDataset()
	g := d.graph(t)
	for _, tt := range []struct {
		change  func(o *Options)
		target  error
		message string
	}{
		{func(o *Options) { o.Cache = "expected" }, ErrOption, "presc"},
		{func(o *Options) { o.History = &HistoryOptions{} }, ErrOption, "histor"},
		{func(o *Options) { o.Walks = []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}} }, ErrOption, "random walks"},
		{func(o *Options) { o.RelationFanouts = o.RelationFanouts[1:] }, sample.ErrFanout, "6 edge types, the graph has 7"},
		{func(o *Options) { o.RelationFanouts[2] = []int64{1} }, sample.ErrFanout, "1 fanouts of relation 2"},
		{func(o *Options) { o.Seeds = append(o.Seeds, 905) }, ErrOption, `a node of type "item"`},
		{func(o *Options) { o.Seeds = append(o.Seeds, 3500) }, sample.ErrSeed, "[0, 3500)"},
		{func(o *Options) { o.WeightAttr = "weight" }, ErrOption, "(user, r0, item).attr"},
		{func(o *Options) { o.WeightAttr = "attr" }, ErrOption, "expected one number"},
	} {
		o := d.options()
		tt.change(&o)
		_, err := Open(context.Background(), g, o, mem.NewAllocator())
		require.ErrorIs(t, err, tt.target)
		require.ErrorContains(t, err, tt.message)
	}
	o := plain()
	o.RelationFanouts = [][]int64{{1}}
	_, err := Open(context.Background(), newDataset(10, 10).graph(t), o, mem.NewAllocator())
	require.ErrorIs(t, err, sample.ErrFanout)
}

// TestTypedDamage: a bad neighbour in a file is an error that names the file, when it is loaded and when it is read.
func TestTypedDamage(t *testing.T) {
	d := newTypedDataset()
	s := d.store(t, ssd.OS)
	edges := s.EdgeTypes()
	indices := edges[0].Indices
	data, err := os.ReadFile(indices.Path)
	require.NoError(t, err)
	for i := range 4 * indices.Rows {
		data[i] = 0x7f
	}
	require.NoError(t, os.WriteFile(indices.Path, data, 0o644))
	for _, neighbors := range []int64{Auto, 0} {
		o := d.options()
		o.NeighborCache = neighbors
		l, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
		if neighbors == 0 {
			require.NoError(t, err)
			defer l.Close()
			require.NoError(t, l.Start(0, 0, Train))
			for err == nil {
				var b *Batch
				if b, err = l.Next(context.Background()); b != nil {
					b.Release()
				}
			}
			require.False(t, errors.Is(err, io.EOF))
		}
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.ErrorContains(t, err, filepath.Base(indices.Path))
	}
}
