package loader

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// readsTogether returns the options of a planned loader whose batches share their reads of lists.
func (f *form) readsTogether(lists int64) draw.Options {
	o := f.options()
	o.Cache, o.FeatureCache, o.NeighborCache, o.IO = "belady", rowsFor(300), lists, ssd.Pread
	return o
}

// TestListsAreReadTogether compares batches that share reads of neighbour lists with batches of the graph in memory,
// and counts what they read against batches that read by themselves.
func TestListsAreReadTogether(t *testing.T) {
	for _, f := range forms(newDataset(3000, 200_000)) {
		fs, reads := faultfs.New(ssd.OS), new(atomic.Int64)
		g, s := f.graph(t), f.store(t, fs)
		// A read that is short by nothing, and counted.
		fs.Arm(faultfs.Fault{Op: faultfs.Read, Path: "*indices*", Nth: 1, Times: faultfs.Forever, Short: 1 << 30,
			Hook: func() { reads.Add(1) }})
		for name, change := range map[string]func(o *draw.Options){
			"uniform":  func(*draw.Options) {},
			"replace":  func(o *draw.Options) { o.Replace = true },
			"disjoint": func(o *draw.Options) { o.Disjoint = true },
			"labor":    func(o *draw.Options) { o.Sampler = &sample.Labor{BatchDependency: 1} }, // of whole lists: apart
		} {
			for _, lists := range few(f, 0, f.listBytes(t, s, f.options())/3) {
				t.Run(fmt.Sprintf("%s, %s, %d", name, f, lists), func(t *testing.T) {
					o := f.options()
					change(&o)
					reference := open(t, g, o)
					o = f.readsTogether(lists)
					change(&o)
					perEdge := map[bool]float64{} // reads, of each neighbour that is read
					for _, onDemand := range []bool{false, true} {
						l := open(t, draw.OpenStore(s), o)
						require.Positive(t, l.draw.Split.Together)
						if onDemand {
							l.draw.Split.Together = 0
						}
						opened := reads.Load()
						for epoch := range int64(2) {
							requireSame(t, epochOf(t, reference, epoch), epochOf(t, l, epoch))
						}
						l.Stop()
						l.cache.stop()
						_, misses := l.draw.NeighborCounts(l.counters.Edges.Load())
						require.Positive(t, misses)
						perEdge[onDemand] = float64(reads.Load()-opened) / float64(misses)
					}
					if name != "labor" {
						require.Less(t, 2*perEdge[false], perEdge[true])
					}
				})
			}
		}
	}
}

// TestEndsOfLinksAreReadTogether counts the reads of batches whose ends and negatives are looked up in lists.
func TestEndsOfLinksAreReadTogether(t *testing.T) {
	f := newDataset(3000, 20_000).form("")
	fs, reads := faultfs.New(ssd.OS), new(atomic.Int64)
	fs.Arm(faultfs.Fault{Op: faultfs.Read, Path: "*indices*", Nth: 1, Times: faultfs.Forever, Short: 1 << 30,
		Hook: func() { reads.Add(1) }})
	s := f.store(t, fs)
	o := f.options()
	o.Seeds, o.BatchSize, o.Links = nil, 1000, &links.Options{Negatives: 1, Strict: true}
	want := epochOf(t, open(t, f.graph(t), o), 0)
	planned := f.readsTogether(0)
	planned.Seeds, planned.BatchSize, planned.Links = nil, o.BatchSize, o.Links
	var took []int64
	for _, onDemand := range []bool{false, true} {
		l := open(t, draw.OpenStore(s), planned)
		require.Positive(t, l.draw.Split.Together)
		if onDemand {
			l.draw.Split.Together = 0
		}
		before := reads.Load()
		requireSame(t, want, epochOf(t, l, 0))
		l.Stop()
		l.cache.stop()
		took = append(took, reads.Load()-before)
	}
	require.Less(t, 2*took[0], took[1])
}

// TestReadingTogetherFails lets one read of neighbours after the other fail, then all: batches for which nothing was
// read read it themselves, and only what they cannot read is an error.
func TestReadingTogetherFails(t *testing.T) {
	f := newDataset(3000, 60_000).form("")
	want := epochOf(t, open(t, f.graph(t), f.options()), 0)
	fs := faultfs.New(ssd.OS)
	s := f.store(t, fs)
	fault := faultfs.Fault{Op: faultfs.Read, Path: filepath.Base(s.EdgeTypes()[0].Indices.Path), Errno: syscall.EIO}
	o := f.readsTogether(0)
	survived := 0
	for fault.Nth = 1; fault.Nth < 60; fault.Nth += 1 + fault.Nth/5 {
		fault.Times = 1
		l := open(t, draw.OpenStore(s), o)
		acted := new(atomic.Bool)
		fault.Hook = func() { acted.Store(true) }
		fs.Arm(fault)
		got, err := restOr(t, l)
		fs.Clear()
		if err != nil { // the first batch reads by itself
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorContains(t, err, "batch 0 ")
			continue
		}
		requireSame(t, want, got)
		if acted.Load() {
			survived++
		}
	}
	require.Positive(t, survived)
	fault.Nth, fault.Times, fault.Hook = 3, faultfs.Forever, nil
	l := open(t, draw.OpenStore(s), o)
	fs.Arm(fault)
	defer fs.Clear()
	_, err := restOr(t, l)
	require.ErrorIs(t, err, syscall.EIO)
}

// restOr makes epoch 0 of a loader, or returns the error that ends it.
func restOr(t *testing.T, l *Loader) (got []*seen, err error) {
	t.Helper()
	require.NoError(t, l.Start(0, 0, Train))
	return left(l)
}
