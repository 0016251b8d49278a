package loader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
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

// sources returns the graph of a form, and by name every source of it: the graph, a store, and the store relaid out.
func (f *form) sources(t *testing.T) (*draw.Graph, map[string]draw.Source) {
	t.Helper()
	g, s := f.graph(t), f.store(t, ssd.OS)
	relaidOut := draw.OpenStore(relaid(t, s, store.Hot))
	return g, map[string]draw.Source{"graph": g, "store": draw.OpenStore(s), "relaid": relaidOut}
}

// shortWindows returns options with a cache of some rows, which plans make in short windows.
func (f *form) shortWindows() draw.Options {
	o := f.options()
	o.FeatureCache, o.Superbatch, o.Transfer, o.Prefetch = rowsFor(500), 10, "page-once+forward", 3
	if len(f.names) > 1 {
		o.FeatureCache, o.Superbatch, o.BufferMemory = 80<<10, 4, 4<<20
	}
	return o
}

// TestRelaidStoreGivesTheSameBatches holds that the order of rows on disk, which each node type has, shows in nothing,
// whoever decides over the cache.
func TestRelaidStoreGivesTheSameBatches(t *testing.T) {
	for _, f := range forms(someDataset()) {
		g, original := f.graph(t), f.store(t, ssd.OS)
		kinds := []string{"belady", "none", "degree", "in-degree", "expected", "presc", "oracle", "vector", "lru"}
		rooms, memory := []int64{rowsFor(500)}, int64(3<<20)
		if len(f.names) > 1 {
			kinds = []string{"none", "belady", "degree", "expected", "presc", "lru"}
			rooms, memory = []int64{0, 1 << 17, 1 << 30}, 6<<20 // with the last, tensors are held whole
		}
		want := [2][]*seen{epochOf(t, open(t, g, f.options()), 0), epochOf(t, open(t, g, f.options()), 1)}
		for _, order := range some(f, store.Orders...) {
			s := draw.OpenStore(relaid(t, original, order))
			for _, kind := range some(f, kinds...) {
				for at, room := range rooms {
					explore.Run(t, fmt.Sprintf("%s, %s %s %d", f, order, kind, room), func(t *testing.T) {
						o := f.options()
						o.Cache, o.FeatureCache, o.Transfer, o.Scratch = kind, room, "pack+forward", t.TempDir()
						if kind == "vector" {
							o.Hotness = make([]float32, someNodes)
							o.Hotness[7] = 1
						}
						l := open(t, s, o)
						for epoch := range want[:len(want)-min(at, 1)] {
							requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
						}
					})
				}
			}
			explore.Run(t, fmt.Sprintf("%s, %s in a budget", f, order), func(t *testing.T) {
				o := f.options()
				o.Cache, o.Memory = "auto", memory
				l := open(t, s, o)
				requireSame(t, want[0], epochOf(t, l, 0))
				require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
			})
			explore.Run(t, fmt.Sprintf("%s, %s in part with the consumer", f, order), func(t *testing.T) {
				o := f.options()
				o.Cache, o.FeatureCache = "degree", 1<<17
				for v := range g.Parts().NumNodes {
					o.Held = append(o.Held, int32(v%3)-1) // a third of the rows stays
				}
				requireSame(t, epochOf(t, open(t, g, o), 0), epochOf(t, open(t, s, o), 0))
			})
		}
	}
}

// TestRanksFollowTheRows holds that a ranking of nodes caches the rows of these
// nodes, wherever they are.
func TestRanksFollowTheRows(t *testing.T) {
	d := someDataset()
	original := d.store(t, ssd.OS)
	for _, kind := range []string{"degree", "expected", "presc"} {
		o := belady()
		o.Cache = kind
		var hits []int64
		for _, s := range []*store.Store{original, relaid(t, original, store.Hot)} {
			l := open(t, draw.OpenStore(s), o)
			epochOf(t, l, 0)
			hits = append(hits, l.Stats().Hits)
		}
		// Rows of equal score rank by their place, so a few differ.
		require.InEpsilon(t, hits[0], hits[1], 0.02, kind)
	}
}

// TestHotnessIsByNode holds that scores belong to nodes where rows are in another order, also where times of nodes were
// read in that order.
func TestHotnessIsByNode(t *testing.T) {
	d := someDataset()
	source := draw.OpenStore(relaid(t, d.store(t, ssd.OS), store.Hot))
	for _, metric := range draw.Metrics {
		for _, times := range []string{"", "y"} {
			o := plain()
			o.Cache, o.TimeAttr, o.PreSCEpochs = metric, times, 1
			want, got := make([]float32, someNodes), make([]float32, someNodes)
			require.NoError(t, draw.Hotness(context.Background(), d.graph(t), o, want))
			require.NoError(t, draw.Hotness(context.Background(), source, o, got))
			require.Equal(t, want, got, "%s %s", metric, times)
		}
	}
}
