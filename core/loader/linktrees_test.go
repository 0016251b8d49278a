package loader

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// Links of a relation in trees and by time: the same in memory, on disk, in a small budget, and continued; negatives of
// a type that has times are not later than their link.
func TestHeteroLinkTreesAgreeEverywhere(t *testing.T) {
	d := severalTypes().timed()
	g, s := d.graph(t), d.store(t, ssd.OS)
	for i, kind := range d.linkCases()[:4] {
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
func (d *form) requireLinkTrees(t *testing.T, g *Graph, o Options, source, target int, b *seen) {
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
		if born := numbers(d.nodes[target], o.TimeAttr); born != nil && i >= n {
			require.LessOrEqual(t, int64(born[of(target, "n_id")[first+i]]), times[i%n])
		}
	}
	for i := range sources {
		require.EqualValues(t, i%n, of(source, TreeName)[i])
		if born := numbers(d.nodes[source], o.TimeAttr); born != nil && i >= n {
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
		byEdge, byNode := numbers(d.edges[i].Tensors, o.TimeAttr), numbers(d.nodes[e.source], o.TimeAttr)
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
