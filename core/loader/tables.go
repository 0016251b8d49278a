package loader

import (
	"sync"

	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/rows"
)

// table is a tensor where its rows were put: in memory as a whole, or on disk
// with some of its rows in the cache.
type table struct {
	tensor
	index  int         // in Loader.tables and among the tensors
	disk   *graph.Rows // nil when memory holds all rows
	cached int         // its column of the cache, among the node tables on disk of its type
}

// share splits count rows among the threads that may work at one batch: one
// when several batches are prepared at a time, all otherwise.
func (l *Loader) share(count int, fn func(lo, hi int)) {
	threads := 1
	if l.split.Prefetch <= 1 {
		threads = l.split.Workers
	}
	l.among(threads, count, fn)
}

func (l *Loader) among(threads, count int, fn func(lo, hi int)) {
	share := (count + threads - 1) / threads
	if threads == 1 || share < minShare {
		fn(0, count)
		return
	}
	var done sync.WaitGroup
	for lo := 0; lo < count; lo += share {
		done.Add(1)
		guard.Go(func() {
			defer done.Done()
			fn(lo, min(lo+share, count))
		}, l.fail)
	}
	done.Wait()
}

// gatherRows copies rows of a table in memory.
func (l *Loader) gatherRows(dst, src []byte, width int, ids []int64) {
	l.share(len(ids), func(lo, hi int) { rows.Gather(dst[lo*width:hi*width], src, width, ids[lo:hi]) })
}

// copyRows copies rows between tables in memory. All threads share the work where
// the batches take turns at the cache.
func (l *Loader) copyRows(dst []byte, to []int32, src []byte, from []int32, width int) {
	piece := func(lo, hi int) { rows.Copy(dst, to[lo:hi], src, from[lo:hi], width) }
	if l.changing() {
		l.among(l.split.Workers, len(to), piece)
		return
	}
	l.share(len(to), piece)
}

// minShare is how many rows a thread must have before another is worth starting:
// a hand-over costs as much as copying about a hundred rows. Arbitrary above that.
const minShare = 4096
