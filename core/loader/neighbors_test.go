package loader

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

// bySorted gives the dataset's edges in the order of their targets, so that its
// store needs no edge numbers.
func (d *dataset) bySorted() *dataset {
	slices.Sort(d.targets)
	return d
}

// listBytes is what all lists of the dataset's store take.
func (d *dataset) listBytes(widths ...int) int64 {
	total := cache.NeighborTableBytes(d.nodes)
	for _, width := range widths {
		total += int64(len(d.sources) * width)
	}
	return total
}

// onDisk keeps the topology on disk but for this many bytes of lists.
func onDisk(o Options, nBytes int64) Options {
	o.NeighborCache, o.Cache, o.FeatureCache = nBytes, "degree", Auto
	return o
}

// TestNeighborCacheChangesNoBatch is the metamorphic test of the neighbour cache:
// off, smaller than its address table, partial, full.
func TestNeighborCacheChangesNoBatch(t *testing.T) {
	for name, d := range map[string]*dataset{
		"edge numbers":    newDataset(3000, 40000),
		"no edge numbers": newDataset(2000, 30000).bySorted(),
		"mostly empty":    newDataset(9000, 4000),
	} {
		t.Run(name, func(t *testing.T) {
			s := d.store(t, ssd.OS)
			plainOptions := plain()
			plainOptions.Seed = explore.Seed(t, 5)
			want := epochOf(t, open(t, d.graph(t), plainOptions), 1)
			full := d.listBytes(4, 4)
			rng := explore.Rand(t, 1, uint64(d.nodes))
			for _, nBytes := range []int64{0, 1, cache.NeighborTableBytes(d.nodes), full / 20, full / 4, full / 2,
				full * 3 / 4} {
				o := onDisk(plainOptions, nBytes)
				o.Workers, o.Prefetch = 1+rng.IntN(8), rng.IntN(9)
				o.IO = []ssd.Kind{ssd.Auto, ssd.Pread, ssd.Buffered}[rng.IntN(3)]
				o.Checksums = rng.IntN(2) == 0
				l := open(t, OpenStore(s), o)
				requireSame(t, want, epochOf(t, l, 1))
				hits, misses := l.neighborCounts()
				require.Equal(t, l.Stats().Edges, hits+misses, "%d bytes, %d workers", nBytes, o.Workers)
				require.LessOrEqual(t, l.budget.Live()[mem.NeighborCache], nBytes)
			}
		})
	}
}

func TestNeighborCacheWithReplacementAndAllNeighbours(t *testing.T) {
	d := newDataset(1500, 20000)
	s := d.store(t, ssd.OS)
	for _, replace := range []bool{false, true} {
		o := plain()
		o.Fanouts, o.Replace = []int64{-1, 12, 2}, replace
		o.Seeds = []int64{3, 3, 900, 0, 1499, 3, 77}
		want := epochOf(t, open(t, d.graph(t), o), 0)
		requireSame(t, want, epochOf(t, open(t, OpenStore(s), onDisk(o, d.listBytes(4, 4)/3)), 0))
	}
}

// TestMoreListsReadLess: the more is cached, the fewer positions are read, down to
// nothing where all is.
func TestMoreListsReadLess(t *testing.T) {
	d := newDataset(4000, 50000)
	s := d.store(t, ssd.OS)
	full := d.listBytes(4, 4)
	last, lastBytes := int64(1<<60), int64(1<<60)
	for _, nBytes := range []int64{0, full / 10, full / 4, 2 * full / 5, 2*50000*4 - 1} {
		l := open(t, OpenStore(s), onDisk(plain(), nBytes))
		if nBytes == 2*50000*4-1 {
			// Neighbours alone would fit, but lists of both save more reads.
			require.False(t, l.split.Neighbors)
			require.True(t, l.parts.types.relations[0].EdgeIDs.Cached())
		}
		opened := l.Stats().BytesRead
		epochOf(t, l, 0)
		hits, misses := l.neighborCounts()
		require.Less(t, misses, last)
		require.LessOrEqual(t, l.Stats().BytesRead-opened, lastBytes)
		lastBytes = l.Stats().BytesRead - opened // of topology only: the rows are all in memory
		if nBytes > 0 && nBytes < full/2 {       // lists of neighbours
			// The cached lists are those wanted most often for what they cost.
			require.Greater(t, hits*int64(len(d.sources)), (hits+misses)*l.lists[0].Edges())
		}
		last = misses
	}
	l := open(t, OpenStore(s), onDisk(plain(), 2*50000*4))
	require.True(t, l.split.Neighbors && l.split.EdgeIDs)
	hits, misses := l.neighborCounts()
	require.Zero(t, hits+misses)
	epochOf(t, l, 0)
	hits, misses = l.neighborCounts()
	require.Zero(t, misses)
	require.Equal(t, l.Stats().Edges, hits)
}

// Damage that is read while lists are cached is an error that says where, whether
// it makes ids impossible or only wrong.
func TestDamagedListsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file   func(store.Topology) *store.Array
		damage []byte
	}{
		"impossible neighbour": {func(t store.Topology) *store.Array { return t.Indices }, []byte{255, 255, 255, 127}},
		"wrong neighbour":      {func(t store.Topology) *store.Array { return t.Indices }, []byte{1, 0, 0, 0}},
		"impossible number":    {func(t store.Topology) *store.Array { return t.EdgeIDs }, []byte{255, 255, 255, 255}},
		"wrong number":         {func(t store.Topology) *store.Array { return t.EdgeIDs }, []byte{1, 0, 0, 0}},
	} {
		for _, checksums := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, checksums %v", name, checksums), func(t *testing.T) {
				d := newDataset(3000, 40000)
				s := d.store(t, ssd.OS)
				path := c.file(s.Topology()).Path
				o := onDisk(plain(), d.listBytes(4, 4)/3)
				o.Checksums = checksums
				l := open(t, OpenStore(s), o)
				var at int64 // the first cached position
				for r := range l.lists[0].Runs(0, 40000) {
					at = r.From
					break
				}
				require.NoError(t, os.Chmod(path, 0o600))
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
}

func TestFailedReadsWhileListsAreCached(t *testing.T) {
	d := newDataset(3000, 60000)
	fs := faultfs.New(ssd.OS)
	s := d.store(t, fs)
	o := onDisk(plain(), d.listBytes(4, 4)/3)
	o.IO = ssd.Pread
	failed := 0
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
	require.Greater(t, failed, 10)
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

func TestOpenStopsWhileListsAreCached(t *testing.T) {
	d := newDataset(3000, 40000)
	s := d.store(t, ssd.OS)
	o := onDisk(plain(), d.listBytes(4, 4)/3)
	for n := 0; ; n++ {
		l, err := Open(errAfter{context.Background(), make(chan struct{}, n)}, OpenStore(s), o, mem.NewAllocator())
		if err == nil {
			require.NotNil(t, l.lists)
			require.NoError(t, l.Close())
			require.Greater(t, n, 10)
			return
		}
		require.ErrorIs(t, err, context.Canceled)
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
	want := epochOf(t, open(t, d.graph(t), func() Options { o := o; o.Memory = 0; return o }()), 0)
	_, err := Open(context.Background(), OpenStore(s), o, mem.NewAllocator())
	var tooSmall *mem.BudgetError
	require.ErrorAs(t, err, &tooSmall)
	seen := 0
	for o.Memory = tooSmall.Need; o.Memory < tooSmall.Need+6<<20; o.Memory += 500_000 {
		l := open(t, OpenStore(s), o)
		requireSame(t, want, epochOf(t, l, 0))
		require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
		if l.lists != nil && l.lists[0].Edges() > 0 {
			seen++
			require.LessOrEqual(t, l.Stats().PeakByPurpose["neighbor_cache"], max(l.split.NeighborLists, 1)+l.parts.numEdges*4)
		}
	}
	require.Positive(t, seen)
}
