package loader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// listBytes is what all lists of the dataset's store take that may be cached with these options.
func (d *form) listBytes(t *testing.T, s *store.Store, o Options) int64 {
	t.Helper()
	l := &sampling{options: o, parts: OpenStore(s).parts()}
	require.NoError(t, l.check())
	types, total := l.parts.types, int64(0)
	for i := range types.relations {
		r := &types.relations[i]
		if !types.mayList(i) {
			continue
		}
		width := r.onDisk.Indices.Layout.RowBytes
		if r.onDisk.EdgeIDs != nil && !types.walked {
			width += r.onDisk.EdgeIDs.Layout.RowBytes
		}
		total += cache.NeighborTableBytes(types.count(r.target)) + r.numEdges*int64(width)
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
		d.edges = append(d.edges, GraphEdges{
			Source: d.names[source], Relation: fmt.Sprint("r", i), Target: d.names[target],
			EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, int64(edges)}, littleEndian(append(sources, targets...))),
		})
	}
	return d
}

// TestHeteroListsChangeNoBatch: with lists of some nodes in memory, batches are those of the graph in memory.
func TestHeteroListsChangeNoBatch(t *testing.T) {
	for seed := range uint64(12) {
		d := degenerate(explore.Seed(t, seed))
		g, s, rng := d.graph(t), d.store(t, ssd.OS), explore.Rand(t, seed, 2)
		for range 2 {
			o := plain()
			o.Fanouts = [][]int64{{3}, {4, 3}, {2, -1}, {-1, 0}, {2, 2, 2}}[rng.IntN(5)]
			o.Replace, o.BatchSize = rng.IntN(3) == 0, 1+rng.Int64N(90)
			switch rng.IntN(4) {
			case 0:
				o.Labor, o.Replace = &sample.Labor{BatchDependency: 1}, false
			case 1:
				o.Disjoint = true
			case 2:
				o.Subgraph, o.Replace = sample.SubgraphType(1+rng.IntN(2)), false
			}
			want := epochOf(t, open(t, g, o), 1)
			full := d.listBytes(t, s, o)
			o.Cache, o.Checksums = "degree", rng.IntN(2) == 0
			o.Workers, o.Prefetch = []int{1, 2, 8}[rng.IntN(3)], rng.IntN(9)
			for _, o.NeighborCache = range []int64{1, full / 20, full / 3, full - 1} {
				l := open(t, OpenStore(s), o)
				requireSame(t, want, epochOf(t, l, 1))
				require.LessOrEqual(t, l.budget.Live()[mem.NeighborCache], max(o.NeighborCache, 0), "seed %d", seed)
				hits, misses := l.neighborCounts()
				if o.Labor == nil && o.Subgraph == sample.Directional {
					require.Equal(t, l.Stats().Edges, hits+misses, "seed %d", seed)
				}
			}
		}
	}
}

// TestHeteroListsOfAllSamplers: the same of every way to draw, on one, two and eight threads, from the first batch and
// from one in the middle.
func TestHeteroListsOfAllSamplers(t *testing.T) {
	d := severalTypes().timed()
	g, s := d.graph(t), d.store(t, ssd.OS)
	ways := map[string]func(o *Options){
		"uniform":             func(*Options) {},
		"replaced":            func(o *Options) { o.Replace = true },
		"weighted":            func(o *Options) { o.WeightAttr = "w" },
		"labor":               func(o *Options) { o.Labor = &sample.Labor{BatchDependency: 1} },
		"bidirectional":       func(o *Options) { o.Subgraph = sample.Bidirectional },
		"bidirectional trees": func(o *Options) { o.Subgraph, o.Disjoint = sample.Bidirectional, true },
		"induced":             func(o *Options) { o.Subgraph = sample.Induced },
		"walks":               func(o *Options) { *o = d.walked() },
		"links": func(o *Options) {
			*o = d.forLinks(links.Options{Negatives: 2, Strict: true, Exclude: links.ExcludeBoth, Reverse: 1}, 0, 1)
		},
	}
	for name, change := range d.treeOptions() {
		ways["trees, "+name] = change
	}
	for name, change := range ways {
		t.Run(name, func(t *testing.T) {
			o := d.options()
			change(&o)
			want := epochOf(t, open(t, g, o), 1)
			full, missed := d.listBytes(t, s, o), int64(0)
			for _, change := range []func(o *Options){
				func(o *Options) { o.Workers, o.Prefetch, o.NeighborCache = 1, 0, full/3 },
				func(o *Options) { o.Workers, o.Prefetch, o.NeighborCache, o.Checksums = 2, 1, full*3/4, true },
				func(o *Options) { o.Workers, o.Prefetch, o.NeighborCache = 8, 5, full/10 },
				func(o *Options) {
					o.Cache, o.FeatureCache, o.Superbatch, o.NeighborCache = "belady", 120<<10, 4, full/2
				},
			} {
				o := o
				o.Cache = "lru"
				change(&o)
				l := open(t, OpenStore(s), o)
				require.NotEmpty(t, l.lists)
				requireSame(t, want, epochOf(t, l, 1))
				hits, misses := l.neighborCounts()
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

// TestHeteroListsWithHistory: nor do they change what is pruned.
func TestHeteroListsWithHistory(t *testing.T) {
	d := severalTypes()
	s := d.store(t, ssd.OS)
	o := d.withHistory(d.options(), history.Gradient)
	reference := d.train(t, open(t, d.graph(t), o))
	o.NeighborCache, o.Cache, o.Workers = d.listBytes(t, s, o)/3, "degree", 2
	r := d.train(t, open(t, OpenStore(s), o))
	for epoch := range int64(2) {
		want, got := reference.epochOf(epoch), r.epochOf(epoch)
		for i := range got {
			r.requirePlainCounts(want[i], got[i])
		}
		requireSame(t, want, got)
	}
	require.NotEmpty(t, r.l.lists)
	require.Positive(t, r.hits)
}

// missesOf counts the edges of batches whose targets' lists a loader has not.
func (l *Loader) missesOf(batches []*seen) (misses int64) {
	types, kind := l.parts.types, 0
	for i := range types.relations {
		var lists *cache.Neighbors
		if types.mayList(i) {
			lists = l.lists[kind]
			kind++
		}
		for _, b := range batches {
			index, nodes := b.int64s(fmt.Sprintf("e%d/edge_index", i)),
				b.int64s(fmt.Sprintf("n%d/n_id", types.relations[i].target))
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

// TestMoreHeteroListsReadLess: the more is cached, the fewer edges miss, which are exactly those of lists that are not
// cached, and the less is read.
func TestMoreHeteroListsReadLess(t *testing.T) {
	d := severalTypes()
	s := d.store(t, ssd.OS)
	o := d.options()
	o.RelationFanouts = [][]int64{{4, 3}, {3, 3}, {2, 2}, {5, 5}, {2, 2}, {1, 1}, {1, 1}}
	o.Cache, o.Checksums = "degree", true
	full := d.listBytes(t, s, o)
	var last, lastBytes int64 = 1 << 60, 1 << 60
	for _, o.NeighborCache = range []int64{0, full / 10, full / 3, full * 2 / 3, full * 9 / 10} {
		l := open(t, OpenStore(s), o)
		opened := l.Stats().BytesRead
		batches := epochOf(t, l, 0)
		hits, misses := l.neighborCounts()
		require.Equal(t, l.Stats().Edges, hits+misses)
		if o.NeighborCache > 0 {
			require.Equal(t, l.missesOf(batches), misses)
		}
		require.Less(t, misses, last)
		read := l.Stats().BytesRead - opened // of topology only: rows are all in memory
		require.Less(t, read, lastBytes)
		last, lastBytes = misses, read
	}
}

// TestOneTypeHasTheListsOfNone: of a graph with one type of nodes and of edges the same lists are cached as without
// types, and as much is read.
func TestOneTypeHasTheListsOfNone(t *testing.T) {
	for _, edges := range []*dataset{newDataset(900, 7000), newDataset(700, 5000).bySorted()} {
		hetero := &form{names: []string{"all"}, counts: []int64{edges.nodes}, nodes: [][]GraphTensor{nil}}
		hetero.edges = []GraphEdges{{Source: "all", Relation: "to", Target: "all", EdgeIndex: edges.edgeIndex()}}
		plainStore, heteroStore := edges.store(t, ssd.OS), hetero.store(t, ssd.OS)
		for _, fanouts := range [][]int64{{-1}, {-1, -1}} {
			o := plain()
			o.Fanouts, o.Cache, o.BatchSize, o.Workers, o.Prefetch = fanouts, "degree", 30, 1, 0 // there is nothing to draw
			for _, part := range []int64{30, 7, 2} {
				o.NeighborCache = hetero.listBytes(t, heteroStore, o) / part
				a, b := open(t, OpenStore(plainStore), o), open(t, OpenStore(heteroStore), o)
				nodes := make([]int64, edges.nodes)
				for v := range nodes {
					nodes[v] = int64(v)
				}
				at := [2][]int64{make([]int64, edges.nodes), make([]int64, edges.nodes)}
				a.lists[0].Find(nodes, at[0])
				b.lists[0].Find(nodes, at[1])
				require.Equal(t, at[0], at[1])
				require.Positive(t, a.lists[0].Lists())
				aHits, aMisses := a.neighborCounts()
				require.Zero(t, aHits+aMisses)
				epochOf(t, a, 0)
				epochOf(t, b, 0)
				aHits, aMisses = a.neighborCounts()
				bHits, bMisses := b.neighborCounts()
				require.Equal(t, []int64{aHits, aMisses}, []int64{bHits, bMisses})
			}
		}
	}
}

// TestWantedLists is the rule of which lists are ranked, and how.
func TestWantedLists(t *testing.T) {
	edge := func(source, name, target string, pairs ...int64) GraphEdges {
		var ends [2][]int64
		for i, v := range pairs {
			ends[i%2] = append(ends[i%2], v)
		}
		index := store.Dense(manifest.DType_INT64, []int64{2, int64(len(pairs) / 2)},
			littleEndian(append(ends[0], ends[1]...)))
		return GraphEdges{Source: source, Relation: name, Target: target, EdgeIndex: index}
	}
	d := &form{names: []string{"author", "paper", "term", "alone"}, counts: []int64{3, 4, 2, 1},
		nodes: make([][]GraphTensor, 4)}
	d.edges = []GraphEdges{
		edge("paper", "by", "author", 0, 0, 1, 0, 1, 1, 1, 2),
		edge("author", "rev_by", "paper", 0, 0, 0, 1, 1, 1, 2, 1),
		edge("paper", "has", "term", 0, 0, 2, 1, 3, 1),
		edge("term", "rev_has", "paper", 0, 0, 1, 2, 1, 3),
		edge("paper", "to", "alone", 0, 0),
		edge("alone", "self", "alone", 0, 0),
	}
	s := d.store(t, ssd.OS)
	list := func(hops ...int64) (all [][]int64) {
		for range d.edges {
			all = append(all, hops)
		}
		return all
	}
	of := func(relation int) *links.Options { return &links.Options{Relation: relation} }
	for name, c := range map[string]struct {
		change func(o *Options)
		read   []int     // relations
		wanted []float32 // author 0 to 2, paper 0 to 3, term 0 and 1, alone
	}{
		"two hops from authors": {func(o *Options) { o.Seeds, o.RelationFanouts = []int64{1, 2, 1}, list(2, 2) },
			[]int{0, 1, 3}, []float32{0, 2, 1, 1, 3, 0, 0, 0, 0, 0}}, // papers by "by", authors as often as they are input
		"three hops from authors": {func(o *Options) { o.Seeds, o.RelationFanouts = []int64{1}, list(2, 2, 2) },
			[]int{0, 1, 2, 3}, []float32{2, 1, 1, 1, 3, 0, 0, 1, 2, 0}},
		"one hop": {func(o *Options) { o.Seeds, o.RelationFanouts = []int64{1}, list(2) },
			[]int{0}, []float32{0, 1, 0, 1, 3, 0, 0, 0, 0, 0}},
		"a relation that is not drawn along": {func(o *Options) {
			o.Seeds, o.RelationFanouts = []int64{3}, [][]int64{{2, 2}, {0, 0}, {2, 2}, {2, 2}, {2, 2}, {2, 2}}
		}, []int{2, 3}, []float32{0, 0, 0, 1, 0, 0, 0, 1, 2, 0}},
		"induced": {func(o *Options) { o.Seeds, o.RelationFanouts, o.Subgraph = []int64{1}, list(2, 2), sample.Induced },
			[]int{0, 1, 2, 3}, []float32{2, 1, 1, 1, 3, 0, 0, 1, 2, 0}},
		"walks": {func(o *Options) {
			o.Seeds, o.RelationFanouts = []int64{0}, [][]int64{{2}}
			o.Metapaths = []sample.Metapath{{Path: []int{0, 1}, Walks: []sample.Walk{{Walks: 2, Length: 2}}}}
		}, []int{0, 1}, []float32{2, 1, 1, 1, 3, 0, 0, 0, 0, 0}},
		"links": {func(o *Options) { o.Links, o.RelationFanouts = of(3), list(2) },
			[]int{1, 2, 3}, []float32{2, 1, 1, 1, 0, 1, 1, 1, 2, 0}},
		"links of a type to which nothing leads": {func(o *Options) {
			o.Links, o.RelationFanouts = of(2), [][]int64{{2, 2}, {2, 2}, {2, 0}, {0, 0}, {2, 2}, {2, 2}}
		}, []int{0, 1, 2}, []float32{2, 1, 1, 1, 0, 1, 1, 1, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Fanouts, o.NeighborCache, o.Cache, o.BatchSize = nil, 0, "none", 2
			c.change(&o)
			l := open(t, OpenStore(s), o)
			types := l.parts.types
			var read []int
			for i := range types.relations {
				if types.mayList(i) {
					read = append(read, i)
				}
			}
			require.Equal(t, c.read, read)
			wanted, err := types.wantedLists(context.Background(), &l.sampling)
			require.NoError(t, err)
			defer wanted.Close()
			require.Equal(t, c.wanted, []float32(wanted.Hotness))
		})
	}
}
