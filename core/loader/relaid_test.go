package loader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
	"freshgo/core/store"
)

// relaid is the store again, with its rows in another order.
func relaid(t *testing.T, s *store.Store, order string) *store.Store {
	t.Helper()
	numNodes := int64(0)
	for _, of := range s.NodeTypes() {
		numNodes += of.Count
	}
	scores := make([]float32, numNodes)
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range scores {
		scores[i] = float32(rng.IntN(20))
	}
	path := filepath.Join(t.TempDir(), "relaid.freshgo")
	o := store.RelayoutOptions{Order: order, Scores: scores, HotRows: -1}
	require.NoError(t, store.Relayout(context.Background(), s, path, o))
	other, err := store.Open(ssd.OS, path)
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	return other
}

// TestRelaidStoreGivesTheSameBatches holds that the order of rows on disk shows in
// nothing, whoever decides over the cache.
func TestRelaidStoreGivesTheSameBatches(t *testing.T) {
	d := newDataset(someNodes, 40000)
	original := d.store(t, ssd.OS)
	var want [][]*seen
	reference := open(t, d.graph(t), plain())
	for epoch := range int64(2) {
		want = append(want, epochOf(t, reference, epoch))
	}
	for _, order := range store.Orders {
		s := relaid(t, original, order)
		for _, kind := range []string{"none", "belady", "degree", "in-degree", "expected", "presc", "oracle", "vector",
			"lru"} {
			t.Run(order+" "+kind, func(t *testing.T) {
				o := belady()
				o.Cache, o.Transfer, o.Scratch = kind, "pack+forward", t.TempDir()
				if kind == "vector" {
					o.Hotness = make([]float32, someNodes)
					o.Hotness[7] = 1
				}
				l := open(t, OpenStore(s), o)
				for epoch := range want {
					requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
				}
			})
		}
		t.Run(order+" in a budget", func(t *testing.T) {
			o := plain()
			o.Cache, o.Memory = "auto", 3<<20
			l := open(t, OpenStore(s), o)
			requireSame(t, want[0], epochOf(t, l, 0))
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
		})
	}
}

// TestRelaidStoreOfTypesGivesTheSameBatches is the same of a graph with several node types, each of which has an order.
func TestRelaidStoreOfTypesGivesTheSameBatches(t *testing.T) {
	d := severalTypes()
	original := d.store(t, ssd.OS)
	want := epochOf(t, open(t, d.graph(t), d.options()), 0)
	for _, order := range store.Orders {
		s := relaid(t, original, order)
		for _, kind := range []string{"none", "belady", "degree", "expected", "presc", "lru"} {
			for _, rows := range []int64{0, 1 << 17, 1 << 30} { // of the cache, in bytes: with the last, tensors are held whole
				t.Run(fmt.Sprint(order, " ", kind, " ", rows), func(t *testing.T) {
					o := d.options()
					o.Cache, o.FeatureCache, o.Transfer, o.Scratch = kind, rows, "pack+forward", t.TempDir()
					requireSame(t, want, epochOf(t, open(t, OpenStore(s), o), 0))
				})
			}
		}
		t.Run(order+" in a budget", func(t *testing.T) {
			o := d.options()
			o.Cache, o.Memory = "auto", 6<<20
			l := open(t, OpenStore(s), o)
			requireSame(t, want, epochOf(t, l, 0))
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
		})
		t.Run(order+" in part with the consumer", func(t *testing.T) {
			o := d.options()
			o.Cache, o.FeatureCache = "degree", 1<<17
			for v := range d.graph(t).parts().numNodes {
				o.Held = append(o.Held, int32(v%3)-1) // a third of the rows stays
			}
			var got [2][]*seen
			for i, source := range []Source{d.graph(t), OpenStore(s)} {
				got[i] = epochOf(t, open(t, source, o), 0)
			}
			requireSame(t, got[0], got[1])
		})
	}
}

// TestRanksFollowTheRows holds that a ranking of nodes caches the rows of these
// nodes, wherever they are.
func TestRanksFollowTheRows(t *testing.T) {
	d := newDataset(someNodes, 40000)
	original := d.store(t, ssd.OS)
	for _, kind := range []string{"degree", "expected", "presc"} {
		o := belady()
		o.Cache = kind
		var hits []int64
		for _, s := range []*store.Store{original, relaid(t, original, store.Hot)} {
			l := open(t, OpenStore(s), o)
			epochOf(t, l, 0)
			hits = append(hits, l.Stats().Hits)
		}
		// Rows of equal score rank by their place, so a few differ.
		require.InEpsilon(t, hits[0], hits[1], 0.02, kind)
	}
}

// TestHotnessIsByNode holds that scores are those of nodes where rows are in another order, also where times of nodes
// were read in that order.
func TestHotnessIsByNode(t *testing.T) {
	d := newDataset(someNodes, 40000)
	source := OpenStore(relaid(t, d.store(t, ssd.OS), store.Hot))
	for _, metric := range metrics {
		for _, times := range []string{"", "y"} {
			o := plain()
			o.Cache, o.TimeAttr, o.PreSCEpochs = metric, times, 1
			want, got := make([]float32, someNodes), make([]float32, someNodes)
			require.NoError(t, Hotness(context.Background(), d.graph(t), o, want))
			require.NoError(t, Hotness(context.Background(), source, o, got))
			require.Equal(t, want, got, "%s %s", metric, times)
		}
	}
}
