package loader

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// ends are the edges of a relation of the dataset.
func (d *heteroDataset) ends(relation int) (sources, targets []int64) {
	e := d.edges[relation].EdgeIndex
	data := unsafe.Slice((*int64)(e.Mem), 2*e.Shape[1]) // as newHeteroDataset made it
	return data[:e.Shape[1]], data[e.Shape[1]:]
}

// forLinks is options for links of a relation: some of its edges, and pairs that are none.
func (d *heteroDataset) forLinks(k links.Options, source, target int) Options {
	o := d.options()
	o.Seeds = nil
	sources, targets := d.ends(k.Relation)
	for e := range 300 {
		k.Sources, k.Targets = append(k.Sources, sources[e*len(sources)/300]), append(k.Targets, targets[e*len(sources)/300])
	}
	for e := range int64(20) {
		k.Sources, k.Targets = append(k.Sources, e*7%d.counts[source]), append(k.Targets, e*11%d.counts[target])
	}
	o.Links = &k
	return o
}

var heteroLinkKinds = []struct {
	name           string
	k              links.Options
	source, target int
}{
	{"user to item", links.Options{Negatives: 1.5, Relation: 0, Exclude: links.ExcludeLinks}, 0, 1},
	{"item to user, strict", links.Options{Negatives: 2, Relation: 1, Reverse: 0, Exclude: links.ExcludeBoth,
		Strict: true}, 1, 0},
	{"user to user", links.Options{Negatives: 2, Triplets: true, Relation: 2, Reverse: 2, Exclude: links.ExcludeBoth,
		Strict: true}, 0, 0},
	{"tag to item, triplets", links.Options{Negatives: 3, Triplets: true, Relation: 4, Reverse: 3,
		Exclude: links.ExcludeBoth, Strict: true}, 2, 1},
	{"plain", links.Options{Relation: 6}, 4, 4},
}

// TestHeteroLinksAreRight checks batches of links of a relation against what they are made of.
func TestHeteroLinksAreRight(t *testing.T) {
	d := newHeteroDataset()
	g := d.graph(t)
	for _, kind := range heteroLinkKinds {
		t.Run(kind.name, func(t *testing.T) {
			k := kind.k
			o := d.forLinks(k, kind.source, kind.target)
			given := *o.Links
			edges := map[sample.Link]bool{}
			all, ends := d.ends(k.Relation)
			for i, s := range all {
				edges[sample.Link{Source: s, Target: ends[i]}] = true
			}
			for i, s := range given.Sources {
				edges[sample.Link{Source: s, Target: given.Targets[i]}] = true
			}
			e, n := fmt.Sprintf("e%d/", k.Relation), func(typ int) string { return fmt.Sprintf("n%d/", typ) }
			var inputs []int64
			for _, b := range epochOf(t, open(t, g, o), 1) {
				from, to, input := b.int64s(n(kind.source)+"n_id"), b.int64s(n(kind.target)+"n_id"), b.int64s(e+"input_id")
				require.EqualValues(t, len(input), b.numSeeds)
				require.NotContains(t, b.arrays, "n0/input_id")
				inputs = append(inputs, input...)
				negatives := int(math.Ceil(float64(len(input)) * k.Negatives))
				var sources, targets []int64
				if k.Triplets {
					sources = b.int64s(n(kind.source) + "src_index")
					targets = append(b.int64s(n(kind.target)+"dst_pos_index"), b.int64s(n(kind.target)+"dst_neg_index")...)
					for j := range negatives {
						sources = append(sources, sources[j/int(k.Negatives)])
					}
				} else {
					ends := b.int64s(e + "edge_label_index")
					require.Equal(t, []int64{2, int64(len(input) + negatives)}, b.shapes[e+"edge_label_index"])
					sources, targets = ends[:len(ends)/2], ends[len(ends)/2:]
				}
				wanted := make([]map[int64]bool, len(d.names)) // seeds of each type
				for typ := range wanted {
					wanted[typ] = map[int64]bool{}
				}
				excluded := make([]map[sample.Link]bool, len(d.edges))
				for i := range excluded {
					excluded[i] = map[sample.Link]bool{}
				}
				for i := range sources {
					source, target := from[sources[i]], to[targets[i]]
					wanted[kind.source][source], wanted[kind.target][target] = true, true
					pair := sample.Link{Source: source, Target: target}
					if i >= len(input) {
						require.False(t, k.Strict && (edges[pair] || kind.source == kind.target && source == target), pair)
						continue
					}
					require.Equal(t, sample.Link{Source: given.Sources[input[i]], Target: given.Targets[input[i]]}, pair)
					if k.Exclude != links.ExcludeNone {
						excluded[k.Relation][pair] = true
					}
					if k.Exclude == links.ExcludeBoth {
						excluded[k.Reverse][sample.Link{Source: target, Target: source}] = true
					}
				}
				for typ := range d.names {
					seeds := b.int64s(n(typ) + "n_id")[:b.int64s(n(typ) + "num_sampled_nodes")[0]]
					require.True(t, slices.IsSorted(seeds))
					require.Len(t, seeds, len(wanted[typ]))
					for _, v := range seeds {
						require.True(t, wanted[typ][v])
					}
				}
				for i, r := range g.edges {
					sources, targets := d.ends(i)
					eID, index := b.int64s(fmt.Sprintf("e%d/e_id", i)), b.int64s(fmt.Sprintf("e%d/edge_index", i))
					from, to := b.int64s(n(r.source)+"n_id"), b.int64s(n(r.target)+"n_id")
					for j, id := range eID {
						pair := sample.Link{Source: from[index[j]], Target: to[index[len(eID)+j]]}
						require.Equal(t, sample.Link{Source: sources[id], Target: targets[id]}, pair)
						require.False(t, excluded[i][pair], "a link of the batch is among its edges")
					}
				}
			}
			slices.Sort(inputs)
			require.Len(t, slices.Compact(inputs), len(given.Sources))
		})
	}
}

// TestHeteroLinksAgreeEverywhere: batches of links are the same whatever holds the graph, decides over the cache and
// works at them.
func TestHeteroLinksAgreeEverywhere(t *testing.T) {
	d := newHeteroDataset()
	g, s := d.graph(t), d.store(t, ssd.OS)
	for i, kind := range heteroLinkKinds[1:4] {
		o := d.forLinks(kind.k, kind.source, kind.target)
		if i == 0 {
			o.Links.Sources, o.Links.Targets, o.BatchSize = nil, nil, 800 // every edge
		}
		reference := open(t, g, o)
		want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
		for _, change := range []func(o *Options){
			func(o *Options) { o.Workers, o.Prefetch = 8, 8 },
			func(o *Options) { o.Cache, o.FeatureCache, o.NeighborCache, o.Prefetch = "belady", 120<<10, 0, 3 },
			func(o *Options) { o.Cache, o.FeatureCache, o.Workers, o.NeighborCache = "lru", 60<<10, 3, 0 },
			func(o *Options) { o.Cache, o.FeatureCache = "presc", 60<<10 },
			func(o *Options) { o.Memory, o.Cache = 64<<20, "auto" },
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
				require.Len(t, b.arrays, len(d.names)+1)
				require.Equal(t, want[1][i].arrays["n1/n_id"], b.arrays["n1/n_id"])
			}
		}
	}
}

func TestHeteroLinksStayWithinTheirMemory(t *testing.T) {
	d := newHeteroDataset()
	s := d.store(t, ssd.OS)
	o := d.forLinks(heteroLinkKinds[1].k, 1, 0)
	o.Memory = 1
	_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	o.Memory = short.Need
	l := open(t, OpenStore(s), o)
	epochOf(t, l, 0)
	require.LessOrEqual(t, l.budget.Peak(), o.Memory)
}

func TestWrongHeteroLinks(t *testing.T) {
	d := newHeteroDataset()
	for name, tt := range map[string]struct {
		change func(o *Options)
		err    error
		text   string
	}{
		"no such relation": {func(o *Options) { o.Links.Relation = 7 }, ErrOption, "links of relation 7, the graph has 7"},
		"negative":         {func(o *Options) { o.Links.Reverse = -1 }, ErrOption, "links of relation -1"},
		"no way back": {func(o *Options) { o.Links.Exclude, o.Links.Reverse = links.ExcludeBoth, 3 }, ErrOption,
			`the reverse of links of (user, r0, item) must lead from type "item" to "user", (item, r3, tag) does not`},
		"source": {func(o *Options) { o.Links.Sources[7] = 900 }, sample.ErrSeed,
			`edge_label_index[0, 7] is 900, expected an id in [0, 900) of type "user"`},
		"target": {func(o *Options) { o.Links.Targets[7] = 2500 }, sample.ErrSeed,
			`edge_label_index[1, 7] is 2500, expected an id in [0, 2500) of type "item"`},
		"weights": {func(o *Options) { o.Links.Negatives, o.Links.TargetWeights = 1, make([]float64, 900) },
			ErrOption, `dst_weight must have an entry for each of 2500 nodes of type "item", got 900`},
		"none": {func(o *Options) { o.Links.Relation, o.Links.Sources, o.Links.Targets = 5, nil, nil }, ErrOption,
			"(none, r5, item) has none"},
		"seeds": {func(o *Options) { o.Seeds = []int64{1} }, ErrOption, "seeds and links"},
		"labor": {func(o *Options) {
			o.Links.Exclude, o.Labor = links.ExcludeLinks,
				&sample.Labor{BatchDependency: 1}
		}, ErrOption, "LABOR"},
	} {
		t.Run(name, func(t *testing.T) {
			o := d.forLinks(links.Options{}, 0, 1)
			tt.change(&o)
			_, err := Open(context.Background(), d.graph(t), o, mem.NewAllocator())
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.text)
		})
	}
	o := newDataset(100, 2200).forLinks(links.Options{Relation: 1})
	_, err := Open(context.Background(), newDataset(100, 2200).graph(t), o, mem.NewAllocator())
	require.ErrorContains(t, err, "links of relation 1, the graph has no types")
}
