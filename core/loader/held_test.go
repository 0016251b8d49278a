package loader

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// someHeld holds about a share of the nodes, the first of them first, and says who is
// in which row.
func someHeld(nodes int64, share float64) (held []int32, owners []int64) {
	rng := rand.New(rand.NewPCG(6, 6))
	for v := range nodes {
		if rng.Float64() < share*2*float64(nodes-v)/float64(nodes) {
			held = append(held, int32(len(owners)))
			owners = append(owners, v)
		} else {
			held = append(held, -1)
		}
	}
	return held, owners
}

// TestHeldRowsAreLeftOut is the metamorphic test of rows that the consumer holds: put together, type by type, batches
// equal the batches of a loader whose consumer holds none, under every cache policy.
func TestHeldRowsAreLeftOut(t *testing.T) {
	for _, f := range forms(someDataset()) {
		g, sources := f.sources(t)
		base := f.shortWindows()
		ways := map[string]draw.Options{"": base}
		if base.Seeds == nil {
			rng := explore.Rand(t, 3, 9)
			for range 500 {
				base.Seeds = append(base.Seeds, rng.Int64N(200)) // some repeat within a batch
			}
			ways[", repeated seeds"] = base
		}
		for way, base := range ways {
			want := epochOf(t, open(t, g, base), 0)
			for _, share := range []float64{0, 0.3, 1} {
				held, owners := f.someHeld(share)
				kinds := some(f, "belady", "none", "degree", "presc", "oracle", "expected", "lru", "match", "auto", "all")
				if share != 0.3 {
					kinds = kinds[:min(2, len(kinds))]
				}
				for _, kind := range explore.Part(t, fmt.Sprint(f, way, share), kinds) {
					for source, src := range sources {
						if way != "" && source != "store" {
							continue
						}
						t.Run(fmt.Sprintf("%s%s, %v held %s %s", f, way, share, kind, source), func(t *testing.T) {
							o := base
							if o.Held, o.Cache = held, kind; kind == "all" {
								o.Cache, o.FeatureCache = "degree", 8<<20
							}
							l := open(t, src, o)
							got := epochOf(t, l, 0)
							require.Len(t, got, len(want))
							var present int64
							for i, b := range got {
								for typ := range f.names {
									present += f.putTogether(t, l, typ, owners[typ], b)
								}
								require.Equal(t, want[i].arrays, b.arrays, "batch %d", i)
							}
							st := l.Stats()
							require.Equal(t, present, st.Held)
							require.Equal(t, st.Rows, st.Held+st.Hits+st.Packed+st.Misses, "%+v", st)
						})
					}
				}
			}
		}
	}
}

// someHeld holds about a share of the nodes of each type. The consumer numbers the rows of each type by themselves.
func (f *form) someHeld(share float64) (held []int32, owners [][]int64) {
	for _, count := range f.counts {
		some, of := someHeld(count, share)
		if share == 1 {
			of = of[:0]
			for v := range some {
				some[v], of = int32(v), append(of, int64(v))
			}
		}
		held, owners = append(held, some...), append(owners, of)
	}
	return held, owners
}

// TestHeldRowsOfPrunedBatches: put together, batches that a history has pruned equal the batches of a loader whose
// consumer holds no rows, also where plans are made for the rows that pruning leaves, and rows that pruning leaves
// unread are zeros.
func TestHeldRowsOfPrunedBatches(t *testing.T) {
	d := someDataset()
	d.turnLoops()
	for _, f := range forms(d) {
		s, g := f.store(t, ssd.OS), f.graph(t)
		for _, fraction := range []float64{0.7, 1} { // with 1, pruning is known ahead
			o := f.withHistory(f.options(), history.Gradient)
			o.History.GradFraction, o.Prefetch = fraction, 5
			want, plain := [][]*seen{}, f.train(t, open(t, g, o))
			for epoch := range int64(3) {
				want = append(want, plain.epochOf(epoch))
			}
			kinds := explore.Part(t, fmt.Sprint(f, fraction), []string{"belady", "degree", "lru", "none"})
			for _, kind := range some(f, kinds...) {
				for _, share := range []float64{0, 0.3, 1} {
					t.Run(fmt.Sprintf("%s %v %s, %v held", f, fraction, kind, share), func(t *testing.T) {
						o := o
						o.Cache, o.FeatureCache, o.Superbatch = kind, f.rooms()[2], 10
						held, owners := f.someHeld(share)
						o.Held = held
						r := f.train(t, open(t, draw.OpenStore(s), o))
						r.owners = owners
						r.requireEpochs(want)
						require.Equal(t, plain.hits, r.hits)
						st := r.l.Stats()
						require.Equal(t, share > 0, st.Held > 0)
						require.Equal(t, st.Rows, st.Held+st.Hits+st.Packed+st.Misses, "%+v", st)
						require.Equal(t, share == 1, st.Rows == st.Held)
					})
				}
			}
		}
	}
}

// TestHeldRowsSaveReads holds that rows of the consumer take no place in a cache that
// is filled once, and no memory in batches.
func TestHeldRowsSaveReads(t *testing.T) {
	explore.Figures(t)
	s := someStore(t, ssd.OS)
	held, _ := someHeld(someNodes, 0.2)
	for _, kind := range []string{"degree", "in-degree", "expected", "presc"} {
		o := belady()
		o.Cache = kind
		before := open(t, draw.OpenStore(s), o)
		epochOf(t, before, 0)
		o.Held = held
		after := open(t, draw.OpenStore(s), o)
		epochOf(t, after, 0)
		require.Equal(t, before.Stats().CachedRows, after.Stats().CachedRows)
		require.Less(t, after.Stats().Misses, before.Stats().Misses*8/10, kind)
		require.Greater(t, after.Stats().Hits, int64(0), kind)
	}
}

// TestHeldRowsKeepToTheBudget: rows that the consumer holds take no memory of the loader beyond their places.
func TestHeldRowsKeepToTheBudget(t *testing.T) {
	for _, f := range forms(someDataset()) {
		s, o := f.store(t, ssd.OS), f.options()
		if o.Memory = 4 << 20; len(f.names) > 1 {
			o.Memory, o.Cache = 24<<20, "auto"
		}
		before := open(t, draw.OpenStore(s), o)
		o.Held, _ = f.someHeld(0.2)
		after := open(t, draw.OpenStore(s), o)
		if len(f.names) == 1 { // where rows of nodes are most of a batch
			require.Less(t, after.Stats().MemorySmallest, before.Stats().MemorySmallest)
		}
		epochOf(t, after, 0)
		require.Positive(t, after.Stats().Held)
		require.LessOrEqual(t, after.Stats().MemoryPeak, o.Memory)
	}
}

// TestSeedsAlone: a loader of no hops reads rows in the order of its seeds.
func TestSeedsAlone(t *testing.T) {
	d := newDataset(500, 6000)
	for _, src := range []draw.Source{d.graph(t), draw.OpenStore(d.store(t, ssd.OS))} {
		o := plain()
		o.Fanouts, o.Shuffle, o.Seeds, o.NeighborCache = nil, false, []int64{7, 3, 499, 0, 120}, 0
		o.BatchSize = 3
		var ids []int64
		for _, b := range epochOf(t, open(t, src, o), 0) {
			d.form("").requireRight(t, o, b)
			require.Empty(t, b.int64s("e_id"))
			ids = append(ids, b.int64s("n_id")...)
		}
		require.Equal(t, o.Seeds, ids)
	}
}

// putTogether makes the node tensors of a type whole, as a consumer does, takes their places away and counts the rows
// that were his.
func (f *form) putTogether(t *testing.T, l *Loader, typ int, owners []int64, b *seen) (present int64) {
	t.Helper()
	nodeName := l.draw.Parts.Schema.NodeName
	places := nodeName(typ, draw.PlaceName)
	place := mem.View[int32](b.arrays[places])
	require.Len(t, place, len(b.int64s(nodeName(typ, "n_id"))))
	for _, p := range place {
		if p >= 0 {
			present++
		}
	}
	for _, x := range f.nodes[typ] {
		name := nodeName(typ, x.Name)
		missed, width := b.arrays[name], rowBytes(x)
		whole, used := missed[:0:0], map[int32]bool{}
		for _, p := range place {
			if p >= 0 {
				whole = append(whole, x.Rows[int(owners[p])*width:][:width]...)
			} else {
				used[^p] = true
				whole = append(whole, missed[int(^p)*width:][:width]...)
			}
		}
		require.Len(t, used, len(missed)/width, "rows that nobody needs")
		b.arrays[name], b.shapes[name] = whole, append([]int64{int64(len(place))}, x.RowShape...)
	}
	delete(b.arrays, places)
	delete(b.shapes, places)
	return present
}
