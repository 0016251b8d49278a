package loader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/packed"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

// TestListsOfRelationsWithinTheBudget: memory given as a whole, from the smallest that works on: batches are right, the
// limit holds, and lists take the place of what does not fit whole.
func TestListsOfRelationsWithinTheBudget(t *testing.T) {
	f := severalTypes()
	for i, scale := range []int64{60, 40} { // so that topology is much beside a batch
		e := &f.edges[i]
		rng := rand.New(rand.NewPCG(uint64(i), 6))
		of := [2]int64{f.counts[i], f.counts[1-i]}
		var ends [2][]int64
		for range 4000 * scale {
			u := rng.Float64()
			ends[0] = append(ends[0], int64(float64(of[0])*u*u*u))
			ends[1] = append(ends[1], rng.Int64N(of[1]))
		}
		e.EdgeIndex, e.Tensors = store.Dense(manifest.DType_INT64, []int64{2, 4000 * scale},
			mem.Bytes(append(ends[0], ends[1]...))), nil
	}
	g, s := f.graph(t), f.store(t, ssd.OS)
	for name, change := range map[string]func(o *draw.Options){
		"uniform": func(o *draw.Options) { o.NeighborCache = 300_000 }, // by choice all lists are in memory, or none
		"labor":   func(o *draw.Options) { o.Sampler = &sample.Labor{BatchDependency: 1} },
		"walks":   func(o *draw.Options) { *o = f.walked() },
	} {
		t.Run(name, func(t *testing.T) {
			o := f.options()
			change(&o)
			o.Workers, o.Prefetch = 2, 1
			want := epochOf(t, open(t, g, o), 0)
			seen := 0
			for _, o.Cache = range []string{"degree", "auto"} {
				o.Memory = 1
				least := leastMemory(t, draw.OpenStore(s), o)
				for _, more := range explore.Part(t, o.Cache, []int64{0, 900_000, 1_700_000, 2_400_000, 3_400_000}) {
					o.Memory = least + more
					l := open(t, draw.OpenStore(s), o)
					requireSame(t, want, epochOf(t, l, 0))
					require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
					hits, misses := l.draw.NeighborCounts(l.counters.Edges.Load())
					if len(l.draw.Lists) > 0 && hits > 0 && misses > 0 {
						seen++
					}
				}
			}
			require.True(t, seen > 0 || !explore.All())
		})
	}
}

// Memory given as a whole: at every size from the smallest on, batches are right,
// the limit holds, and lists take the place of what does not fit whole.
func TestListsWithinTheBudget(t *testing.T) {
	d := newDataset(6000, 400000)
	s := d.store(t, ssd.OS)
	o := plain()
	o.Fanouts, o.Cache, o.Memory, o.DropLast = []int64{3, 2}, "degree", 1000, true
	o.Seeds = []int64{}
	for v := range int64(640) {
		o.Seeds = append(o.Seeds, v*9)
	}
	want := epochOf(t, open(t, d.graph(t), func() draw.Options { o := o; o.Memory = 0; return o }()), 0)
	least := leastMemory(t, draw.OpenStore(s), o)
	seen := 0
	for o.Memory = least; o.Memory < least+6<<20; o.Memory += 500_000 {
		l := open(t, draw.OpenStore(s), o)
		requireSame(t, want, epochOf(t, l, 0))
		require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
		if l.draw.Lists != nil && cachedEdges(l.draw.Lists[0]) > 0 {
			seen++
			require.LessOrEqual(t, l.Stats().PeakByPurpose["neighbor_cache"],
				max(l.draw.Split.NeighborLists, 1)+l.draw.Parts.NumEdges*4)
		}
	}
	require.Positive(t, seen)
}

// TestListsAreCutFromWhatWasMeasured: where measuring has the neighbours in memory, lists are chosen and cached without
// reading them again.
func TestListsAreCutFromWhatWasMeasured(t *testing.T) {
	d := newDataset(6000, 400000).bySorted()
	s, o := d.store(t, ssd.OS), plain()
	o.Fanouts, o.Memory = []int64{3, 2}, 1000
	want := epochOf(t, open(t, d.graph(t), func() draw.Options { o := o; o.Memory = 0; return o }()), 0)
	seen := 0
	for o.Memory = leastMemory(t, draw.OpenStore(s), o); o.Memory < 8<<20; o.Memory += 100_000 {
		l := open(t, draw.OpenStore(s), o)
		all := packed.Bytes(l.draw.Parts.NumEdges, packed.Width(6000))
		if peak := l.Stats().PeakByPurpose["neighbor_cache"]; l.draw.Lists == nil || peak < all {
			continue
		}
		seen++
		require.Less(t, l.Stats().BytesRead, l.draw.Parts.NumEdges, "neighbours are read again with %d bytes", o.Memory)
		require.LessOrEqual(t, l.draw.Budget.Live()[mem.NeighborCache], l.draw.Split.NeighborLists)
		requireSame(t, want, epochOf(t, l, 0))
		require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
	}
	require.Positive(t, seen)
}

// TestSmallestMemoryWithLists: with lists of a size by name the smallest memory that is named works, and has
// them.
func TestSmallestMemoryWithLists(t *testing.T) {
	f := severalTypes().timed()
	g, s := f.graph(t), f.store(t, ssd.OS)
	for name, change := range map[string]func(o *draw.Options){
		"weighted":      func(o *draw.Options) { o.WeightAttr = "w" },
		"induced":       func(o *draw.Options) { o.Subgraph = sample.Induced },
		"bidirectional": func(o *draw.Options) { o.Subgraph = sample.Bidirectional },
		"times":         func(o *draw.Options) { o.TimeAttr, o.SeedTimes = "when", seedTimes(int64(len(o.Seeds))) },
		"links": func(o *draw.Options) {
			*o = f.forLinks(links.Options{Negatives: 2, Exclude: links.ExcludeLinks, Reverse: 1}, 0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := f.options()
			change(&o)
			want := epochOf(t, open(t, g, o), 0)
			o.NeighborCache, o.Memory, o.Workers, o.Cache = f.listBytes(t, s, o)/4, 1, 2, "degree"
			o.Memory = leastMemory(t, draw.OpenStore(s), o)
			l := open(t, draw.OpenStore(s), o)
			requireSame(t, want, epochOf(t, l, 0))
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
			require.NotEmpty(t, l.draw.Lists)
		})
	}
}

// errAfter is a context whose Err fails from the n-th look on.
type errAfter struct {
	context.Context
	looks chan struct{}
}

func (c errAfter) Err() error {
	select {
	case c.looks <- struct{}{}:
		return nil
	default:
		return context.Canceled
	}
}

// TestDamagedListsAreRefused: damage that is read while lists are cached is an error that says where, whether it makes
// ids impossible or only wrong.
func TestDamagedListsAreRefused(t *testing.T) {
	neighbors := func(e store.EdgeType) *store.Array { return e.Indices }
	numbers := func(e store.EdgeType) *store.Array { return e.EdgeIDs }
	for name, c := range map[string]struct {
		file   func(store.EdgeType) *store.Array
		damage []byte
	}{
		"impossible neighbour": {neighbors, []byte{255, 255, 255, 127}},
		"wrong neighbour":      {neighbors, []byte{1, 0, 0, 0}},
		"impossible number":    {numbers, []byte{255, 255, 255, 255}},
		"wrong number":         {numbers, []byte{1, 0, 0, 0}},
	} {
		for _, f := range forms(newDataset(3000, 40000)) {
			for _, checksums := range some(f, false, true) {
				t.Run(fmt.Sprintf("%s, %s, checksums %v", name, f, checksums), func(t *testing.T) {
					s, relation := f.store(t, ssd.OS), min(1, len(f.edges)-1)
					o := f.options()
					o.Cache, o.NeighborCache, o.Checksums = "degree", f.listBytes(t, s, o)/3, checksums
					l := open(t, draw.OpenStore(s), o)
					var at int64 // the first cached position
					for r := range l.draw.Lists[relation].Runs(0, f.edges[relation].EdgeIndex.Shape[1]) {
						at = r.From
						break
					}
					path := c.file(s.EdgeTypes()[relation]).Path
					require.NoError(t, os.Chmod(path, 0o600))
					file, err := os.OpenFile(path, os.O_WRONLY, 0)
					require.NoError(t, err)
					_, err = file.WriteAt(c.damage, at*4)
					require.NoError(t, err)
					require.NoError(t, file.Close())
					_, err = Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
					require.ErrorIs(t, err, store.ErrCorrupt)
					require.ErrorContains(t, err, path)
				})
			}
		}
	}
}

// TestOpenFailsAndStopsWhileListsAreCached: a read that fails, and a context that ends, at any point of opening leave
// nothing behind.
func TestOpenFailsAndStopsWhileListsAreCached(t *testing.T) {
	for _, f := range []*form{newDataset(3000, 60000).form(""), severalTypes()} {
		fs := faultfs.New(ssd.OS)
		s := f.store(t, fs)
		o := f.options()
		o.IO, o.Cache, o.NeighborCache = ssd.Pread, "degree", f.listBytes(t, s, o)/3
		failed, stopped := 0, 0
		for nth := 1; ; nth++ {
			fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: nth, Times: 1, Errno: syscall.EIO})
			l, err := Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
			fs.Clear()
			if err == nil {
				require.NoError(t, l.Close())
				break
			}
			require.ErrorIs(t, err, syscall.EIO)
			failed++
		}
		for ; ; stopped++ {
			l, err := Open(errAfter{context.Background(), make(chan struct{}, stopped)}, draw.OpenStore(s), o,
				mem.NewAllocator())
			if err == nil {
				require.NotEmpty(t, l.draw.Lists)
				require.NoError(t, l.Close())
				break
			}
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Greater(t, failed, 10)
		require.Greater(t, stopped, 10)
	}
}
