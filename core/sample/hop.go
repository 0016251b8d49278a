package sample

import (
	"fmt"
	"sync"
	"sync/atomic"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/guard"
	"freshgo/core/packed"
)

const (
	// group is the number of elements that are prefetched at a time, between other work: a core has 10 to 50 lines in
	// flight, and a longer burst of prefetches only waits. With 32 the work took 1.1 times as long.
	group = 16
	// ahead is the distance of prefetches in elements. Their lines stay in a first-level cache of 32 KiB beside the lines
	// of the other stages; with 1024 the work took 1.2 times as long.
	ahead = 128
	// unitEdges is the approximate number of edges of a unit, for the same reason, and unitTargets the most targets.
	unitEdges   = 160
	unitTargets = 64
	// shortSpan is the number of elements that lie on two lines of a processor's cache at most, or nearly so.
	shortSpan = 16
	// pieceTargets is the number of spans that a thread looks up at a time. Arbitrary: a few microseconds.
	pieceTargets = 256
	// minThreadPieces is the least work for which a thread is started: starting takes a few microseconds, a piece three to
	// ten.
	minThreadPieces = 8
	// checkEdges is the number of edges between two checks of the context. Arbitrary: under a millisecond.
	checkEdges = 4096
)

// hop draws, loads and numbers the edges of one hop. It works in units of consecutive targets, and each unit passes
// through three stages. A thread does one stage of one unit at a time, so that the cache misses of a stage are served
// while the thread works on other units:
//
//	draw    finds positions in spans and prefetches their elements of the index array
//	load    loads the global ids at those positions
//	number  prefetches their entries of the id map and, some edges later, replaces them by local ids
//
// Any thread draws and loads any unit. Numbering follows the order of the edges, under a lock, so local ids do not
// depend on threads. No thread waits for the lock: if it is taken, the thread draws the next unit.
//
// Rejected: numbering in parallel with a concurrent map, and a second pass for the order. It pays from about four
// threads, which batches prepared side by side use better.
type hop struct {
	*batch
	number  int    // from 0
	first   int    // local id of the first target
	targets int    // their number
	k       int64  // fanout
	key     stream // of the hop, before the node is absorbed
	from    int64  // the hop's first edge in the batch
	pos     []int64
	row     []uint32

	// For hops with a method.
	sources []int64   // global ids, if the method has them already
	weight  []float32 // if the method weighs edges
	counts  []int64   // edges of each target

	perUnit, units int
	taken          atomic.Int64 // units whose draw has begun

	numbering sync.Mutex // guards the nodes of the source type and the fields below
	ready     int        // loaded units, in order
	asked     int64      // edges whose entries of the id map were prefetched
	numbered  int64      // edges numbered
	broken    bool       // numbering failed and must not resume
}

// setUnits divides the targets into units: all of them are loaded, or none.
func (h *hop) setUnits(loaded bool) {
	perTarget := max(1, len(h.row)/max(1, h.targets))
	h.perUnit = min(max(1, unitEdges/perTarget), unitTargets)
	h.units = (h.targets + h.perUnit - 1) / h.perUnit
	if len(h.loaded) < h.units {
		h.loaded = make([]atomic.Bool, h.units+h.units/2)
	}
	for u := range h.units {
		h.loaded[u].Store(loaded)
	}
}

// edges returns the range of unit u in pos and row.
func (h *hop) edges(u int) (int64, int64) {
	t0 := h.first + u*h.perUnit
	t1 := min(t0+h.perUnit, h.first+h.targets)
	return h.ptr.data[t0] - h.from, h.ptr.data[t1] - h.from
}

// drawUnit sets the positions of unit u, unless a method has, and prefetches their elements of indices, or of packed
// ones.
func drawUnit[I int32 | int64](h *hop, u int, t *thread, indices []I) error {
	if err := h.ctx.Err(); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if h.relation.method != nil {
		e0, e1 := h.edges(u)
		asm.Prefetch(indices, h.pos[e0:min(e1, e0+unitEdges)])
		return nil
	}
	t0 := u * h.perUnit
	spans := h.spans.data[t0:min(t0+h.perUnit, h.targets)]
	nodes := h.expanded(h.first+t0, h.first+h.targets)
	ptr := h.ptr.data[h.first+t0:]
	all, replace := h.k == All, h.relation.replace
	if h.relation.disjoint {
		drawTrees(h, u, t, indices)
		return nil
	}
	askShort(h, spans, indices)
	skipped := h.skipped.from(t0)
	for i, s := range spans {
		out := h.pos[ptr[i]-h.from : ptr[i+1]-h.from]
		draw(stream(absorb(uint64(h.key), uint64(nodes[i]))), s, all, replace, &t.set, out)
		skipped = h.skipped.over(skipped, t0+i, out)
	}
	for i, s := range spans {
		if s.deg > shortSpan {
			e0, e1 := ptr[i]-h.from, ptr[i+1]-h.from
			ask(h, h.pos[e0:min(e1, e0+unitEdges)], indices)
		}
	}
	return nil
}

// askShort prefetches both ends of the short spans of a unit, which have all their elements. A prefetch ends when its
// address is translated, by a walk through tables in memory where the array is large. So prefetches follow one another:
// among the work of draws a processor has room for two or three.
func askShort[I int32 | int64](h *hop, spans []span, indices []I) {
	var ends [2 * unitTargets]int64
	n := 0
	for _, s := range spans {
		if s.deg > 0 && s.deg <= shortSpan {
			ends[n], ends[n+1] = s.start, s.start+s.deg-1
			n += 2
		}
	}
	ask(h, ends[:n], indices)
}

// ask prefetches elements of indices, or of packed ones.
func ask[I int32 | int64](h *hop, at []int64, indices []I) {
	if h.relation.Packed != nil {
		h.relation.Packed.Prefetch(at)
	} else {
		asm.Prefetch(indices, at)
	}
}

// runResident draws a hop whose index array is in memory: indices, or where these are nil the packed ones of the
// relation. ids holds global ids until they are numbered; it may share the memory of h.row.
func runResident[I int32 | int64, T id](h *hop, indices []I, ids []T) error {
	h.setUnits(false)
	err := h.share(&h.taken, h.units, func(t *thread) error {
		for last := -1; ; {
			u := int(h.taken.Add(1)) - 1
			if u < h.units {
				if err := drawUnit(h, u, t, indices); err != nil {
					return err
				}
			}
			if last >= 0 {
				if err := load(h, last, indices, ids); err != nil {
					return err
				}
				h.loaded[last].Store(true)
				if err := tryNumber(h, ids); err != nil {
					return err
				}
			}
			if u >= h.units {
				return nil
			}
			last = u
		}
	})
	if err != nil {
		return err
	}
	return numberLoaded(h, ids, true)
}

// load loads the ids of unit u.
func load[I int32 | int64, T id](h *hop, u int, indices []I, ids []T) error {
	for e0, e1 := h.edges(u); e0 < e1; {
		stop := min(e0+checkEdges, e1)
		if stop < e1 {
			if err := h.ctx.Err(); err != nil {
				return fmt.Errorf("sample: %w", err)
			}
		}
		part := ids[e0:stop]
		if all := h.relation.Packed; all != nil {
			packed.Load(all, h.pos[e0:stop], part)
		} else {
			for i, p := range h.pos[e0:stop] {
				part[i] = T(indices[p])
			}
		}
		e0 = stop
	}
	if h.relation.disjoint {
		packTrees(h, u, ids)
	}
	return nil
}

// tryNumber numbers the loaded edges unless another thread does.
func tryNumber[T id](h *hop, ids []T) error {
	if !h.numbering.TryLock() {
		return nil
	}
	defer h.numbering.Unlock()
	return numberLoaded(h, ids, false)
}

// numberLoaded replaces global ids by local ids in the loaded units, except for the last ahead edges unless flush is
// set. The caller holds numbering or is the only thread.
func numberLoaded[T id](h *hop, ids []T, flush bool) error {
	if h.broken {
		return nil
	}
	for h.ready < h.units && h.loaded[h.ready].Load() {
		h.ready++
	}
	if h.ready == 0 {
		return nil
	}
	_, end := h.edges(h.ready - 1)
	s := h.source
	for {
		for stop := min(h.numbered+ahead, end); h.asked < stop; {
			next := min(h.asked+group, stop)
			prefetchIDs(&s.ids, ids[h.asked:next])
			h.asked = next
		}
		stop := min(h.numbered+group, end)
		if stop == h.numbered || h.asked-h.numbered < ahead && !flush {
			return nil
		}
		err := s.ids.reserve(s.nodes.data[:s.n], int(stop-h.numbered))
		if err == nil && h.numbered/checkEdges != stop/checkEdges {
			err = h.ctx.Err()
		}
		if err != nil {
			h.broken = true
			return fmt.Errorf("sample: %w", err)
		}
		s.n = number(&s.ids, s.nodes.data, s.n, ids[h.numbered:stop], h.row[h.numbered:stop])
		h.numbered = stop
	}
}

// runFetched draws a hop whose index array is on disk: all positions first, so that one Fetch serves the whole hop.
func runFetched(h *hop, from Adjacency, ids []int64) error {
	h.setUnits(false)
	for u := range h.units {
		if err := drawUnit(h, u, &h.threads[0], []int64(nil)); err != nil {
			return err
		}
	}
	end := h.first + h.targets
	drawn := Drawn{Targets: h.expanded(h.first, end), Ptr: h.ptr.data[h.first : end+1], Pos: h.pos}
	if err := h.fetch(from, drawn, ids); err != nil {
		return fmt.Errorf("sample: fetching %d neighbours: %w", len(h.pos), err)
	}
	h.setUnits(true)
	if h.relation.disjoint {
		for u := range h.units {
			packTrees(h, u, ids)
		}
	}
	return numberLoaded(h, ids, true)
}

// share runs work on the relation's threads, or on fewer if there are few pieces. Each takes pieces by taken.Add until
// none are left. It returns after all have ended, with the error of one of them; a panic counts as an error.
func (e *edgeSet) share(taken *atomic.Int64, pieces int, work func(t *thread) error) error {
	threads := min(len(e.threads), max(1, pieces/minThreadPieces))
	if threads == 1 {
		return work(&e.threads[0])
	}
	return guard.All(threads, func(i int) error {
		err := guard.Run(func() error { return work(&e.threads[i]) })
		if err != nil {
			taken.Store(int64(pieces)) // stop the other threads
		}
		return err
	})
}
