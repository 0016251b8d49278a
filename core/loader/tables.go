package loader

import (
	"sync"
	"time"

	"freshgo/core/cache"
	"freshgo/core/internal/guard"
	"freshgo/core/rows"
)

// table is a tensor where its rows were put: in memory as a whole, or on disk
// with some of its rows in the cache.
type table struct {
	tensor
	disk   *diskRows // nil when memory holds all rows
	cached int       // number among the tables of the row cache, or -1
}

// rowCache is what the executor needs of a cache: which rows it holds, and
// where. A policy that moves rows between batches stands behind the same calls.
type rowCache interface {
	Resolve(ids []int64, slots []int32) (hits int)
	Table(table int) []byte
}

// lookup is where the node rows of a batch are: the answer of the cache, shared
// by all tables of a batch, since a node is cached in all of them or in none.
type lookup struct {
	slots    []int32 // by row of the batch; -1: not cached
	missing  []int32 // rows of the batch that are not cached
	missIDs  []int64 // their nodes
	hitRows  []int32 // rows of the batch that are cached
	hitSlots []int32 // their slots
}

// lookupBytes is the scratch of a preparer, per row looked up: the fields of
// lookup and the read plan's sort keys, ranges and positions.
func lookupBytes(rows int64) int64 { return rows * (4 + 4 + 8 + 4 + 4 + 2*16 + 12 + 4 + 4) }

// resolve looks every node of a batch up, once for all tables.
func (k *lookup) resolve(l *Loader, ids []int64) {
	if !l.anyOnDisk {
		l.counters.hits.Add(int64(len(ids)))
		return
	}
	k.missing, k.missIDs = k.missing[:0], k.missIDs[:0]
	k.hitRows, k.hitSlots = k.hitRows[:0], k.hitSlots[:0]
	if l.rows == nil {
		for i := range ids {
			k.missing = append(k.missing, int32(i))
		}
		k.missIDs = append(k.missIDs, ids...)
	} else {
		k.slots = grown(k.slots, len(ids))
		l.rows.Resolve(ids, k.slots)
		for i, slot := range k.slots {
			if slot < 0 {
				k.missing = append(k.missing, int32(i))
				k.missIDs = append(k.missIDs, ids[i])
			} else {
				k.hitRows = append(k.hitRows, int32(i))
				k.hitSlots = append(k.hitSlots, slot)
			}
		}
	}
	l.counters.misses.Add(int64(len(k.missing)))
	l.counters.hits.Add(int64(len(ids) - len(k.missing)))
}

func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// gather writes the rows of ids into dst, densely and in order.
func (p *preparer) gather(t *table, ids []int64, dst []byte) error {
	l := p.loader
	if t.disk == nil {
		return p.timed(func() { l.gatherRows(dst, t.memory, t.width, ids) })
	}
	missing, missIDs := p.lookup.missing, p.lookup.missIDs
	if t.byEdge {
		missing, missIDs = nil, ids
	} else if len(p.lookup.hitRows) > 0 {
		err := p.timed(func() {
			rows.Copy(dst, p.lookup.hitRows, l.rows.Table(t.cached), p.lookup.hitSlots, t.width)
		})
		if err != nil {
			return err
		}
	}
	start := time.Now()
	defer since(&l.counters.reading, start)
	width := t.width
	return t.disk.read(p.epoch.ctx, &p.merger, missIDs, func(i int32, row []byte) error {
		if missing != nil {
			i = missing[i]
		}
		copy(dst[int(i)*width:], row)
		return nil
	})
}

// timed computes and counts the time as gathering.
func (p *preparer) timed(fn func()) error {
	return p.compute(func() {
		start := time.Now()
		fn()
		since(&p.loader.counters.gathering, start)
	})
}

// gatherRows copies rows of a table in memory. With a single preparer all threads
// share the work; with several, each works at a batch of its own.
func (l *Loader) gatherRows(dst, src []byte, width int, ids []int64) {
	threads := 1
	if l.split.prefetch <= 1 {
		threads = l.split.workers
	}
	share := (len(ids) + threads - 1) / threads
	if threads == 1 || share < minShare {
		rows.Gather(dst, src, width, ids)
		return
	}
	var done sync.WaitGroup
	for lo := 0; lo < len(ids); lo += share {
		hi := min(lo+share, len(ids))
		done.Add(1)
		guard.Go(func() {
			defer done.Done()
			rows.Gather(dst[lo*width:hi*width], src, width, ids[lo:hi])
		}, l.fail)
	}
	done.Wait()
}

// minShare is how many rows a thread must have before another is worth starting:
// a hand-over costs as much as copying about a hundred rows. Arbitrary above that.
const minShare = 4096

var _ rowCache = (*cache.Rows)(nil)
