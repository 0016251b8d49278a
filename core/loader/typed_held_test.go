package loader

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// TestTypedHeldRowsAreLeftOut: put together, type by type, batches are those of a loader whose consumer holds no rows.
func TestTypedHeldRowsAreLeftOut(t *testing.T) {
	d := newTypedDataset()
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
func putTogether(t *testing.T, d *typedDataset, typ int, owners []int64, want, b *seen) (present int64) {
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

// TestTypedHeldRowsKeepToTheBudget: rows that the consumer holds take no memory of the loader beyond their places.
func TestTypedHeldRowsKeepToTheBudget(t *testing.T) {
	d := newTypedDataset()
	held, _ := someHeld(3500, 0.2)
	o := d.options()
	o.Held, o.Cache, o.Memory = held, "auto", 24<<20
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	epochOf(t, l, 0)
	require.Positive(t, l.Stats().Held)
	require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
}
