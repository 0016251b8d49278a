package loader

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// forLinks is options for links of a dataset: some of its edges, one of them twice, and pairs that are none.
func (d *dataset) forLinks(k links.Options) Options {
	o := plain()
	o.BatchSize = 50
	for e := range 700 {
		source, target := d.sources[3*e], d.targets[3*e]
		if e%10 == 0 {
			target = int64(e) % d.nodes
		}
		k.Sources, k.Targets = append(k.Sources, source), append(k.Targets, target)
	}
	k.Sources, k.Targets = append(k.Sources, k.Sources[5]), append(k.Targets, k.Targets[5])
	o.Links = &k
	return o
}

var linkKinds = map[string]links.Options{
	"plain":           {},
	"binary":          {Negatives: 1.5, Exclude: links.ExcludeLinks},
	"triplets":        {Negatives: 3, Triplets: true, Exclude: links.ExcludeBoth},
	"strict":          {Negatives: 1, Strict: true, Exclude: links.ExcludeBoth},
	"strict triplets": {Negatives: 1, Triplets: true, Strict: true},
}

// TestLinksAreRight checks batches of links against what they are made of.
func TestLinksAreRight(t *testing.T) {
	d := newDataset(900, 9000)
	edges := map[sample.Link]bool{}
	for e := range d.sources {
		edges[sample.Link{Source: d.sources[e], Target: d.targets[e]}] = true
	}
	for name, k := range linkKinds {
		t.Run(name, func(t *testing.T) {
			o := d.forLinks(k)
			o.Seed = explore.Seed(t, o.Seed)
			given := *o.Links
			l := open(t, d.graph(t), o)
			var inputs []int64
			for _, b := range epochOf(t, l, 1) {
				nodes, input := b.int64s("n_id"), b.int64s("input_id")
				inputs = append(inputs, input...)
				n := len(input)
				negatives := int(math.Ceil(float64(n) * k.Negatives))
				var sources, targets []int64
				if k.Triplets {
					each := int(k.Negatives)
					require.Equal(t, []int64{int64(n)}, b.shapes["src_index"])
					shape := []int64{int64(n)}
					if each > 1 {
						shape = append(shape, int64(each))
					}
					require.Equal(t, shape, b.shapes["dst_neg_index"])
					sources, targets = b.int64s("src_index"), append(b.int64s("dst_pos_index"), b.int64s("dst_neg_index")...)
					for j := range negatives {
						sources = append(sources, sources[j/each])
					}
				} else {
					require.Equal(t, []int64{2, int64(n + negatives)}, b.shapes["edge_label_index"])
					ends := b.int64s("edge_label_index")
					sources, targets = ends[:n+negatives], ends[n+negatives:]
				}
				numSeeds := b.int64s("num_sampled_nodes")[0]
				require.True(t, slices.IsSorted(nodes[:numSeeds]))
				require.Len(t, slices.Compact(slices.Clone(nodes[:numSeeds])), int(numSeeds))
				ends := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(sources), targets...))))
				require.Len(t, ends, int(numSeeds)) // no seed is without a link
				require.Equal(t, numSeeds-1, ends[len(ends)-1])
				excluded := map[sample.Link]bool{}
				for i, input := range input {
					source, target := nodes[sources[i]], nodes[targets[i]]
					require.Equal(t, given.Sources[input], source)
					require.Equal(t, given.Targets[input], target)
					excluded[sample.Link{Source: source, Target: target}] = k.Exclude != links.ExcludeNone
					if k.Exclude == links.ExcludeBoth {
						excluded[sample.Link{Source: target, Target: source}] = true
					}
				}
				if k.Strict {
					for j := n; j < n+negatives; j++ {
						pair := sample.Link{Source: nodes[sources[j]], Target: nodes[targets[j]]}
						require.False(t, edges[pair] || pair.Source == pair.Target, pair)
						for i, source := range given.Sources {
							require.False(t, source == pair.Source && given.Targets[i] == pair.Target, pair)
						}
					}
				}
				eID, index := b.int64s("e_id"), b.int64s("edge_index")
				for e, id := range eID {
					pair := sample.Link{Source: nodes[index[e]], Target: nodes[index[len(eID)+e]]}
					require.Equal(t, sample.Link{Source: d.sources[id], Target: d.targets[id]}, pair)
					require.False(t, excluded[pair], "a link of the batch is among its edges")
				}
			}
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(inputs))), len(given.Sources))
		})
	}
}

// TestLinksAgreeEverywhere: batches of links are the same whatever holds the graph, decides over the cache and works at
// them.
func TestLinksAgreeEverywhere(t *testing.T) {
	d := newDataset(900, 9000)
	s := d.store(t, ssd.OS)
	for name, k := range linkKinds {
		if name == "plain" {
			continue // as binary ones without negatives
		}
		for _, every := range []bool{false, true} {
			o := d.forLinks(k)
			o.Seed = explore.Seed(t, o.Seed)
			if every {
				if name != "strict" {
					continue
				}
				o.Links.Sources, o.Links.Targets, o.BatchSize = nil, nil, 800
			}
			reference := open(t, d.graph(t), o)
			want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
			for _, change := range []func(o *Options){
				func(o *Options) { o.Workers, o.Prefetch = 8, 8 },
				func(o *Options) { o.Cache, o.FeatureCache, o.NeighborCache = "belady", 60000, 0 },
				func(o *Options) { o.Cache, o.FeatureCache, o.TraceMemory, o.Prefetch = "belady", 60000, 1<<20, 4 },
				func(o *Options) { o.Cache, o.FeatureCache, o.Workers, o.NeighborCache = "lru", 60000, 3, 30000 },
				func(o *Options) { o.Cache, o.FeatureCache = "presc", 60000 },
				func(o *Options) { o.Memory, o.Cache = 8<<20, "auto" },
			} {
				o := o
				change(&o)
				l := open(t, OpenStore(s), o)
				for epoch, batches := range want {
					requireSame(t, batches, epochOf(t, l, int64(epoch)))
				}
				require.NoError(t, l.Start(1, 3, Train)) // in the middle
				requireSame(t, want[1][3:], rest(t, l))
				require.NoError(t, l.Start(1, 0, Trace))
				for i, b := range rest(t, l) {
					require.Equal(t, want[1][i].arrays["n_id"], b.arrays["n_id"], name)
				}
			}
		}
	}
}

// Every edge as a link: in the user's order, of the store as well.
func TestEveryEdgeIsALink(t *testing.T) {
	d := newDataset(300, 2000)
	o := plain()
	o.Links, o.Shuffle, o.BatchSize = &links.Options{}, false, 700
	for _, src := range []Source{d.graph(t), OpenStore(d.store(t, ssd.OS))} {
		var sources, targets []int64
		for _, b := range epochOf(t, open(t, src, o), 0) {
			nodes, ends := b.int64s("n_id"), b.int64s("edge_label_index")
			for i := range len(ends) / 2 {
				sources, targets = append(sources, nodes[ends[i]]), append(targets, nodes[ends[len(ends)/2+i]])
			}
		}
		require.Equal(t, d.sources, sources)
		require.Equal(t, d.targets, targets)
	}
}

func TestLinksStayWithinTheirMemory(t *testing.T) {
	d := newDataset(900, 9000)
	o := d.forLinks(linkKinds["strict"])
	o.Memory = 1
	_, err := Open(context.Background(), OpenStore(d.store(t, ssd.OS)), o, mem.NewAllocator())
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	o.Memory = short.Limit - short.Free + short.Need
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	epochOf(t, l, 0)
	require.LessOrEqual(t, l.budget.Peak(), o.Memory)
}

// What looking through lists for edges takes, 16 bytes an edge that is fetched at a time, is in the smallest memory
// that works.
func TestSearchedListsAreInTheBudget(t *testing.T) {
	d := newDataset(900, 9000)
	s := d.store(t, ssd.OS)
	smallest := func(x links.Exclusion) int64 {
		o := d.forLinks(links.Options{Exclude: x})
		o.Memory = 1
		_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
		var short *mem.BudgetError
		require.ErrorAs(t, err, &short)
		return short.Need
	}
	require.Greater(t, smallest(links.ExcludeLinks), smallest(links.ExcludeNone)+16*9000)
}

func TestWrongLinks(t *testing.T) {
	d := newDataset(100, 2200)
	for name, tt := range map[string]struct {
		change func(o *Options)
		err    error
		text   string
	}{
		"out of range": {func(o *Options) { o.Links.Targets[7] = 100 }, sample.ErrSeed,
			"edge_label_index[1, 7] is 100, expected an id in [0, 100)"},
		"negative": {func(o *Options) { o.Links.Sources[0] = -1 }, sample.ErrSeed, "edge_label_index[0, 0] is -1"},
		"none": {func(o *Options) { o.Links.Sources, o.Links.Targets = []int64{}, []int64{} }, ErrOption,
			"no link"},
		"lengths":        {func(o *Options) { o.Links.Targets = o.Links.Targets[1:] }, ErrOption, "sources and"},
		"seeds":          {func(o *Options) { o.Seeds = []int64{1} }, ErrOption, "seeds and links"},
		"amount":         {func(o *Options) { o.Links.Negatives = -1 }, ErrOption, "negatives"},
		"no number":      {func(o *Options) { o.Links.Negatives = math.NaN() }, ErrOption, "negatives"},
		"half a triplet": {func(o *Options) { o.Links.Negatives, o.Links.Triplets = 1.5, true }, ErrOption, "whole number"},
		"weights": {func(o *Options) { o.Links.Negatives, o.Links.TargetWeights = 1, []float64{1} }, ErrOption,
			"dst_weight must have an entry for each of 100 nodes, got 1"},
		"bad weight": {func(o *Options) { o.Links.Negatives, o.Links.SourceWeights = 1, append(make([]float64, 99), -1) },
			ErrOption, "src_weight"},
		"no weight": {func(o *Options) { o.Links.Negatives, o.Links.SourceWeights = 1, make([]float64, 100) }, ErrOption,
			"src_weight"},
		"strict":    {func(o *Options) { o.Links.Strict = true }, ErrOption, "without negatives"},
		"exclusion": {func(o *Options) { o.Links.Exclude = 3 }, ErrOption, "exclusion"},
		"labor": {func(o *Options) {
			o.Links.Exclude, o.Labor = links.ExcludeLinks,
				&sample.Labor{BatchDependency: 1}
		}, ErrOption, "LABOR"},
		"history": {func(o *Options) { o.History = &HistoryOptions{} }, ErrOption, "history"},
		"impossible": {func(o *Options) {
			o.Links.Negatives, o.Links.Strict, o.Links.Triplets = 1, true, true
			for v := range d.nodes {
				o.Links.Sources, o.Links.Targets = append(o.Links.Sources, 4), append(o.Links.Targets, v)
			}
		}, sample.ErrNegative, "node 4 is linked with every node"},
	} {
		t.Run(name, func(t *testing.T) {
			o := d.forLinks(links.Options{})
			o.Links.Sources, o.Links.Targets = slices.Clone(d.sources), slices.Clone(d.targets)
			tt.change(&o)
			_, err := Open(context.Background(), d.graph(t), o, mem.NewAllocator())
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.text)
		})
	}
}
