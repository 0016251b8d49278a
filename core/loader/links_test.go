package loader

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// forLinks is options for links of a relation between two types: some of its edges, one of them twice, and pairs that
// are none.
func (f *form) forLinks(k links.Options, source, target int) draw.Options {
	o := f.options()
	o.Seeds, o.BatchSize = nil, 50
	sources, targets := f.ends(k.Relation)
	for e := range 300 {
		k.Sources, k.Targets = append(k.Sources, sources[e*len(sources)/300]), append(k.Targets, targets[e*len(sources)/300])
	}
	for e := range int64(20) {
		k.Sources, k.Targets = append(k.Sources, e*7%f.counts[source]), append(k.Targets, e*11%f.counts[target])
	}
	k.Sources, k.Targets = append(k.Sources, k.Sources[5]), append(k.Targets, k.Targets[5])
	o.Links = &k
	return o
}

func (d *dataset) forLinks(k links.Options) draw.Options { return d.form("").forLinks(k, 0, 0) }

var linkKinds = map[string]links.Options{
	"plain":           {},
	"binary":          {Negatives: 1.5, Exclude: links.ExcludeLinks},
	"triplets":        {Negatives: 3, Triplets: true, Exclude: links.ExcludeBoth},
	"strict":          {Negatives: 1, Strict: true, Exclude: links.ExcludeBoth},
	"strict triplets": {Negatives: 1, Triplets: true, Strict: true},
}

// linkCase is links of a relation between two types.
type linkCase struct {
	name           string
	k              links.Options
	source, target int
}

func (f *form) linkCases() (cases []linkCase) {
	if len(f.names) > 1 {
		return []linkCase{
			{"user to item", links.Options{Negatives: 1.5, Relation: 0, Exclude: links.ExcludeLinks}, 0, 1},
			{"item to user, strict", links.Options{Negatives: 2, Relation: 1, Reverse: 0, Exclude: links.ExcludeBoth,
				Strict: true}, 1, 0},
			{"user to user", links.Options{Negatives: 2, Triplets: true, Relation: 2, Reverse: 2, Exclude: links.ExcludeBoth,
				Strict: true}, 0, 0},
			{"tag to item, triplets", links.Options{Negatives: 3, Triplets: true, Relation: 4, Reverse: 3,
				Exclude: links.ExcludeBoth, Strict: true}, 2, 1},
			{"plain", links.Options{Relation: 6}, 4, 4},
		}
	}
	for _, name := range slices.Sorted(maps.Keys(linkKinds)) {
		cases = append(cases, linkCase{name, linkKinds[name], 0, 0})
	}
	return some(f, cases...)
}

// TestLinksAreRight checks batches of links of a relation against what they are made of.
func TestLinksAreRight(t *testing.T) {
	for _, f := range forms(newDataset(900, 9000)) {
		g := f.graph(t)
		types := g.Parts().Schema
		for _, kind := range f.linkCases() {
			t.Run(fmt.Sprint(f, ", ", kind.name), func(t *testing.T) {
				k := kind.k
				o := f.forLinks(k, kind.source, kind.target)
				o.Seed = explore.Seed(t, o.Seed)
				given := *o.Links
				edges := map[sample.Link]bool{}
				all, ends := f.ends(k.Relation)
				for i, s := range all {
					edges[sample.Link{Source: s, Target: ends[i]}] = true
				}
				for i, s := range given.Sources {
					edges[sample.Link{Source: s, Target: given.Targets[i]}] = true
				}
				e := func(name string) string { return types.EdgeName(k.Relation, name) }
				source := func(name string) string { return types.NodeName(kind.source, name) }
				target := func(name string) string { return types.NodeName(kind.target, name) }
				inputs := map[int64]bool{}
				for _, b := range epochOf(t, open(t, g, o), 1) {
					from, to, input := b.int64s(source("n_id")), b.int64s(target("n_id")), b.int64s(e("input_id"))
					n := len(input)
					require.EqualValues(t, n, b.numSeeds)
					require.NotContains(t, b.arrays, "n0/input_id")
					for _, at := range input {
						inputs[at] = true
					}
					negatives := int(math.Ceil(float64(n) * k.Negatives))
					var sources, targets []int64
					if k.Triplets {
						each := int(k.Negatives)
						shape := []int64{int64(n)}
						require.Equal(t, shape, b.shapes[source("src_index")])
						if each > 1 {
							shape = append(shape, int64(each))
						}
						require.Equal(t, shape, b.shapes[target("dst_neg_index")])
						sources = b.int64s(source("src_index"))
						targets = append(b.int64s(target("dst_pos_index")), b.int64s(target("dst_neg_index"))...)
						for j := range negatives {
							sources = append(sources, sources[j/each])
						}
					} else {
						ends := b.int64s(e("edge_label_index"))
						require.Equal(t, []int64{2, int64(n + negatives)}, b.shapes[e("edge_label_index")])
						sources, targets = ends[:len(ends)/2], ends[len(ends)/2:]
					}
					wanted := make([]map[int64]bool, len(f.names)) // seeds of each type
					for typ := range wanted {
						wanted[typ] = map[int64]bool{}
					}
					excluded := map[[3]int64]bool{} // relation and ends
					for i := range sources {
						u, v := from[sources[i]], to[targets[i]]
						wanted[kind.source][u], wanted[kind.target][v] = true, true
						pair := sample.Link{Source: u, Target: v}
						if i >= n {
							require.False(t, k.Strict && (edges[pair] || kind.source == kind.target && u == v), pair)
							continue
						}
						require.Equal(t, sample.Link{Source: given.Sources[input[i]], Target: given.Targets[input[i]]}, pair)
						excluded[[3]int64{int64(k.Relation), u, v}] = k.Exclude != links.ExcludeNone
						if k.Exclude == links.ExcludeBoth {
							excluded[[3]int64{int64(k.Reverse), v, u}] = true
						}
					}
					for typ := range f.names {
						seeds := b.int64s(types.NodeName(typ, "n_id"))[:b.int64s(types.NodeName(typ, "num_sampled_nodes"))[0]]
						require.True(t, slices.Equal(slices.Sorted(maps.Keys(wanted[typ])), seeds), "seeds of type %d", typ)
					}
					for i, r := range g.Edges {
						sources, targets := f.ends(i)
						eID, index := b.int64s(types.EdgeName(i, "e_id")), b.int64s(types.EdgeName(i, "edge_index"))
						from, to := b.int64s(types.NodeName(r.Source, "n_id")), b.int64s(types.NodeName(r.Target, "n_id"))
						for j, id := range eID {
							u, v := from[index[j]], to[index[len(eID)+j]]
							require.Equal(t, [2]int64{sources[id], targets[id]}, [2]int64{u, v})
							require.False(t, excluded[[3]int64{int64(i), u, v}], "a link of the batch is among its edges")
						}
					}
				}
				require.Len(t, inputs, len(given.Sources))
			})
		}
	}
}

// TestLinksAgreeEverywhere: batches of links are the same whatever holds the graph, decides over the cache and works at
// them.
func TestLinksAgreeEverywhere(t *testing.T) {
	for _, f := range forms(newDataset(900, 9000)) {
		g, s := f.graph(t), f.store(t, ssd.OS)
		types, room, memory := g.Parts().Schema, int64(60000), int64(8<<20)
		if len(f.names) > 1 {
			room, memory = 120<<10, 64<<20
		}
		for _, kind := range f.linkCases() {
			if kind.name == "plain" {
				continue // as binary ones without negatives
			}
			for _, every := range []bool{false, true} {
				o := f.forLinks(kind.k, kind.source, kind.target)
				o.Seed = explore.Seed(t, o.Seed)
				if every {
					if !kind.k.Strict || kind.k.Triplets {
						continue
					}
					o.Links.Sources, o.Links.Targets, o.BatchSize = nil, nil, 800
				}
				reference := open(t, g, o)
				want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
				for _, change := range explore.Part(t, fmt.Sprint(f, kind.name, every), []func(o *draw.Options){
					func(o *draw.Options) { o.Workers, o.Prefetch = 8, 8 },
					func(o *draw.Options) { o.Cache, o.FeatureCache, o.NeighborCache = "belady", room, 0 },
					func(o *draw.Options) { o.Cache, o.FeatureCache, o.TraceMemory, o.Prefetch = "belady", room, 1<<20, 4 },
					func(o *draw.Options) { o.Cache, o.FeatureCache, o.Workers, o.NeighborCache = "lru", 60000, 3, 30000 },
					func(o *draw.Options) { o.Cache, o.FeatureCache = "presc", 60000 },
					func(o *draw.Options) { o.Memory, o.Cache = memory, "auto" },
				}) {
					o := o
					change(&o)
					l := open(t, draw.OpenStore(s), o)
					for epoch, batches := range want {
						requireSame(t, batches, epochOf(t, l, int64(epoch)))
					}
					require.NoError(t, l.Start(1, 3, Train)) // in the middle
					requireSame(t, want[1][3:], rest(t, l))
					require.NoError(t, l.Start(1, 0, Trace))
					for i, b := range rest(t, l) {
						require.Len(t, b.arrays, len(f.names)+1)
						for typ := range f.names {
							name := types.NodeName(typ, "n_id")
							require.Equal(t, want[1][i].arrays[name], b.arrays[name], kind.name)
						}
					}
				}
			}
		}
	}
}

// Every edge as a link: in the user's order, of the store as well.
func TestEveryEdgeIsALink(t *testing.T) {
	for _, f := range forms(newDataset(300, 2000)) {
		o := f.options()
		o.Seeds, o.Links, o.Shuffle, o.BatchSize = nil, &links.Options{}, false, 700
		g := f.graph(t)
		types := g.Parts().Schema
		of := types.Relations[0]
		for _, src := range []draw.Source{g, draw.OpenStore(f.store(t, ssd.OS))} {
			var sources, targets []int64
			for _, b := range epochOf(t, open(t, src, o), 0) {
				from, to := b.int64s(types.NodeName(of.Source, "n_id")), b.int64s(types.NodeName(of.Target, "n_id"))
				ends := b.int64s(types.EdgeName(0, "edge_label_index"))
				for i := range len(ends) / 2 {
					sources, targets = append(sources, from[ends[i]]), append(targets, to[ends[len(ends)/2+i]])
				}
			}
			wantSources, wantTargets := f.ends(0)
			require.Equal(t, wantSources, sources)
			require.Equal(t, wantTargets, targets)
		}
	}
}

func TestLinksStayWithinTheirMemory(t *testing.T) {
	for _, f := range forms(newDataset(900, 9000)) {
		kind := linkCase{k: linkKinds["strict"]}
		if len(f.names) > 1 {
			kind = f.linkCases()[1]
		}
		s := f.store(t, ssd.OS)
		o := f.forLinks(kind.k, kind.source, kind.target)
		o.Memory = 1
		o.Memory = leastMemory(t, draw.OpenStore(s), o)
		l := open(t, draw.OpenStore(s), o)
		epochOf(t, l, 0)
		require.LessOrEqual(t, l.draw.Budget.Peak(), o.Memory)
	}
}

// What looking through lists for edges takes, 16 bytes an edge that is fetched at a time, is in the smallest memory
// that works.
func TestSearchedListsAreInTheBudget(t *testing.T) {
	f := newDataset(900, 9000).form("")
	s := f.store(t, ssd.OS)
	smallest := func(x links.Exclusion) int64 {
		o := f.forLinks(links.Options{Exclude: x}, 0, 0)
		o.Memory = 1
		return leastMemory(t, draw.OpenStore(s), o)
	}
	require.Greater(t, smallest(links.ExcludeLinks), smallest(links.ExcludeNone)+16*9000)
}
