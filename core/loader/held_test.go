package loader

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
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

// assemble puts the consumer's rows and those of a batch together, as a consumer does.
func assemble(t *testing.T, b *seen, owners []int64, row func(v int64) []byte, name string) []byte {
	t.Helper()
	var out []byte
	place, missed := mem.View[int32](b.arrays[PlaceName]), b.arrays[name]
	require.Len(t, place, len(b.int64s("n_id")))
	used := map[int32]bool{}
	for _, p := range place {
		if p >= 0 {
			out = append(out, row(owners[p])...)
			continue
		}
		used[^p] = true
		width := int64(len(missed)) / b.shapes[name][0]
		out = append(out, missed[int64(^p)*width:][:width]...)
	}
	require.Len(t, used, int(b.shapes[name][0]), "rows that nobody needs")
	return out
}

// TestHeldRowsAreLeftOut is the metamorphic test of rows that the consumer holds:
// put together, batches are those of a loader whose consumer holds none, whatever
// decides over the cache.
func TestHeldRowsAreLeftOut(t *testing.T) {
	d := newDataset(someNodes, 40000)
	s := d.store(t, ssd.OS)
	r := relaid(t, s, store.Hot)
	seeds := make([]int64, 500)
	rng := explore.Rand(t, 3, 9)
	for i := range seeds {
		seeds[i] = rng.Int64N(200) // some repeat within a batch
	}
	x, y := littleEndian(d.x), littleEndian(d.y)
	rows := map[string]func(v int64) []byte{
		"x":    func(v int64) []byte { return x[v*width*4:][:width*4] },
		"y":    func(v int64) []byte { return y[v*8:][:8] },
		"wide": func(v int64) []byte { return d.wide[v*wideWidth:][:wideWidth] },
	}
	references := map[bool][]*seen{}
	for _, repeated := range []bool{false, true} {
		o := plain()
		if repeated {
			o.Seeds = seeds
		}
		references[repeated] = epochOf(t, open(t, d.graph(t), o), 0)
	}
	graph := d.graph(t)
	for _, share := range []float64{0, 0.2, 1} {
		held, owners := someHeld(someNodes, share)
		if share == 1 {
			for v := range held {
				held[v], owners = int32(v), append(owners[:v], int64(v))
			}
		}
		kinds := []string{"none", "belady", "degree", "presc", "oracle", "lru", "match", "auto"}
		if share != 0.2 {
			kinds = kinds[:2]
		}
		for _, kind := range kinds {
			for source, src := range map[string]Source{"graph": graph, "store": OpenStore(s), "relaid": OpenStore(r)} {
				for _, repeated := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v held %s %s repeated %v", share, kind, source, repeated), func(t *testing.T) {
						o := belady()
						if o.Cache, o.Transfer = kind, "page-once+forward"; repeated {
							o.Seeds = seeds
						}
						want := references[repeated]
						o.Held = held
						l := open(t, src, o)
						got := epochOf(t, l, 0)
						require.Len(t, got, len(want))
						var present int64
						for i, b := range got {
							for _, p := range mem.View[int32](b.arrays[PlaceName]) {
								if p >= 0 {
									present++
								}
							}
							for name, row := range rows {
								b.arrays[name] = assemble(t, b, owners, row, name)
								b.shapes[name] = want[i].shapes[name]
							}
							delete(b.arrays, PlaceName)
							delete(b.shapes, PlaceName)
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

// TestHeldRowsSaveReads holds that what the consumer holds takes no place in a cache
// that is filled once, and no memory in batches.
func TestHeldRowsSaveReads(t *testing.T) {
	d := newDataset(someNodes, 40000)
	s := d.store(t, ssd.OS)
	held, _ := someHeld(someNodes, 0.2)
	for _, kind := range []string{"degree", "in-degree", "expected", "presc"} {
		o := belady()
		o.Cache = kind
		before := open(t, OpenStore(s), o)
		epochOf(t, before, 0)
		o.Held = held
		after := open(t, OpenStore(s), o)
		epochOf(t, after, 0)
		require.Equal(t, before.Stats().CachedRows, after.Stats().CachedRows)
		require.Less(t, after.Stats().Misses, before.Stats().Misses*8/10, kind)
		require.Greater(t, after.Stats().Hits, int64(0), kind)
	}
	o := plain()
	o.Memory = 4 << 20
	before := open(t, OpenStore(s), o)
	o.Held = held
	after := open(t, OpenStore(s), o)
	require.Less(t, after.Stats().MemorySmallest, before.Stats().MemorySmallest)
	epochOf(t, after, 0)
	require.LessOrEqual(t, after.Stats().MemoryPeak, o.Memory)
}

// TestSeedsAlone: a loader of no hops reads rows in the order of its seeds.
func TestSeedsAlone(t *testing.T) {
	d := newDataset(500, 6000)
	for _, src := range []Source{d.graph(t), OpenStore(d.store(t, ssd.OS))} {
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

// TestHeteroHeldRowsAreLeftOut: put together, type by type, batches are those of a loader whose consumer holds no rows.
func TestHeteroHeldRowsAreLeftOut(t *testing.T) {
	d := severalTypes()
	g, s := d.graph(t), OpenStore(d.store(t, ssd.OS))
	want := epochOf(t, open(t, g, d.options()), 0)
	first := g.parts().types.first
	for _, share := range []float64{0, 0.3, 1} {
		// The consumer numbers the rows of each type by themselves.
		held, owners := make([]int32, 3500), make([][]int64, len(d.names))
		for typ, count := range d.counts {
			some, of := someHeld(count, share)
			for v := range count {
				if share == 1 {
					some[v], of = int32(v), append(of[:v], v)
				}
				held[first[typ]+v] = some[v]
			}
			owners[typ] = of
		}
		kinds := []string{"none", "belady", "degree", "presc", "expected", "lru", "match", "auto", "all"}
		if share != 0.3 {
			kinds = kinds[:2]
		}
		for _, kind := range kinds {
			for source, src := range map[string]Source{"graph": g, "store": s} {
				t.Run(fmt.Sprintf("%v held %s %s", share, kind, source), func(t *testing.T) {
					o := d.options()
					o.Held, o.Cache, o.FeatureCache, o.Superbatch, o.Transfer, o.Prefetch = held, kind, 80<<10, 4, "page-once+forward",
						3
					if o.BufferMemory = 4 << 20; kind == "all" {
						o.Cache, o.FeatureCache = "degree", 8<<20
					}
					l := open(t, src, o)
					got := epochOf(t, l, 0)
					require.Len(t, got, len(want))
					var present int64
					for i, b := range got {
						for typ := range d.names {
							present += putTogether(t, d, typ, owners[typ], want[i], b)
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

// putTogether makes the node tensors of a type whole, as a consumer does, takes their places away and counts the rows
// that were his.
func putTogether(t *testing.T, d *form, typ int, owners []int64, want, b *seen) (present int64) {
	t.Helper()
	places := nodeName(typ, PlaceName)
	place := mem.View[int32](b.arrays[places])
	require.Len(t, place, len(b.int64s(nodeName(typ, "n_id"))))
	for _, p := range place {
		if p >= 0 {
			present++
		}
	}
	for _, x := range d.nodes[typ] {
		name := nodeName(typ, x.Name)
		missed, width := b.arrays[name], int(x.RowShape[0])
		var whole []byte
		used := map[int32]bool{}
		for _, p := range place {
			if p >= 0 {
				whole = append(whole, x.Rows[int(owners[p])*width:][:width]...)
			} else {
				used[^p] = true
				whole = append(whole, missed[int(^p)*width:][:width]...)
			}
		}
		require.Len(t, used, len(missed)/width, "rows that nobody needs")
		require.Equal(t, len(want.arrays[name]), len(whole))
		if b.arrays[name] = whole; len(whole) == 0 {
			b.arrays[name] = want.arrays[name] // empty, or nil
		}
		b.shapes[name] = want.shapes[name]
	}
	delete(b.arrays, places)
	delete(b.shapes, places)
	return present
}

// TestHeteroHeldRowsKeepToTheBudget: rows that the consumer holds take no memory of the loader beyond their places.
func TestHeteroHeldRowsKeepToTheBudget(t *testing.T) {
	d := severalTypes()
	held, _ := someHeld(3500, 0.2)
	o := d.options()
	o.Held, o.Cache, o.Memory = held, "auto", 24<<20
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	epochOf(t, l, 0)
	require.Positive(t, l.Stats().Held)
	require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
}
