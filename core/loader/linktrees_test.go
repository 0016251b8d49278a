package loader

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// timesOfLinks returns times for n links, some before and some after all others.
func timesOfLinks(n int) []int64 {
	rng, times := rand.New(rand.NewPCG(8, 1)), make([]int64, n)
	for i := range times {
		times[i] = rng.Int64N(120) - 10
	}
	times[0], times[1] = math.MinInt64, math.MaxInt64
	return times
}

// linkTrees are links of a relation between two types, in trees.
type linkTrees struct {
	o              draw.Options
	source, target int
	everywhere     bool // worth being drawn in every place, beside the plainest
}

func (f *form) linkTrees() map[string]linkTrees {
	all := map[string]linkTrees{}
	if len(f.names) > 1 {
		for i, kind := range f.linkCases()[:4] {
			for _, attr := range [][]string{{"born"}, {"when", ""}, {"born"}, {"when", "born"}}[i] {
				o := f.forLinks(kind.k, kind.source, kind.target)
				o.Disjoint, o.TimeAttr = true, attr
				if attr != "" {
					for j := range o.Links.Sources {
						o.SeedTimes = append(o.SeedTimes, 20+int64(j*7%90))
					}
				}
				all[kind.name+", "+attr] = linkTrees{o, kind.source, kind.target, true}
			}
		}
		return all
	}
	add := func(name string, k links.Options, everywhere bool, change func(o *draw.Options)) {
		o := f.forLinks(k, 0, 0)
		change(&o)
		all[name] = linkTrees{o: o, everywhere: everywhere}
	}
	timed := func(o *draw.Options) { o.TimeAttr, o.SeedTimes = "time", timesOfLinks(len(o.Links.Sources)) }
	for name, k := range linkKinds {
		add("disjoint "+name, k, false, func(o *draw.Options) { o.Disjoint = true })
		add("times "+name, k, name == "strict" || name == "triplets", timed)
	}
	add("last of a window", linkKinds["binary"], true, func(o *draw.Options) {
		timed(o)
		o.TemporalLast, o.TimeWindow = true, 40
	})
	add("disjoint weighted", linkKinds["triplets"], true, func(o *draw.Options) {
		o.Disjoint, o.WeightAttr = true, "weight"
	})
	add("every edge", linkKinds["binary"], true, func(o *draw.Options) {
		o.TimeAttr, o.TemporalLast, o.BatchSize, o.Replace = "time", true, 100, true
		o.Links.Sources, o.Links.Targets = nil, nil
	})
	if f.names[0] != "" { // only names tell it from the form without
		return map[string]linkTrees{"times strict": all["times strict"]}
	}
	return all
}

func TestLinkTreesAreRight(t *testing.T) {
	for _, f := range timedForms(newDataset(400, 5000)) {
		g, s := f.graph(t), f.store(t, ssd.OS)
		cases := f.linkTrees()
		for _, name := range explore.Part(t, f.String(), slices.Sorted(maps.Keys(cases))) {
			t.Run(fmt.Sprint(f, ", ", name), func(t *testing.T) {
				c := cases[name]
				o := c.o
				o.NeighborCache, o.Cache, o.FeatureCache, o.Superbatch = 0, "belady", rowsFor(50), 4
				for _, src := range []draw.Source{g, draw.OpenStore(s)} {
					l := open(t, src, o)
					batches := epochOf(t, l, 1)
					for _, b := range batches {
						f.requireLinkTrees(t, g, o, c.source, c.target, b)
					}
					require.NoError(t, l.Start(1, 3, Train)) // in the middle
					requireSame(t, batches[3:], rest(t, l))
				}
			})
		}
	}
}

func TestLinkTreesAgreeEverywhere(t *testing.T) {
	for _, f := range timedForms(newDataset(300, 3000)) {
		s := f.store(t, ssd.OS)
		for name, c := range f.linkTrees() {
			if c.everywhere {
				agreeEverywhere(t, f, s, fmt.Sprint(f, ", ", name), c.o)
			}
		}
	}
}

func TestWrongTimesOfLinks(t *testing.T) {
	d := newDataset(100, 2200).timed(manifest.DType_INT64)
	taken := newDataset(100, 2200).timed(manifest.DType_INT64)
	taken.extra = append(taken.extra, draw.GraphTensor{Name: draw.LinkTimeName, DType: manifest.DType_INT64,
		Rows: make([]byte, 8*2200)})
	for name, c := range map[string]struct {
		d       *dataset
		change  func(o *draw.Options)
		message string
	}{
		"no times": {d, func(o *draw.Options) { o.TimeAttr = "time" },
			`time_attr "time" needs edge_label_time, a time for each link`},
		"of nodes": {d, func(o *draw.Options) { o.TimeAttr, o.Links.Sources, o.Links.Targets = "y", nil, nil },
			`'edge_label_time' is not set: time_attr "y" has times of nodes, so it must give a time for each link`},
		"too few": {d, func(o *draw.Options) { o.TimeAttr, o.SeedTimes = "time", make([]int64, 320) },
			"edge_label_time has 320 times, expected one for each of 321 links"},
		"of no edge": {d, func(o *draw.Options) {
			o.TimeAttr, o.SeedTimes, o.Links.Sources, o.Links.Targets = "time", make([]int64, 9), nil, nil
		}, "expected one for each of 2200 links"},
		"no time_attr": {d, func(o *draw.Options) { o.SeedTimes = make([]int64, 321) }, "need time_attr"},
		"labor": {d, func(o *draw.Options) { o.Disjoint, o.Sampler = true, &sample.Labor{BatchDependency: 1} },
			"LABOR cannot be combined with disjoint=True; uniform draws, weight_attr and time_attr can"},
		"name taken": {taken, func(o *draw.Options) {
			o.TimeAttr, o.SeedTimes = "time", make([]int64, 321)
		}, `the graph has a tensor "edge_label_time"`},
		"exclude from both ways": {d, func(o *draw.Options) {
			o.Disjoint, o.Links.Exclude, o.Subgraph = true, links.ExcludeLinks, sample.Bidirectional
		}, "not from edges that subgraph_type adds"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, src := range []draw.Source{c.d.graph(t), draw.OpenStore(c.d.store(t, ssd.OS))} {
				o := d.forLinks(links.Options{})
				c.change(&o)
				_, err := Open(context.Background(), src, o, mem.NewAllocator())
				require.ErrorIs(t, err, draw.ErrOption)
				require.ErrorContains(t, err, c.message)
			}
		})
	}
}

// The memory that a loader with trees of links asks for is enough.
func TestLinkTreesStayWithinTheirMemory(t *testing.T) {
	for _, f := range timedForms(newDataset(900, 9000)) {
		c, found := f.linkTrees()["times strict"]
		if !found {
			c = f.linkTrees()["item to user, strict, when"]
		}
		s, o := f.store(t, ssd.OS), c.o
		o.Memory = 1
		o.Memory = leastMemory(t, draw.OpenStore(s), o)
		l := open(t, draw.OpenStore(s), o)
		requireSame(t, epochOf(t, open(t, f.graph(t), c.o), 1), epochOf(t, l, 1))
		require.LessOrEqual(t, l.draw.Budget.Peak(), o.Memory)
	}
}

// Where nodes have times the ends of negatives are not later than their link, and are drawn for it in the order of the
// links.
func TestNegativesAreNotLaterThanTheirLink(t *testing.T) {
	d := newDataset(300, 3000)
	edges := map[sample.Link]bool{}
	for e := range d.sources {
		edges[sample.Link{Source: d.sources[e], Target: d.targets[e]}] = true
	}
	s := relaid(t, d.store(t, ssd.OS), "hot")
	for name, k := range map[string]links.Options{
		"binary": {Negatives: 1.5}, "strict": {Negatives: 2, Strict: true, Exclude: links.ExcludeBoth},
		"triplets": {Negatives: 2, Triplets: true, Strict: true},
	} {
		o := d.forLinks(k)
		o.TimeAttr = "y"
		for i, source := range o.Links.Sources { // a while after the later of its ends
			o.SeedTimes = append(o.SeedTimes, max(d.y[source], d.y[o.Links.Targets[i]])+int64(30+i%90))
		}
		want := epochOf(t, open(t, d.graph(t), o), 0)
		for _, b := range want {
			nID, input := b.int64s("n_id"), b.int64s("input_id")
			n := len(input)
			m := int(math.Ceil(float64(n) * k.Negatives))
			for j := range m {
				pair := sample.Link{}
				if k.Triplets {
					pair = sample.Link{Source: nID[j%n], Target: nID[2*n+j]}
				} else {
					pair = sample.Link{Source: nID[n+j], Target: nID[2*n+m+j]}
				}
				at := o.SeedTimes[input[j%n]]
				require.LessOrEqual(t, d.y[pair.Target], at)
				if !k.Triplets {
					require.LessOrEqual(t, d.y[pair.Source], at)
				}
				require.False(t, k.Strict && (edges[pair] || pair.Source == pair.Target))
			}
			link, index := b.int64s(draw.TreeName), b.int64s("edge_index")
			for e, source := range index[:len(index)/2] {
				require.LessOrEqual(t, d.y[nID[source]], o.SeedTimes[input[link[index[len(index)/2+e]]]])
			}
		}
		for _, change := range []func(o *draw.Options){
			func(o *draw.Options) { o.Workers, o.Prefetch = 8, 8 },
			func(o *draw.Options) { o.NeighborCache, o.Cache, o.FeatureCache = 0, "belady", rowsFor(50) },
			func(o *draw.Options) { o.Memory, o.Cache = 32<<20, "auto" },
		} {
			o := o
			change(&o)
			requireSame(t, want, epochOf(t, open(t, draw.OpenStore(s), o), 0))
		}
		t.Run(name+", nothing is as early", func(t *testing.T) {
			o := o
			o.SeedTimes = slices.Clone(o.SeedTimes)
			o.SeedTimes[9] = -1
			_, err := Open(context.Background(), d.graph(t), o, mem.NewAllocator())
			require.ErrorIs(t, err, sample.ErrNegative)
			require.ErrorContains(t, err, "as early as time -1")
		})
	}
}
