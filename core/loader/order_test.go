package loader

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/plan"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// ordered is the options of a cache whose batches change places in blocks.
func ordered(kind string, block int64) draw.Options {
	o := belady()
	o.Cache, o.Reorder, o.Prefetch = kind, block, 4
	return o
}

// TestReorderedBatches holds that an order is a permutation within blocks, of the batches of a loader without it, that
// a resumed run repeats, for every cache.
func TestReorderedBatches(t *testing.T) {
	d := someDataset()
	s := someStore(t, ssd.OS)
	plainly := epochOf(t, open(t, d.graph(t), plain()), 1)
	for _, kind := range append([]string{"belady"}, cache.OnlineNames()...) {
		explore.Run(t, kind, func(t *testing.T) {
			o := ordered(kind, 8)
			l := open(t, draw.OpenStore(s), o)
			epochOf(t, l, 0)
			order := epochOf(t, l, 1)
			require.Len(t, order, len(plainly))
			for first := 0; first < len(order); first += 8 {
				left := slices.Clone(plainly[first:min(first+8, len(plainly))])
				for i, b := range order[first:min(first+8, len(order))] {
					require.EqualValues(t, first+i, b.index)
					at := slices.IndexFunc(left, func(one *seen) bool {
						return string(one.arrays["input_id"]) == string(b.arrays["input_id"])
					})
					require.GreaterOrEqual(t, at, 0, "a batch came twice, or one of another block")
					require.Equal(t, left[at].arrays, b.arrays)
					left = slices.Delete(left, at, at+1)
				}
			}
			for _, first := range []int64{0, 3, 8, 21, 46, 47} {
				resumed := open(t, draw.OpenStore(s), o)
				require.NoError(t, resumed.Start(1, first, Train))
				requireSame(t, order[first:], rest(t, resumed))
			}
		})
	}
}

// TestOrderOfMatchReadsLess compares the rows that Match reads in both orders with those of the rows of the batches.
func TestOrderOfMatchReadsLess(t *testing.T) {
	s := someStore(t, ssd.OS)
	reads := map[int64]int64{}
	for _, block := range []int64{0, someBatchs} {
		o := ordered("match", block)
		o.FeatureCache = rowsFor(1500) // of any batch
		l := open(t, draw.OpenStore(s), o)
		order := epochOf(t, l, 0)
		var before []int64
		expected := int64(0)
		for _, b := range order {
			now := b.int64s("n_id")
			for _, id := range now {
				if !slices.Contains(before, id) {
					expected++
				}
			}
			before = now
		}
		require.Equal(t, expected, l.Stats().Misses)
		require.Equal(t, block, l.Plan().Reorder)
		reads[block] = expected
	}
	require.Less(t, reads[someBatchs], reads[0])
}

// TestBudgetsOfOrders holds that every budget from the smallest on works and is kept.
func TestBudgetsOfOrders(t *testing.T) {
	d := newDataset(4000, 20000)
	s := d.store(t, ssd.OS)
	for _, kind := range cache.OnlineNames() {
		explore.Run(t, kind, func(t *testing.T) {
			for _, block := range []int64{8, draw.Auto} {
				o := plain()
				o.Fanouts, o.BatchSize, o.Cache, o.Reorder = []int64{5, 5}, 256, kind, block
				o.Memory = 1000
				least := leastMemory(t, draw.OpenStore(s), o)
				for _, memory := range []int64{least, least + 4096, least * 11 / 10, least * 2} {
					o.Memory = memory
					l := open(t, draw.OpenStore(s), o)
					require.Len(t, epochOf(t, l, 0), 16)
					require.LessOrEqual(t, l.Stats().MemoryPeak, memory)
				}
			}
		})
	}
}

// TestFaultsOfOrders holds that an epoch whose batches cannot be drawn for their order ends with the error, and that
// the next one has its order.
func TestFaultsOfOrders(t *testing.T) {
	d := someDataset()
	fs := faultfs.New(ssd.OS)
	o := ordered("match", 8)
	o.NeighborCache, o.Workers = 0, 3
	want := epochOf(t, open(t, draw.OpenStore(d.store(t, ssd.OS)), o), 0)
	l := open(t, draw.OpenStore(d.store(t, fs)), o)
	fs.Arm(faultfs.Fault{Op: faultfs.Read, Path: "*indices*", Nth: 20, Times: faultfs.Forever, Errno: 5})
	require.NoError(t, l.Start(0, 0, Train))
	var err error
	for range want {
		b, failed := l.Next(context.Background())
		if err = failed; err != nil {
			break
		}
		b.Release()
	}
	require.ErrorContains(t, err, "ordering batches 0 to 7")
	fs.Clear()
	requireSame(t, want, epochOf(t, l, 0))
}

// TestOrderIsOfTheCacheThatItServes compares the order of a loader with plan.Reorder of its traces.
func TestOrderIsOfTheCacheThatItServes(t *testing.T) {
	s := someStore(t, ssd.OS)
	for _, kind := range []string{"match", "lru"} {
		o := ordered(kind, 12)
		l := open(t, draw.OpenStore(s), o)
		require.NoError(t, l.Start(0, 0, Trace))
		traces := rest(t, l)
		got := epochOf(t, l, 0)
		for first := 0; first < len(traces); first += 12 {
			block := traces[first:min(first+12, len(traces))]
			batches := make([]plan.Batch, len(block))
			for i, b := range block {
				for _, id := range b.int64s("n_id") {
					batches[i] = append(batches[i], uint32(id))
				}
			}
			order, err := plan.Reorder(context.Background(), l.draw.Budget, batches, draw.OrderedCache(&l.draw))
			require.NoError(t, err)
			for i, from := range order {
				require.Equal(t, block[from].arrays["n_id"], got[first+i].arrays["n_id"], "%s, place %d", kind, first+i)
			}
		}
	}
}
