package loader

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// timed adds times: "born" to users and tags, "when" to two relations and "mixed" to a type and a relation.
func (d *heteroDataset) timed() *heteroDataset {
	rng := rand.New(rand.NewPCG(8, 1))
	add := func(name string, rows int64) GraphTensor {
		times := make([]int32, rows)
		for i := range times {
			times[i] = rng.Int32N(100)
		}
		return GraphTensor{Name: name, DType: manifest.DType_INT32, Rows: littleEndian(times)}
	}
	for _, typ := range []int{0, 2} {
		d.nodes[typ] = append(d.nodes[typ], add("born", d.counts[typ]))
	}
	for _, i := range []int{0, 2} {
		d.edges[i].Tensors = append(d.edges[i].Tensors, add("when", int64(len(d.edges[i].Tensors[1].Rows)/4)))
	}
	d.nodes[1] = append(d.nodes[1], add("mixed", d.counts[1]))
	d.edges[0].Tensors = append(d.edges[0].Tensors, add("mixed", int64(len(d.edges[0].Tensors[1].Rows)/4)))
	return d
}

func (d *heteroDataset) tensor(tensors []GraphTensor, name string) []int32 {
	for _, x := range tensors {
		if x.Name == name {
			return mem.View[int32](x.Rows)
		}
	}
	return nil
}

// heteroTrees are ways to draw trees.
func heteroTrees(d *heteroDataset) map[string]func(o *Options) {
	given := func(o *Options) { o.SeedTimes = seedTimes(int64(len(o.Seeds))) }
	return map[string]func(o *Options){
		"disjoint": func(o *Options) { o.Disjoint = true },
		"weighted": func(o *Options) { o.Disjoint, o.WeightAttr = true, "w" },
		"nodes": func(o *Options) {
			o.TimeAttr, o.Seeds = "born", append([]int64{3, 4, 3, 899}, 900+2500, 900+2500+59) // users and tags
		},
		"nodes, given": func(o *Options) { o.TimeAttr = "born"; given(o) },
		"edges":        func(o *Options) { o.TimeAttr = "when"; given(o) },
		"last":         func(o *Options) { o.TimeAttr, o.TemporalLast = "when", true; given(o) },
		"window":       func(o *Options) { o.TimeAttr, o.TimeWindow = "when", 30; given(o) },
	}
}

// requireTrees looks at every edge of a batch: its number, its ends, its tree and its time.
func (d *heteroDataset) requireTrees(t *testing.T, g *Graph, o Options, b *seen) {
	t.Helper()
	var times []int64
	trees, ids, count := make([][]int64, len(d.names)), make([][]int64, len(d.names)), 0
	for typ := range d.names {
		at := fmt.Sprintf("n%d/", typ)
		trees[typ], ids[typ] = b.int64s(at+TreeName), b.int64s(at+"n_id")
		require.Len(t, trees[typ], len(ids[typ]))
		for i := range b.int64s(at + "input_id") {
			require.EqualValues(t, count, trees[typ][i])
			count++
		}
		times = append(times, b.int64s(at+SeedTimeName)...)
	}
	if o.TimeAttr == "" {
		require.Empty(t, times)
	} else {
		require.Len(t, times, count)
	}
	edges := 0
	for i, e := range g.edges {
		at := fmt.Sprintf("e%d/", i)
		eID, edgeIndex := b.int64s(at+"e_id"), b.int64s(at+"edge_index")
		byEdge, byNode := d.tensor(d.edges[i].Tensors, o.TimeAttr), d.tensor(d.nodes[e.source], o.TimeAttr)
		for k, id := range eID {
			source, target := edgeIndex[k], edgeIndex[len(eID)+k]
			tree := trees[e.target][target]
			require.Equal(t, tree, trees[e.source][source])
			var when int64
			switch {
			case byEdge != nil:
				when = int64(byEdge[id])
			case byNode != nil:
				when = int64(byNode[ids[e.source][source]])
			default:
				continue
			}
			if when > times[tree] || o.TimeWindow > 0 && times[tree] > -1000 && when <= times[tree]-o.TimeWindow {
				t.Fatalf("edge %d of relation %d and time %d for a seed of time %d", k, i, when, times[tree])
			}
			edges++
		}
	}
	for typ, tensors := range d.nodes {
		for _, x := range tensors {
			got, width := b.arrays[fmt.Sprintf("n%d/%s", typ, x.Name)], len(x.Rows)/max(1, int(d.counts[typ]))
			for i, v := range ids[typ] {
				require.Equal(t, x.Rows[int(v)*width:][:width], got[i*width:][:width])
			}
		}
	}
}

func TestHeteroTreesAgreeEverywhere(t *testing.T) {
	d := newHeteroDataset().timed()
	g := d.graph(t)
	s := d.store(t, ssd.OS)
	for name, change := range heteroTrees(d) {
		base := d.options()
		change(&base)
		want := epochOf(t, open(t, g, base), 1)
		for _, b := range want {
			d.requireTrees(t, g, base, b)
		}
		for place, move := range map[string]func(o *Options){
			"disk":    func(o *Options) { o.NeighborCache, o.FeatureCache, o.Checksums = 0, 0, true },
			"threads": func(o *Options) { o.Workers, o.Prefetch = 8, 5 },
			"belady, disk": func(o *Options) {
				o.Cache, o.FeatureCache, o.Superbatch, o.NeighborCache = "belady", 120<<10, 4, 0
			},
			"lru": func(o *Options) { o.Cache, o.FeatureCache = "lru", 60<<10 },
		} {
			t.Run(name+"/"+place, func(t *testing.T) {
				o := base
				move(&o)
				requireSame(t, want, epochOf(t, open(t, OpenStore(s), o), 1))
			})
		}
	}
}

// Whatever the memory, batches are right or the smallest that works is named; and a batch takes the bytes that room was
// made for.
func TestHeteroTreesAndSubgraphsInBudgets(t *testing.T) {
	d := newHeteroDataset().timed()
	g, s := d.graph(t), d.store(t, ssd.OS)
	ways := heteroTrees(d)
	ways["bidirectional"] = func(o *Options) { o.Subgraph, o.Transpose = sample.Bidirectional, true }
	ways["induced"] = func(o *Options) { o.Subgraph = sample.Induced }
	ways["bidirectional trees"] = func(o *Options) { o.Subgraph, o.Disjoint = sample.Bidirectional, true }
	for name, change := range ways {
		base := d.options()
		change(&base)
		want := epochOf(t, open(t, g, base), 0)
		for kind, source := range map[string]Source{"memory": g, "store": OpenStore(s)} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				o := base
				o.Memory, o.Cache, o.Workers = 1, "auto", 2
				_, err := Open(context.Background(), source, o, mem.NewAllocator())
				var short *mem.BudgetError
				require.ErrorAs(t, err, &short)
				for _, more := range []int64{0, 4 << 20} {
					o.Memory = short.Need + more
					l := open(t, source, o)
					requireSame(t, want, epochOf(t, l, 0))
					require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
				}
			})
		}
		for _, mode := range []Mode{Train, Trace} {
			l := open(t, g, base)
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
			require.Equal(t, total, b.bytes, name)
			b.Release()
		}
	}
}

// A node that is in many trees is read once.
func TestRowsOfHeteroTreesAreReadOnce(t *testing.T) {
	d := newHeteroDataset()
	o := d.options()
	o.Disjoint, o.BatchSize = true, 500
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	b := epochOf(t, l, 0)[0]
	distinct, all := map[string]bool{}, 0
	for typ := range d.names {
		for _, v := range b.int64s(fmt.Sprintf("n%d/n_id", typ)) {
			all++
			if d.nodes[typ] != nil {
				distinct[fmt.Sprint(typ, " ", v)] = true
			}
		}
	}
	require.Greater(t, all, 2*len(distinct))
	require.EqualValues(t, len(distinct), l.Stats().Misses)
}

func TestWrongHeteroTimes(t *testing.T) {
	d := newHeteroDataset().timed()
	g := d.graph(t)
	for message, change := range map[string]func(o *Options){
		`time_attr "born!" is no tensor of any type, the tensors are ["user.x"`: func(o *Options) {
			o.TimeAttr = "born!"
		},
		`time_attr "mixed" names tensors of nodes (node type "item") and of edges (edge`: func(o *Options) {
			o.TimeAttr = "mixed"
		},
		`node type "item" has no time_attr "born" of its own, so input_time must give`: func(o *Options) {
			o.TimeAttr = "born"
		},
		`node type "user": loader: invalid option: time_attr "x" holds uint8 [96]`: func(o *Options) {
			o.TimeAttr = "x"
		},
		`edge type (user, r0, item): loader: invalid option: time_attr "w" holds float32`: func(o *Options) {
			o.TimeAttr = "w"
		},
		`expected one for each of 452 input nodes`: func(o *Options) {
			o.TimeAttr, o.SeedTimes = "born", make([]int64, 3)
		},
		`LABOR and random walks`: func(o *Options) { o.Disjoint, o.Labor = true, &sample.Labor{BatchDependency: 1} },
		`joins what is disjoint`: func(o *Options) { o.Disjoint, o.Subgraph = true, sample.Induced },
	} {
		o := d.options()
		change(&o)
		_, err := Open(context.Background(), g, o, mem.NewAllocator())
		require.ErrorIs(t, err, ErrOption)
		require.ErrorContains(t, err, message)
	}
}

// Links of a relation in trees and by time: the same in memory, on disk, in a small budget, and continued; negatives of
// a type that has times are not later than their link.
func TestHeteroLinkTreesAgreeEverywhere(t *testing.T) {
	d := newHeteroDataset().timed()
	g, s := d.graph(t), d.store(t, ssd.OS)
	for i, kind := range heteroLinkKinds[:4] {
		for _, attr := range [][]string{{"born"}, {"when", ""}, {"born"}, {"when", "born"}}[i] {
			base := d.forLinks(kind.k, kind.source, kind.target)
			base.Disjoint, base.TimeAttr = true, attr
			if attr != "" {
				for j := range base.Links.Sources {
					base.SeedTimes = append(base.SeedTimes, 20+int64(j*7%90))
				}
			}
			t.Run(kind.name+"/"+attr, func(t *testing.T) {
				want := epochOf(t, open(t, g, base), 1)
				for _, b := range want {
					d.requireLinkTrees(t, g, base, kind.source, kind.target, b)
				}
				for _, move := range []func(o *Options){
					func(o *Options) { o.Workers, o.Prefetch = 8, 5 },
					func(o *Options) {
						o.Cache, o.FeatureCache, o.Superbatch, o.NeighborCache = "belady", 120<<10, 4, 0
					},
					func(o *Options) { o.Memory, o.Cache = 64<<20, "auto" },
				} {
					o := base
					move(&o)
					l := open(t, OpenStore(s), o)
					requireSame(t, want, epochOf(t, l, 1))
					require.NoError(t, l.Start(1, 3, Train)) // in the middle
					requireSame(t, want[3:], rest(t, l))
				}
				if attr != "when" || i != 1 {
					return
				}
				o := base
				o.Memory = 1
				_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
				var short *mem.BudgetError
				require.ErrorAs(t, err, &short)
				o.Memory = short.Need
				l := open(t, OpenStore(s), o)
				requireSame(t, want, epochOf(t, l, 1))
				require.LessOrEqual(t, l.budget.Peak(), o.Memory)
			})
		}
	}
}

// requireLinkTrees looks at a batch of links in trees: its seeds, its edges and their times.
func (d *heteroDataset) requireLinkTrees(t *testing.T, g *Graph, o Options, source, target int, b *seen) {
	t.Helper()
	k, rel := o.Links, fmt.Sprintf("e%d/", o.Links.Relation)
	of := func(typ int, name string) []int64 { return b.int64s(fmt.Sprintf("n%d/%s", typ, name)) }
	input := b.int64s(rel + "input_id")
	n := len(input)
	ends := n + int(k.NumNegatives(int64(n))) // targets, and of pairs sources
	sources := ends
	if k.Triplets {
		sources = n
	}
	first := 0 // of the targets
	if source == target {
		first = sources
	}
	for i, at := range input {
		require.Equal(t, k.Sources[at], of(source, "n_id")[i])
		require.Equal(t, k.Targets[at], of(target, "n_id")[first+i])
	}
	if k.Triplets {
		require.Equal(t, upwards(0, n), of(source, "src_index"))
		require.Equal(t, upwards(first, first+n), of(target, "dst_pos_index"))
	} else {
		require.Equal(t, append(upwards(0, sources), upwards(first, first+ends)...), b.int64s(rel+"edge_label_index"))
	}
	var times []int64
	if o.TimeAttr != "" {
		for j := range sources {
			times = append(times, o.SeedTimes[input[j%n]])
		}
		if k.Triplets {
			require.Equal(t, times, of(source, SeedTimeName))
			require.Equal(t, times, of(target, SeedTimeName))
		} else {
			require.Equal(t, times, b.int64s(rel+LinkTimeName))
		}
	}
	for i := range ends {
		require.EqualValues(t, i%n, of(target, TreeName)[first+i])
		if born := d.tensor(d.nodes[target], o.TimeAttr); born != nil && i >= n {
			require.LessOrEqual(t, int64(born[of(target, "n_id")[first+i]]), times[i%n])
		}
	}
	for i := range sources {
		require.EqualValues(t, i%n, of(source, TreeName)[i])
		if born := d.tensor(d.nodes[source], o.TimeAttr); born != nil && i >= n {
			require.LessOrEqual(t, int64(born[of(source, "n_id")[i]]), times[i%n])
		}
	}
	out := map[[3]int64]bool{} // relation and ends
	for _, at := range input {
		if k.Exclude != links.ExcludeNone {
			out[[3]int64{int64(k.Relation), k.Sources[at], k.Targets[at]}] = true
		}
		if k.Exclude == links.ExcludeBoth {
			out[[3]int64{int64(k.Reverse), k.Targets[at], k.Sources[at]}] = true
		}
	}
	for i, e := range g.edges {
		at := fmt.Sprintf("e%d/", i)
		eID, index := b.int64s(at+"e_id"), b.int64s(at+"edge_index")
		sourceIDs, sourceTrees, targetIDs, targetTrees := of(e.source, "n_id"), of(e.source, TreeName), of(e.target, "n_id"),
			of(e.target, TreeName)
		byEdge, byNode := d.tensor(d.edges[i].Tensors, o.TimeAttr), d.tensor(d.nodes[e.source], o.TimeAttr)
		for j, id := range eID {
			from, to := index[j], index[len(eID)+j]
			link, u, v := targetTrees[to], sourceIDs[from], targetIDs[to]
			when := int64(math.MinInt64)
			if byEdge != nil {
				when = int64(byEdge[id])
			} else if byNode != nil {
				when = int64(byNode[u])
			}
			if sourceTrees[from] != link || out[[3]int64{int64(i), u, v}] || len(times) > 0 && when > times[link] {
				t.Fatalf("edge %d of relation %d and time %d, from %d to %d, is of another tree, a link of the batch, or late", j,
					i, when, u, v)
			}
		}
	}
}

func TestReverses(t *testing.T) {
	s := &schema{first: []int64{0, 1, 2, 3}}
	for _, r := range []struct {
		source, target int
		name           string
	}{{0, 1, "x"}, {1, 0, "rev_x"}, {1, 0, "y"}, {0, 0, "z"}, {0, 0, "rev_z"}, {1, 1, "w"}, {1, 2, "v"}, {2, 1, "u"},
		{0, 2, "t"}} {
		s.relations = append(s.relations, relation{source: r.source, target: r.target, relation: r.name})
	}
	require.Equal(t, []int{1, 0, 0, 4, 3, 5, 7, 6, -1}, s.reverses())
}
