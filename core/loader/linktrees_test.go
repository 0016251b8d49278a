package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

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
				o.Memory = leastMemory(t, OpenStore(s), o)
				l := open(t, OpenStore(s), o)
				requireSame(t, want, epochOf(t, l, 1))
				require.LessOrEqual(t, l.budget.Peak(), o.Memory)
			})
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
