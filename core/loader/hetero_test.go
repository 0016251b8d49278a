package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

func TestHeteroBatchesAreWhatTheSamplerDraws(t *testing.T) {
	d := severalTypes()
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
		{"store, topology on disk", OpenStore(s), func(o *Options) {
			o.NeighborCache, o.FeatureCache, o.Workers, o.Prefetch = 0, 0, 1, 0
		}},
		{"degree", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "degree", 60<<10 }},
		{"in-degree", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "in-degree", 60<<10 }},
		{"presc", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "presc", 60<<10 }},
		{"expected", OpenStore(s), func(o *Options) { o.Cache, o.FeatureCache = "expected", 60<<10 }},
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
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory, o.Prefetch = "belady", 120<<10, "scan+forward", 4,
				8<<20, 1
		}},
		{"belady, pack, reordered", OpenStore(s), func(o *Options) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory, o.Prefetch = "belady", 120<<10, "pack+forward", 4,
				8<<20, 1
			o.CarryOver = false
		}},
		{"belady, forward, disk", OpenStore(s), func(o *Options) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory, o.NeighborCache = "belady", 120<<10, "forward", 5,
				4<<20, 0
			o.Scratch = t.TempDir()
		}},
		{"labor", OpenStore(s), func(o *Options) {
			o.Labor, o.Cache, o.FeatureCache = &sample.Labor{BatchDependency: 1}, "lru", 60<<10
		}},
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

// TestHeteroResume: an epoch that is resumed in the middle, and batches that are put in another order, are those of the
// epoch.
func TestHeteroResume(t *testing.T) {
	d := severalTypes()
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

// TestHeteroBudgets: whatever the memory, batches are right or the smallest that works is named.
func TestHeteroBudgets(t *testing.T) {
	d := severalTypes()
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

// TestHeteroBudgetsOfFewSeeds: a type that has few of the seeds is in none of the batches that are measured by place,
// and needs the most.
func TestHeteroBudgetsOfFewSeeds(t *testing.T) {
	d := severalTypes()
	g := d.graph(t)
	o := d.options()
	o.RelationFanouts = [][]int64{{1}, {0}, {0}, {-1}, {0}, {0}, {0}}
	o.Seeds, o.Shuffle = nil, false
	for v := range int64(2450) {
		o.Seeds = append(o.Seeds, 900+v) // items
	}
	for v := range int64(40) {
		o.Seeds = append(o.Seeds, 3400+v) // tags, of 66 in-edges each
	}
	w := d.worker(t, g, o)
	for kind, source := range map[string]Source{"memory": g, "store": OpenStore(d.store(t, ssd.OS))} {
		for _, o.Cache = range []string{"none", "auto"} {
			o.Memory = 1
			_, err := Open(context.Background(), source, o, mem.NewAllocator())
			var short *mem.BudgetError
			require.ErrorAs(t, err, &short)
			o.Memory = short.Need
			l := open(t, source, o)
			for _, b := range epochOf(t, l, 0) {
				d.check(t, g, w, o, 0, b)
			}
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory, kind)
		}
	}
}

// TestHeteroBatchesAreCounted: a batch takes the bytes that room was made for.
func TestHeteroBatchesAreCounted(t *testing.T) {
	d := severalTypes()
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

func TestHeteroSeedsOfEveryNode(t *testing.T) {
	d := severalTypes()
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

// TestHeteroWeights: of a relation with weights no edge of weight zero is drawn; those without draw the same as ever.
func TestHeteroWeights(t *testing.T) {
	d := severalTypes()
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

func TestHeteroTranspose(t *testing.T) {
	d := severalTypes()
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

func TestHeteroHotness(t *testing.T) {
	d := severalTypes()
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

func TestHeteroOptionsThatAreRefused(t *testing.T) {
	d := severalTypes()
	g := d.graph(t)
	for _, tt := range []struct {
		change  func(o *Options)
		target  error
		message string
	}{
		{func(o *Options) { o.History = &HistoryOptions{} }, ErrOption, "histor"},
		{func(o *Options) { o.Walks = []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}} }, ErrOption,
			"random walks"},
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
	bad := severalTypes()
	bad.edges[2].Tensors[1].Rows[3] |= 0x80 // a sign
	o := bad.options()
	o.WeightAttr = "w"
	for _, source := range []Source{bad.graph(t), OpenStore(bad.store(t, ssd.OS))} {
		_, err := Open(context.Background(), source, o, mem.NewAllocator())
		require.ErrorIs(t, err, ErrOption)
		require.ErrorContains(t, err, `edge type (user, r2, user): `)
	}
	o = plain()
	o.RelationFanouts = [][]int64{{1}}
	_, err := Open(context.Background(), newDataset(10, 10).graph(t), o, mem.NewAllocator())
	require.ErrorIs(t, err, sample.ErrFanout)
}

// TestHeteroDamage: a bad neighbour in a file is an error that names the file, when it is loaded and when it is read.
func TestHeteroDamage(t *testing.T) {
	d := severalTypes()
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
