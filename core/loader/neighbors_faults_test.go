package loader

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

// TestHeteroListsWithinTheBudget: memory given as a whole, from the smallest that works on: batches are right, the
// limit holds, and lists take the place of what does not fit whole.
func TestHeteroListsWithinTheBudget(t *testing.T) {
	d := severalTypes()
	for i, scale := range []int64{60, 40} { // so that topology is much beside a batch
		e := &d.edges[i]
		rng := rand.New(rand.NewPCG(uint64(i), 6))
		of := [2]int64{d.counts[i], d.counts[1-i]}
		var ends [2][]int64
		for range 4000 * scale {
			u := rng.Float64()
			ends[0] = append(ends[0], int64(float64(of[0])*u*u*u))
			ends[1] = append(ends[1], rng.Int64N(of[1]))
		}
		e.EdgeIndex, e.Tensors = store.Dense(manifest.DType_INT64, []int64{2, 4000 * scale},
			littleEndian(append(ends[0], ends[1]...))), nil
	}
	g, s := d.graph(t), d.store(t, ssd.OS)
	for name, change := range map[string]func(o *Options){
		"uniform": func(*Options) {},
		"labor":   func(o *Options) { o.Labor = &sample.Labor{BatchDependency: 1} },
		"walks":   func(o *Options) { *o = d.walked() },
	} {
		t.Run(name, func(t *testing.T) {
			o := d.options()
			change(&o)
			o.Workers, o.Prefetch = 2, 1
			want := epochOf(t, open(t, g, o), 0)
			seen := 0
			for _, o.Cache = range []string{"degree", "auto"} {
				o.Memory = 1
				_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
				var short *mem.BudgetError
				require.ErrorAs(t, err, &short)
				for o.Memory = short.Need; o.Memory < short.Need+5<<20; o.Memory += 1_700_000 {
					l := open(t, OpenStore(s), o)
					requireSame(t, want, epochOf(t, l, 0))
					require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
					if hits, misses := l.neighborCounts(); len(l.lists) > 0 && hits > 0 && misses > 0 {
						seen++
					}
				}
			}
			require.Positive(t, seen)
		})
	}
}

// TestSmallestMemoryWithHeteroLists: with lists of a size by name the smallest memory that is named works, and has
// them.
func TestSmallestMemoryWithHeteroLists(t *testing.T) {
	d := severalTypes().timed()
	g, s := d.graph(t), d.store(t, ssd.OS)
	for name, change := range map[string]func(o *Options){
		"weighted":      func(o *Options) { o.WeightAttr = "w" },
		"induced":       func(o *Options) { o.Subgraph = sample.Induced },
		"bidirectional": func(o *Options) { o.Subgraph = sample.Bidirectional },
		"times":         func(o *Options) { o.TimeAttr, o.SeedTimes = "when", seedTimes(int64(len(o.Seeds))) },
		"links": func(o *Options) {
			*o = d.forLinks(links.Options{Negatives: 2, Exclude: links.ExcludeLinks, Reverse: 1}, 0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := d.options()
			change(&o)
			want := epochOf(t, open(t, g, o), 0)
			o.NeighborCache, o.Memory, o.Workers, o.Cache = d.listBytes(t, s, o)/4, 1, 2, "degree"
			_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
			var short *mem.BudgetError
			require.ErrorAs(t, err, &short)
			o.Memory = short.Need
			l := open(t, OpenStore(s), o)
			requireSame(t, want, epochOf(t, l, 0))
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
			require.NotEmpty(t, l.lists)
		})
	}
}

// TestDamagedHeteroListsAreRefused: damage that is read while lists are cached is an error that says where.
func TestDamagedHeteroListsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file   func(e store.EdgeType) *store.Array
		damage []byte
	}{
		"impossible neighbour": {func(e store.EdgeType) *store.Array { return e.Indices }, []byte{255, 255, 255, 127}},
		"wrong neighbour":      {func(e store.EdgeType) *store.Array { return e.Indices }, []byte{1, 0, 0, 0}},
		"wrong number":         {func(e store.EdgeType) *store.Array { return e.EdgeIDs }, []byte{1, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			d := severalTypes()
			s := d.store(t, ssd.OS)
			o := d.options()
			o.Cache, o.NeighborCache = "degree", d.listBytes(t, s, o)/3
			l := open(t, OpenStore(s), o)
			at, path := int64(-1), c.file(s.EdgeTypes()[1]).Path
			for r := range l.lists[1].Runs(0, 6000) {
				at = r.From
				break
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt(c.damage, at*4)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			_, err = Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
			require.ErrorIs(t, err, store.ErrCorrupt)
			require.ErrorContains(t, err, path)
		})
	}
}

// TestOpenFailsAndStopsWhileHeteroListsAreCached: a read that fails, and a context that ends, at any point of opening
// leave nothing behind.
func TestOpenFailsAndStopsWhileHeteroListsAreCached(t *testing.T) {
	d := severalTypes()
	fs := faultfs.New(ssd.OS)
	s := d.store(t, fs)
	o := d.options()
	o.IO, o.Cache, o.NeighborCache = ssd.Pread, "degree", d.listBytes(t, s, o)/3
	failed, stopped := 0, 0
	for nth := 1; ; nth++ {
		fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: nth, Times: 1, Errno: syscall.EIO})
		l, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
		fs.Clear()
		if err == nil {
			require.NoError(t, l.Close())
			break
		}
		require.ErrorIs(t, err, syscall.EIO)
		failed++
	}
	for ; ; stopped++ {
		l, err := Open(errAfter{context.Background(), make(chan struct{}, stopped)}, OpenStore(s), o, mem.NewAllocator())
		if err == nil {
			require.NotEmpty(t, l.lists)
			require.NoError(t, l.Close())
			break
		}
		require.True(t, errors.Is(err, context.Canceled), err)
	}
	require.Greater(t, failed, 15)
	require.Greater(t, stopped, 15)
}
