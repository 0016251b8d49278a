package loader

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// timesOfLinks are times for so many links, some before and some after all others.
func timesOfLinks(n int) []int64 {
	rng, times := rand.New(rand.NewPCG(8, 1)), make([]int64, n)
	for i := range times {
		times[i] = rng.Int64N(120) - 10
	}
	times[0], times[1] = math.MinInt64, math.MaxInt64
	return times
}

// linkTreeOptions are links in trees, with times and without.
func (d *dataset) linkTreeOptions() map[string]Options {
	all := map[string]Options{}
	for name, k := range linkKinds {
		o := d.forLinks(k)
		o.Disjoint = true
		all["disjoint "+name] = o
		o = d.forLinks(k)
		o.TimeAttr, o.SeedTimes = "time", timesOfLinks(len(o.Links.Sources))
		all["times "+name] = o
	}
	o := d.forLinks(linkKinds["binary"])
	o.TimeAttr, o.SeedTimes, o.TemporalLast, o.TimeWindow = "time", timesOfLinks(len(o.Links.Sources)), true, 40
	all["last of a window"] = o
	o = d.forLinks(linkKinds["triplets"])
	o.Disjoint, o.WeightAttr = true, "weight"
	all["disjoint weighted"] = o
	o = d.forLinks(linkKinds["binary"])
	o.TimeAttr, o.TemporalLast, o.BatchSize, o.Replace = "time", true, 100, true
	o.Links.Sources, o.Links.Targets = nil, nil
	all["every edge"] = o
	return all
}

func TestLinkTreesAreRight(t *testing.T) {
	d := newDataset(400, 5000).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT32)
	edges := map[sample.Link]bool{}
	for e := range d.sources {
		edges[sample.Link{Source: d.sources[e], Target: d.targets[e]}] = true
	}
	f := d.form("")
	g, s := f.graph(t), f.store(t, ssd.OS)
	for name, o := range d.linkTreeOptions() {
		t.Run(name, func(t *testing.T) {
			o.NeighborCache, o.Cache, o.FeatureCache = 0, "belady", rowsFor(50)
			for _, src := range []Source{g, OpenStore(s)} {
				for _, b := range epochOf(t, open(t, src, o), 0) {
					f.requireLinkTrees(t, g, o, 0, 0, b)
					if o.Links.Strict {
						nID, n := b.int64s("n_id"), len(b.int64s("input_id"))
						for j := range n {
							pair := sample.Link{Source: nID[n+j], Target: nID[3*n+j]}
							if o.Links.Triplets {
								pair = sample.Link{Source: nID[j], Target: nID[2*n+j]}
							}
							require.False(t, edges[pair] || pair.Source == pair.Target, pair)
						}
					}
				}
			}
		})
	}
}

func TestLinkTreesAgreeEverywhere(t *testing.T) {
	d := newDataset(300, 3000).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT64)
	s := d.store(t, ssd.OS)
	all := d.linkTreeOptions()
	for _, name := range []string{"times strict", "times triplets", "disjoint weighted", "last of a window",
		"every edge"} {
		agreeEverywhere(t, d.form(""), s, name, all[name])
	}
}

func TestWrongTimesOfLinks(t *testing.T) {
	d := newDataset(100, 2200).timed(manifest.DType_INT64)
	taken := newDataset(100, 2200).timed(manifest.DType_INT64)
	taken.extra = append(taken.extra, GraphTensor{Name: LinkTimeName, DType: manifest.DType_INT64,
		Rows: make([]byte, 8*2200)})
	for name, c := range map[string]struct {
		d       *dataset
		change  func(o *Options)
		message string
	}{
		"no times": {d, func(o *Options) { o.TimeAttr = "time" },
			`time_attr "time" needs edge_label_time, a time for each link`},
		"of nodes": {d, func(o *Options) { o.TimeAttr, o.Links.Sources, o.Links.Targets = "y", nil, nil },
			`time_attr "y" has times of nodes, so edge_label_time must give a time for each link`},
		"too few": {d, func(o *Options) { o.TimeAttr, o.SeedTimes = "time", make([]int64, 320) },
			"edge_label_time has 320 times, expected one for each of 321 links"},
		"of no edge": {d, func(o *Options) {
			o.TimeAttr, o.SeedTimes, o.Links.Sources, o.Links.Targets = "time", make([]int64, 9), nil, nil
		}, "expected one for each of 2200 links"},
		"no time_attr": {d, func(o *Options) { o.SeedTimes = make([]int64, 321) }, "need time_attr"},
		"labor": {d, func(o *Options) { o.Disjoint, o.Labor = true, &sample.Labor{BatchDependency: 1} },
			"LABOR and random walks"},
		"name taken": {taken, func(o *Options) {
			o.TimeAttr, o.SeedTimes = "time", make([]int64, 321)
		}, `the graph has a tensor "edge_label_time"`},
		"exclude from both ways": {d, func(o *Options) {
			o.Disjoint, o.Links.Exclude, o.Subgraph = true, links.ExcludeLinks, sample.Bidirectional
		}, "not from edges that subgraph_type adds"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, src := range []Source{c.d.graph(t), OpenStore(c.d.store(t, ssd.OS))} {
				o := d.forLinks(links.Options{})
				c.change(&o)
				_, err := Open(context.Background(), src, o, mem.NewAllocator())
				require.ErrorIs(t, err, ErrOption)
				require.ErrorContains(t, err, c.message)
			}
		})
	}
}

// The memory that a loader with times of links asks for is enough.
func TestLinkTreesStayWithinTheirMemory(t *testing.T) {
	d := newDataset(900, 9000).timed(manifest.DType_INT64)
	o := d.forLinks(linkKinds["strict"])
	o.TimeAttr, o.SeedTimes, o.Memory = "time", timesOfLinks(len(o.Links.Sources)), 1
	s := d.store(t, ssd.OS)
	_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	o.Memory = short.Limit - short.Free + short.Need
	l := open(t, OpenStore(s), o)
	epochOf(t, l, 0)
	require.LessOrEqual(t, l.budget.Peak(), o.Memory)
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
			link, index := b.int64s(TreeName), b.int64s("edge_index")
			for e, source := range index[:len(index)/2] {
				require.LessOrEqual(t, d.y[nID[source]], o.SeedTimes[input[link[index[len(index)/2+e]]]])
			}
		}
		for _, change := range []func(o *Options){
			func(o *Options) { o.Workers, o.Prefetch = 8, 8 },
			func(o *Options) { o.NeighborCache, o.Cache, o.FeatureCache = 0, "belady", rowsFor(50) },
			func(o *Options) { o.Memory, o.Cache = 32<<20, "auto" },
		} {
			o := o
			change(&o)
			requireSame(t, want, epochOf(t, open(t, OpenStore(s), o), 0))
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
