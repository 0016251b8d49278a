package loader

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/packed"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// cachedEdges counts the in-edges of the cached lists.
func cachedEdges(lists *cache.Neighbors) (edges int64) {
	for run := range lists.Runs(0, math.MaxInt64) {
		edges += run.To - run.From
	}
	return edges
}

// bySorted gives the dataset's edges in the order of their targets, so that its
// store needs no edge numbers.
func (d *dataset) bySorted() *dataset {
	slices.Sort(d.targets)
	return d
}

// onDisk keeps the topology on disk but for this many bytes of lists.
func onDisk(o draw.Options, nBytes int64) draw.Options {
	o.NeighborCache, o.Cache, o.FeatureCache = nBytes, "degree", draw.Auto
	return o
}

// listBytes returns the size of all lists of a form's store that may be cached with these options.
func (f *form) listBytes(t *testing.T, s *store.Store, o draw.Options) int64 {
	t.Helper()
	l := &draw.Sampling{Options: o, Parts: draw.OpenStore(s).Parts()}
	require.NoError(t, l.Check())
	types, total := l.Parts.Schema, int64(0)
	for i := range types.Relations {
		r := &types.Relations[i]
		if !types.MayList(i) {
			continue
		}
		width, columns := packed.Width(types.NumNodes(r.Source)), 1
		if r.OnDisk.EdgeIDs != nil && !types.Walked {
			width, columns = width+packed.Width(r.NumEdges), 2
		}
		total += cache.NeighborTableBytes(types.NumNodes(r.Target)) + cache.ColumnsBytes(columns) +
			(r.NumEdges*int64(width)+7)/8
	}
	return total
}

// degenerate is a random heterogeneous graph: some types empty or of one node, hubs, parallel edges, edges from nodes
// to themselves, relations without edges and such as are stored in the order of targets, without edge numbers.
func degenerate(seed uint64) *form {
	rng := rand.New(rand.NewPCG(seed, 77))
	d := &form{}
	for i := range 1 + rng.IntN(4) {
		d.names = append(d.names, fmt.Sprint("t", i))
		d.counts = append(d.counts, []int64{0, 1, 2, 17, 400, 1500}[rng.IntN(6)])
		d.nodes = append(d.nodes, nil)
	}
	if rng.IntN(2) == 0 || slices.Max(d.counts) == 0 {
		d.counts[0] = 700
	}
	for i := range 1 + rng.IntN(6) {
		source, target, edges := rng.IntN(len(d.names)), rng.IntN(len(d.names)), rng.IntN(1+rng.IntN(8000))
		if d.counts[source] == 0 || d.counts[target] == 0 {
			edges = 0
		}
		hub := d.counts[target] > 0 && rng.IntN(3) == 0
		var sources, targets []int64
		for range edges {
			u := rng.Float64()
			sources = append(sources, int64(float64(d.counts[source])*u*u))
			v := rng.Int64N(d.counts[target])
			if hub && rng.IntN(2) == 0 {
				v = 0
			}
			targets = append(targets, v)
		}
		if rng.IntN(2) == 0 {
			slices.Sort(targets)
		}
		d.edges = append(d.edges, draw.GraphEdges{
			Source: d.names[source], Relation: fmt.Sprint("r", i), Target: d.names[target],
			EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, int64(edges)}, mem.Bytes(append(sources, targets...))),
		})
	}
	return d
}

// requireLists holds that with lists of some nodes in memory an epoch has the batches of the graph in memory, and that
// the lists take no more than they may.
func (f *form) requireLists(t *testing.T, s *store.Store, o draw.Options, want []*seen) {
	t.Helper()
	l := open(t, draw.OpenStore(s), o)
	requireSame(t, want, epochOf(t, l, 1))
	require.LessOrEqual(t, l.draw.Budget.Live()[mem.NeighborCache], o.NeighborCache)
	hits, misses := l.draw.NeighborCounts(l.counters.Edges.Load())
	if o.Sampler == nil && o.Subgraph == sample.Directional {
		require.Equal(t, l.Stats().Edges, hits+misses, "%d bytes, %d workers", o.NeighborCache, o.Workers)
	}
}

// TestListsChangeNoBatch is the metamorphic test of the neighbour cache: off, smaller than its address table, partial,
// full.
func TestListsChangeNoBatch(t *testing.T) {
	for _, d := range []*dataset{newDataset(3000, 40000), newDataset(2000, 30000).bySorted(), newDataset(9000, 4000)} {
		f, o := d.form(""), plain()
		s, rng := f.store(t, ssd.OS), explore.Rand(t, 1, uint64(d.nodes))
		o.Seed = explore.Seed(t, 5)
		want := epochOf(t, open(t, f.graph(t), o), 1)
		o.Cache = "degree"
		full := f.listBytes(t, s, o)
		for _, o.NeighborCache = range explore.Part(t, fmt.Sprint(d.nodes), []int64{
			0, 1, cache.NeighborTableBytes(d.nodes), full / 20, full / 4, full / 2, full * 3 / 4,
		}) {
			o.Workers, o.Prefetch = 1+rng.IntN(8), rng.IntN(9)
			o.IO = []ssd.Kind{ssd.Auto, ssd.Pread, ssd.Buffered}[rng.IntN(3)]
			o.Checksums = rng.IntN(2) == 0
			f.requireLists(t, s, o, want)
		}
	}
	for seed := range uint64(explore.Rounds(12)) {
		f := degenerate(explore.Seed(t, seed))
		g, s, rng := f.graph(t), f.store(t, ssd.OS), explore.Rand(t, seed, 2)
		for range 2 {
			o := plain()
			o.Fanouts = [][]int64{{3}, {4, 3}, {2, -1}, {-1, 0}, {2, 2, 2}}[rng.IntN(5)]
			o.Replace, o.BatchSize = rng.IntN(3) == 0, 1+rng.Int64N(90)
			switch rng.IntN(4) {
			case 0:
				o.Sampler, o.Replace = &sample.Labor{BatchDependency: 1}, false
			case 1:
				o.Disjoint = true
			case 2:
				o.Subgraph, o.Replace = sample.SubgraphType(1+rng.IntN(2)), false
			}
			want := epochOf(t, open(t, g, o), 1)
			full := f.listBytes(t, s, o)
			o.Cache, o.Checksums = "degree", rng.IntN(2) == 0
			o.Workers, o.Prefetch = []int{1, 2, 8}[rng.IntN(3)], rng.IntN(9)
			for _, o.NeighborCache = range []int64{1, full / 20, full / 3, full - 1} {
				if o.NeighborCache >= 0 { // a graph may have no list
					f.requireLists(t, s, o, want)
				}
			}
		}
	}
}

func TestListsWithReplacementAndAllNeighbours(t *testing.T) {
	f := newDataset(1500, 20000).form("")
	s := f.store(t, ssd.OS)
	for _, replace := range []bool{false, true} {
		o := plain()
		o.Fanouts, o.Replace = []int64{-1, 12, 2}, replace
		o.Seeds = []int64{3, 3, 900, 0, 1499, 3, 77}
		want := epochOf(t, open(t, f.graph(t), o), 0)
		requireSame(t, want, epochOf(t, open(t, draw.OpenStore(s), onDisk(o, f.listBytes(t, s, o)/3)), 0))
	}
}

// TestListsOfAllSamplers: the same of every way to draw, on one, two and eight threads, from the first batch and
// from one in the middle.
func TestListsOfAllSamplers(t *testing.T) {
	f := severalTypes().timed()
	g, s := f.graph(t), f.store(t, ssd.OS)
	ways := map[string]func(o *draw.Options){
		"uniform":             func(*draw.Options) {},
		"replaced":            func(o *draw.Options) { o.Replace = true },
		"weighted":            func(o *draw.Options) { o.WeightAttr = "w" },
		"labor":               func(o *draw.Options) { o.Sampler = &sample.Labor{BatchDependency: 1} },
		"bidirectional":       func(o *draw.Options) { o.Subgraph = sample.Bidirectional },
		"bidirectional trees": func(o *draw.Options) { o.Subgraph, o.Disjoint = sample.Bidirectional, true },
		"induced":             func(o *draw.Options) { o.Subgraph = sample.Induced },
		"walks":               func(o *draw.Options) { *o = f.walked() },
		"links": func(o *draw.Options) {
			*o = f.forLinks(links.Options{Negatives: 2, Strict: true, Exclude: links.ExcludeBoth, Reverse: 1}, 0, 1)
		},
	}
	for name, change := range f.treeOptions() {
		ways["trees, "+name] = change
	}
	for name, change := range ways {
		explore.Run(t, name, func(t *testing.T) {
			o := f.options()
			change(&o)
			want := epochOf(t, open(t, g, o), 1)
			full, missed := f.listBytes(t, s, o), int64(0)
			for _, change := range []func(o *draw.Options){
				func(o *draw.Options) { o.Workers, o.Prefetch, o.NeighborCache = 1, 0, full/3 },
				func(o *draw.Options) { o.Workers, o.Prefetch, o.NeighborCache, o.Checksums = 2, 1, full*3/4, true },
				func(o *draw.Options) { o.Workers, o.Prefetch, o.NeighborCache = 8, 5, full/6 },
				func(o *draw.Options) {
					o.Cache, o.FeatureCache, o.Superbatch, o.NeighborCache = "belady", 120<<10, 4, full/2
				},
			} {
				o := o
				o.Cache = "lru"
				change(&o)
				l := open(t, draw.OpenStore(s), o)
				require.NotEmpty(t, l.draw.Lists)
				requireSame(t, want, epochOf(t, l, 1))
				hits, misses := l.draw.NeighborCounts(l.counters.Edges.Load())
				require.Positive(t, hits)
				missed += misses
				half := len(want) / 2
				require.NoError(t, l.Start(1, int64(half), Train))
				requireSame(t, want[half:], rest(t, l))
			}
			require.Positive(t, missed)
		})
	}
}

// TestListsWithHistory: nor do they change what is pruned.
func TestListsWithHistory(t *testing.T) {
	f := severalTypes()
	s := f.store(t, ssd.OS)
	o := f.withHistory(f.options(), history.Gradient)
	reference := f.train(t, open(t, f.graph(t), o))
	o.NeighborCache, o.Cache, o.Workers = f.listBytes(t, s, o)/3, "degree", 2
	r := f.train(t, open(t, draw.OpenStore(s), o))
	r.requireEpochs([][]*seen{reference.epochOf(0), reference.epochOf(1)})
	require.NotEmpty(t, r.l.draw.Lists)
	require.Positive(t, r.hits)
}

// missesOf counts the edges of batches whose targets' lists a loader has not.
func (l *Loader) missesOf(batches []*seen) (misses int64) {
	types, kind := l.draw.Parts.Schema, 0
	for i := range types.Relations {
		var lists *cache.Neighbors
		if types.MayList(i) {
			lists = l.draw.Lists[kind]
			kind++
		}
		for _, b := range batches {
			index, nodes := b.int64s(types.EdgeName(i, "edge_index")),
				b.int64s(types.NodeName(types.Relations[i].Target, "n_id"))
			for _, target := range index[len(index)/2:] {
				at := []int64{cache.Miss}
				if lists != nil {
					lists.Find([]int64{nodes[target]}, at)
				}
				if at[0] == cache.Miss {
					misses++
				}
			}
		}
	}
	return misses
}

// TestMoreListsReadLess: the more is cached, the fewer edges miss, which are exactly those of lists that are not
// cached, and the less is read.
func TestMoreListsReadLess(t *testing.T) {
	for _, f := range forms(newDataset(4000, 50000)) {
		s := f.store(t, ssd.OS)
		o := f.options()
		if len(f.names) > 1 {
			o.RelationFanouts = [][]int64{{4, 3}, {3, 3}, {2, 2}, {5, 5}, {2, 2}, {1, 1}, {1, 1}}
		}
		o.Cache, o.Checksums = "degree", true
		full := f.listBytes(t, s, o)
		var last, lastBytes int64 = 1 << 60, 1 << 60
		for _, o.NeighborCache = range []int64{0, full / 10, full / 4, full * 2 / 5, full * 2 / 3, full * 9 / 10} {
			l := open(t, draw.OpenStore(s), o)
			opened := l.Stats().BytesRead
			batches := epochOf(t, l, 0)
			hits, misses := l.draw.NeighborCounts(l.counters.Edges.Load())
			require.Equal(t, l.Stats().Edges, hits+misses)
			if o.NeighborCache > 0 {
				require.Equal(t, l.missesOf(batches), misses)
				edges, cached := int64(0), int64(0)
				for i := range f.edges {
					edges += f.edges[i].EdgeIndex.Shape[1]
				}
				for _, lists := range l.draw.Lists {
					cached += cachedEdges(lists)
				}
				require.Greater(t, hits*edges, (hits+misses)*cached, "lists are those wanted most often for what they cost")
			}
			require.Less(t, misses, last)
			read := l.Stats().BytesRead - opened // of topology only: rows are all in memory
			require.Less(t, read, lastBytes)
			last, lastBytes = misses, read
		}
	}
}

// TestAllListsAreTopology: where all lists are in memory nothing misses, and a byte less is for lists of both arrays:
// neighbours alone would fit, but lists of both save more reads.
func TestAllListsAreTopology(t *testing.T) {
	s := newDataset(4000, 50000).store(t, ssd.OS)
	all := packed.Bytes(50000, packed.Width(4000)) + packed.Bytes(50000, packed.Width(50000))
	l := open(t, draw.OpenStore(s), onDisk(plain(), all-1))
	require.False(t, l.draw.Split.Neighbors)
	require.True(t, l.draw.Parts.Schema.Relations[0].EdgeIDs.Cached())
	l = open(t, draw.OpenStore(s), onDisk(plain(), all))
	require.True(t, l.draw.Split.Neighbors && l.draw.Split.EdgeIDs)
	hits, misses := l.draw.NeighborCounts(l.counters.Edges.Load())
	require.Zero(t, hits+misses)
	epochOf(t, l, 0)
	hits, misses = l.draw.NeighborCounts(l.counters.Edges.Load())
	require.Zero(t, misses)
	require.Equal(t, l.Stats().Edges, hits)
}

// TestOneTypeHasTheListsOfNone: of a graph with one type of nodes and of edges the same lists are cached as without
// types, and as much is read.
func TestOneTypeHasTheListsOfNone(t *testing.T) {
	for _, d := range []*dataset{newDataset(900, 7000), newDataset(700, 5000).bySorted()} {
		nodes := make([]int64, d.nodes)
		for v := range nodes {
			nodes[v] = int64(v)
		}
		none, one := d.store(t, ssd.OS), d.form("node").store(t, ssd.OS)
		for _, fanouts := range [][]int64{{-1}, {-1, -1}} {
			o := plain()
			o.Fanouts, o.Cache, o.BatchSize, o.Workers, o.Prefetch = fanouts, "degree", 30, 1, 0 // there is nothing to draw
			for _, part := range []int64{12, 7, 2} {
				o.NeighborCache = d.form("").listBytes(t, none, o) / part
				var found [2][]int64
				for i, s := range []*store.Store{none, one} {
					l, at := open(t, draw.OpenStore(s), o), make([]int64, d.nodes)
					l.draw.Lists[0].Find(nodes, at)
					require.Positive(t, cachedEdges(l.draw.Lists[0]))
					hits, misses := l.draw.NeighborCounts(l.counters.Edges.Load())
					require.Zero(t, hits+misses)
					epochOf(t, l, 0)
					hits, misses = l.draw.NeighborCounts(l.counters.Edges.Load())
					found[i] = append(at, hits, misses)
				}
				require.Equal(t, found[0], found[1])
			}
		}
	}
}
