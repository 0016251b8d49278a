package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// TestBatchesAreWhatTheSamplerDraws is the metamorphic test of the loader: what is in a batch does not depend on
// anything but the graph, what is asked for, and the seed.
func TestBatchesAreWhatTheSamplerDraws(t *testing.T) {
	for _, f := range forms(newDataset(3000, 40000)) {
		g, s := f.graph(t), f.store(t, ssd.OS)
		few, most, small := rowsFor(300), rowsFor(1000), int64(5<<19)
		if len(f.names) > 1 {
			few, most, small = 60<<10, 120<<10, 24<<20
		}
		planned := func(o *draw.Options, transfer string, superbatch, buffers int64) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory, o.Prefetch = "belady", most, transfer, superbatch,
				buffers, 1
		}
		moves := map[string]func(o *draw.Options){
			"defaults":               func(*draw.Options) {},
			"one thread":             func(o *draw.Options) { o.Workers = 1 },
			"eight threads":          func(o *draw.Options) { o.Workers, o.Prefetch = 8, 8 },
			"eight threads, no lead": func(o *draw.Options) { o.Workers, o.Prefetch = 8, 0 },
			"deep prefetch":          func(o *draw.Options) { o.Prefetch = 30 },
			"pread":                  func(o *draw.Options) { o.IO = ssd.Pread },
			"buffered":               func(o *draw.Options) { o.IO = ssd.Buffered },
			"checksums":              func(o *draw.Options) { o.Checksums = true },
			"degree":                 func(o *draw.Options) { o.Cache, o.FeatureCache = "degree", few },
			"in-degree":              func(o *draw.Options) { o.Cache, o.FeatureCache = "in-degree", few },
			"presc":                  func(o *draw.Options) { o.Cache, o.FeatureCache = "presc", few },
			"expected":               func(o *draw.Options) { o.Cache, o.FeatureCache = "expected", few },
			"random":                 func(o *draw.Options) { o.Cache, o.FeatureCache = "random", few },
			"lru":                    func(o *draw.Options) { o.Cache, o.FeatureCache, o.Prefetch = "lru", few, 4 },
			"match":                  func(o *draw.Options) { o.Cache, o.FeatureCache, o.NeighborCache = "match", most, 0 },
			"all held":               func(o *draw.Options) { o.Cache = "degree" },
			"neighbours on disk":     func(o *draw.Options) { o.NeighborCache = 0 },
			"edge numbers on disk":   func(o *draw.Options) { o.NeighborCache = 40000 * 4 },
			"all on disk": func(o *draw.Options) {
				o.NeighborCache, o.FeatureCache, o.Workers, o.Prefetch, o.Checksums = 0, 0, 1, 0, true
			},
			"little memory":     func(o *draw.Options) { o.Memory, o.Cache, o.Prefetch = small, "degree", 2 },
			"auto in a budget":  func(o *draw.Options) { o.Memory, o.Cache, o.Prefetch = 24<<20, "auto", 3 },
			"belady":            func(o *draw.Options) { o.Cache, o.FeatureCache, o.Prefetch = "belady", most, 3 },
			"belady, page-once": func(o *draw.Options) { planned(o, "page-once", 3, draw.Auto); o.Checksums = true },
			"belady, scan":      func(o *draw.Options) { planned(o, "scan+forward", 4, 8<<20) },
			"belady, pack":      func(o *draw.Options) { planned(o, "pack+forward", 4, 8<<20); o.CarryOver = false },
			"belady, ahead": func(o *draw.Options) {
				planned(o, "pack+forward+ahead", 4, 8<<20)
				o.Scratch = t.TempDir()
			},
			"belady, forward, disk": func(o *draw.Options) {
				planned(o, "forward", 5, 4<<20)
				o.NeighborCache, o.Scratch = 0, t.TempDir()
			},
		}
		for draws, change := range map[string]func(o *draw.Options){
			"shuffled":               func(*draw.Options) {},
			"not shuffled, replaced": func(o *draw.Options) { o.Shuffle, o.Replace = false, true },
			"few seeds, repeated": func(o *draw.Options) {
				o.Seeds, o.BatchSize, o.Shuffle = []int64{7, 3, 3, 499, 0, 120, 7, 55, 90}, 4, false
			},
			"labor": func(o *draw.Options) { o.Sampler = &sample.Labor{BatchDependency: 1} },
		} {
			o := f.options()
			change(&o)
			want := f.rightEpochs(t, g, o)
			places := []string{"degree", "lru", "neighbours on disk"}
			if draws == "shuffled" {
				places = slices.Sorted(maps.Keys(moves))
			}
			for _, place := range explore.Part(t, fmt.Sprint(f, draws), some(f, places...)) {
				t.Run(fmt.Sprintf("%s, %s, %s", f, draws, place), func(t *testing.T) {
					o := o
					moves[place](&o)
					l := open(t, draw.OpenStore(s), o)
					for epoch := range want {
						requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
					}
					st := l.Stats()
					if o.Transfer != "random" && draws == "shuffled" {
						require.Positive(t, st.Packed)
					}
					require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses)
					if o.Cache != "none" {
						require.Positive(t, st.Hits)
					}
					if o.Memory > 0 {
						require.LessOrEqual(t, st.MemoryPeak, o.Memory)
					}
				})
			}
		}
	}
}

// rightEpochs are the batches of two epochs of a graph in memory, which are compared with what the sampler draws, and
// cover the seeds.
func (f *form) rightEpochs(t *testing.T, g *draw.Graph, o draw.Options) (epochs [2][]*seen) {
	t.Helper()
	w, l := f.worker(t, g, o), open(t, g, o)
	for epoch := range epochs {
		epochs[epoch] = epochOf(t, l, int64(epoch))
		found := map[string]bool{}
		for _, b := range epochs[epoch] {
			f.check(t, g, w, o, int64(epoch), b)
			for typ := range f.names {
				for _, at := range b.int64s(l.draw.Parts.Schema.NodeName(typ, "input_id")) {
					found[fmt.Sprint(typ, " ", at)] = true
				}
			}
		}
		if o.Seeds != nil {
			require.Len(t, found, len(o.Seeds))
		} else {
			require.EqualValues(t, sum(f.counts), len(found))
		}
	}
	return epochs
}

// TestResume: an epoch that is resumed in the middle, or in another order, has the batches of the epoch. A trace has
// its nodes, and reads no row.
func TestResume(t *testing.T) {
	for _, f := range forms(newDataset(1000, 9000)) {
		s := f.store(t, ssd.OS)
		for _, reordered := range some(f, false, true) {
			o := f.options()
			if reordered {
				o.Cache, o.FeatureCache, o.Superbatch, o.Reorder, o.Prefetch, o.ReorderRows = "belady", 120<<10, 8, 4, 2, 200
			}
			l := open(t, draw.OpenStore(s), o)
			whole := epochOf(t, l, 1)
			for _, first := range []int{3, 6, len(whole)} {
				require.NoError(t, l.Start(1, int64(first), Train))
				require.Len(t, whole[first:], len(whole)-first)
				requireSame(t, whole[first:], rest(t, l))
			}
			require.ErrorIs(t, l.Start(1, int64(len(whole))+1, Train), draw.ErrOption)
			require.ErrorIs(t, l.Start(-1, 0, Train), draw.ErrOption)
			l.Stop()
			before := l.Stats().BytesRead
			require.NoError(t, l.Start(1, 0, Trace))
			for i, b := range rest(t, l) {
				require.Len(t, b.arrays, 2*len(f.names))
				for typ := range f.names {
					name := l.draw.Parts.Schema.NodeName(typ, "n_id")
					require.Equal(t, whole[i].arrays[name], b.arrays[name])
				}
			}
			require.Equal(t, before, l.Stats().BytesRead)
		}
	}
}

// TestBudgets: whatever the memory, batches are right or the smallest that works is named.
func TestBudgets(t *testing.T) {
	for _, f := range []*form{newDataset(2000, 20000).weighted(manifest.DType_FLOAT32).form(""), severalTypes()} {
		g, s := f.graph(t), f.store(t, ssd.OS)
		weights := "weight"
		if len(f.names) > 1 {
			weights = "w"
		}
		for name, change := range map[string]func(o *draw.Options){
			"plain":   func(*draw.Options) {},
			"labor":   func(o *draw.Options) { o.Sampler, o.Transpose = &sample.Labor{BatchDependency: 1}, true },
			"weights": func(o *draw.Options) { o.WeightAttr = weights },
		} {
			o := f.options()
			change(&o)
			want := epochOf(t, open(t, g, o), 0)
			if o.WeightAttr == "" {
				want = f.rightEpochs(t, g, o)[0]
			}
			for kind, source := range map[string]draw.Source{"memory": g, "store": draw.OpenStore(s)} {
				o.Memory, o.Cache = 1000, "auto"
				least := leastMemory(t, source, o)
				for _, more := range []int64{0, 100 << 10, 3 << 20} {
					o.Memory = least + more
					l := open(t, source, o)
					requireSame(t, want, epochOf(t, l, 0))
					require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory, "%s, %s", name, kind)
				}
			}
		}
	}
}

// TestBudgetsOfFewSeeds: a type that has few of the seeds is in none of the batches that are measured by place,
// and needs the most.
func TestBudgetsOfFewSeeds(t *testing.T) {
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
	for kind, source := range map[string]draw.Source{"memory": g, "store": draw.OpenStore(d.store(t, ssd.OS))} {
		for _, o.Cache = range []string{"none", "auto"} {
			o.Memory = 1
			o.Memory = leastMemory(t, source, o)
			l := open(t, source, o)
			for _, b := range epochOf(t, l, 0) {
				d.check(t, g, w, o, 0, b)
			}
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory, kind)
		}
	}
}

// requireCounted holds that the first batch takes the bytes that the gate has counted.
func requireCounted(t *testing.T, l *Loader) {
	t.Helper()
	for _, mode := range []Mode{Train, Trace} {
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
		require.Equal(t, total, b.Reserved)
		b.Release()
	}
}

func TestBatchesAreCounted(t *testing.T) {
	for _, f := range forms(newDataset(500, 6000)) {
		o := f.options()
		o.Sampler, o.Transpose = &sample.Labor{BatchDependency: 1}, true
		requireCounted(t, open(t, f.graph(t), o))
	}
}

func TestSeedsOfEveryNode(t *testing.T) {
	for _, f := range forms(newDataset(500, 6000)) {
		o := f.options()
		o.Seeds, o.Shuffle, o.RelationFanouts, o.Fanouts = nil, false, nil, []int64{2, 1}
		l := open(t, f.graph(t), o)
		at := make([]int64, len(f.names))
		for _, b := range epochOf(t, l, 0) {
			for typ := range f.names {
				name := func(of string) string { return l.draw.Parts.Schema.NodeName(typ, of) }
				for i, input := range b.int64s(name("input_id")) {
					require.Equal(t, at[typ], input)
					require.Equal(t, at[typ], b.int64s(name("n_id"))[i])
					at[typ]++
				}
			}
		}
		require.Equal(t, f.counts, at)
	}
}

// TestDamage: a bad neighbour in a file is an error that names the file, when it is loaded and when it is read.
func TestDamage(t *testing.T) {
	for _, f := range forms(newDataset(1000, 9000)) {
		s := f.store(t, ssd.OS)
		indices := s.EdgeTypes()[0].Indices
		data, err := os.ReadFile(indices.Path)
		require.NoError(t, err)
		for i := range 4 * indices.Rows {
			data[i] = 0x7f
		}
		require.NoError(t, os.WriteFile(indices.Path, data, 0o644))
		for _, neighbors := range []int64{draw.Auto, 0} {
			o := f.options()
			o.NeighborCache = neighbors
			l, err := Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
			if neighbors == 0 {
				require.NoError(t, err)
				defer l.Close()
				require.NoError(t, l.Start(0, 0, Train))
				for err == nil {
					var b *batch.Batch
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
}
