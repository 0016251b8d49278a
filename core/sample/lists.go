package sample

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
	"freshgo/core/packed"
)

// chooser is a method that chooses among the in-edges of one target at a time.
type chooser interface {
	method
	// wants reports whether the method reads the sources and the weights of a list.
	wants() (ids, weights bool)
	// exact reports whether the method fills the whole room for edges, and returns the weights.
	exact() (*Weights, bool)
	// choose is method.expand for the targets lo to hi, whose lists are at the given spans of from.
	choose(t *thread, h *hop, lo, hi int, at []span, from *lists)
}

// lists holds in-edges with the inputs of a chooser: of the whole graph if it is in memory, or of some targets,
// fetched. It has ids32 or ids64 and, with weights, narrow or wide beside sums.
type lists struct {
	ids32  []int32
	ids64  []int64
	narrow []float32
	wide   []float64
	sums   []float64
}

const (
	// FetchedEdges is the number of edges of whole lists that are fetched at a time; a longer list is fetched alone.
	// Arbitrary: it gives a read engine hundreds of requests to sort, and the memory is 1.7 MB.
	FetchedEdges = 1 << 16
	// askedEdges is the number of edges of a list that are prefetched: most lists have fewer, and in longer ones the
	// processor detects the pattern.
	askedEdges = 64
	// askedTargets is the number of lists that are prefetched at a time, between other work; see group.
	askedTargets = 16
)

// fetched holds the memory for lists from disk.
type fetched struct {
	listPtr, listPos, listIDs buffer[int64]
	listSpans                 buffer[span]
	listWeights, listSums     buffer[float64]
}

// wholeLists lets a chooser draw a hop from the lists of its targets.
type wholeLists struct {
	hop         *hop
	chooser     chooser
	weights     *Weights
	exact       bool // see chooser
	ids, weighs bool // the chooser reads sources and weights
}

func (h *hop) wholeLists(c chooser) *wholeLists {
	l := &wholeLists{hop: h, chooser: c}
	l.weights, l.exact = c.exact()
	l.ids, l.weighs = c.wants()
	return l
}

// fetched reports whether the lists must be fetched.
func (l *wholeLists) fetched() bool {
	return fetches(&l.hop.relation.Relation, l.weights, l.ids, l.weighs)
}

// expand is method.expand of the chooser.
func (l *wholeLists) expand() error {
	if l.fetched() {
		return l.chooseFetched(0, l.hop.targets)
	}
	return l.chooseResident()
}

// fetches reports whether lists must be fetched.
func fetches(g *Relation, w *Weights, ids, weights bool) bool {
	return ids && g.Adjacency != nil || weights && w.Source != nil
}

// chooseResident works in units of targets as hop does: it prefetches the lists of one unit while it works on another.
func (l *wholeLists) chooseResident() error {
	h, from := l.hop, l.resident()
	units := (h.targets + unitTargets - 1) / unitTargets
	var taken atomic.Int64 // units taken by threads
	return h.share(&taken, units, func(t *thread) error {
		for last := -1; ; {
			u := int(taken.Add(1)) - 1
			if err := h.ctx.Err(); err != nil {
				return fmt.Errorf("sample: %w", err)
			}
			for i := 0; i < unitTargets; i += askedTargets {
				if u < units {
					l.ask(u*unitTargets+i, from)
				}
				if lo := last*unitTargets + i; last >= 0 && lo < h.targets {
					hi := min(lo+askedTargets, h.targets)
					l.chooser.choose(t, h, lo, hi, h.spans.data[lo:hi], from)
				}
			}
			if u >= units {
				return nil
			}
			last = u
		}
	})
}

// ask prefetches the lists of targets, from the first-th of the hop on.
func (l *wholeLists) ask(first int, from *lists) {
	h := l.hop
	for _, s := range h.spans.data[min(first, h.targets):min(first+askedTargets, h.targets)] {
		n := int(min(s.deg, askedEdges))
		if n == 0 {
			continue
		}
		if l.ids && from.ids32 != nil {
			asm.PrefetchRange(unsafe.Pointer(&from.ids32[s.start]), 4*n) // unsafe: the address of an element, only prefetched
		} else if l.ids {
			asm.PrefetchRange(unsafe.Pointer(&from.ids64[s.start]), 8*n) // unsafe: as above
		}
		if l.weighs && from.narrow != nil {
			asm.PrefetchRange(unsafe.Pointer(&from.narrow[s.start]), 4*n) // unsafe: as above
		} else if l.weighs {
			asm.PrefetchRange(unsafe.Pointer(&from.wide[s.start]), 8*n) // unsafe: as above
		}
		if l.weighs && s.deg > shortList {
			// unsafe: as above
			asm.PrefetchRange(unsafe.Pointer(&from.sums[s.start/sumBlock]), int(min(8*s.deg/sumBlock, 8*askedEdges)))
		}
	}
}

// exact returns the lists of a chooser that fills the whole room for edges from lists in memory, else nil.
func (h *hop) exact(m method) *wholeLists {
	c, ok := m.(chooser)
	if !ok {
		return nil
	}
	if l := h.wholeLists(c); l.exact && !h.relation.disjoint && !h.skipped.any() && !l.fetched() {
		return l
	}
	return nil
}

// resident returns all lists of a relation in memory.
func (l *wholeLists) resident() *lists {
	from := &lists{ids32: l.hop.relation.Indices32, ids64: l.hop.relation.Indices64}
	if w := l.weights; w != nil {
		from.narrow, from.wide, from.sums = w.Narrow, w.Wide, w.Sums
	}
	return from
}

// run makes a hop without gaps as runResident does, with an additional stage: prefetching lists, choosing edges,
// loading, numbering.
func (l *wholeLists) run() error {
	h, from := l.hop, l.resident()
	switch {
	case l.chooser.gives().ids:
		return runChosen(l, from, []int32(nil), h.sources)
	case from.ids32 != nil:
		return runChosen(l, from, from.ids32, h.row)
	}
	if err := h.wide.grow(h.budget, mem.Trace, int64(len(h.row)), 0); err != nil {
		return err
	}
	return runChosen(l, from, from.ids64, h.wide.data[:len(h.row)])
}

// runChosen is run. It loads from indices, or if that is nil, the chooser sets ids.
func runChosen[I int32 | int64, T id](l *wholeLists, from *lists, indices []I, ids []T) error {
	h := l.hop
	h.setUnits(false)
	err := h.share(&h.taken, h.units, func(t *thread) error {
		for chosen, asked := -1, -1; ; { // units that have passed each stage
			u := int(h.taken.Add(1)) - 1
			if err := h.ctx.Err(); err != nil {
				return fmt.Errorf("sample: %w", err)
			}
			for i := 0; i < h.perUnit; i += askedTargets {
				if u < h.units {
					l.ask(u*h.perUnit+i, from)
				}
				if lo := asked*h.perUnit + i; asked >= 0 && lo < h.targets {
					hi := min(lo+askedTargets, (asked+1)*h.perUnit, h.targets)
					l.chooser.choose(t, h, lo, hi, h.spans.data[lo:hi], from)
				}
			}
			if asked >= 0 && indices != nil {
				e0, e1 := h.edges(asked)
				asm.Prefetch(indices, h.pos[e0:min(e1, e0+2*unitEdges)])
			}
			if chosen >= 0 {
				if indices != nil {
					if err := load(h, chosen, indices, ids); err != nil {
						return err
					}
				}
				h.loaded[chosen].Store(true)
				if err := tryNumber(h, ids); err != nil {
					return err
				}
			}
			chosen, asked = asked, u
			if u >= h.units {
				if asked = -1; chosen < 0 {
					return nil
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return numberLoaded(h, ids, true)
}

// chooseFetched fetches the lists of the targets lo to hi, as many at a time as the memory allows, and chooses from
// them. A list with a negative degree counts as empty.
func (l *wholeLists) chooseFetched(lo, hi int) error {
	h := l.hop
	n := int64(h.targets)
	if err := reserve(h.budget, room{&h.listPtr, n + 1, 0}, room{&h.listSpans, n, 0}); err != nil {
		return err
	}
	spans := h.spans.data[:h.targets]
	for i := lo; i < hi; {
		if err := h.ctx.Err(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		end, total := i, int64(0)
		for ; end < hi; end++ {
			deg := max(0, spans[end].deg)
			if end > i && total+deg > FetchedEdges {
				break
			}
			h.listPtr.data[end-i] = total
			total += deg
		}
		ptr := h.listPtr.data[:end-i+1]
		ptr[end-i] = total
		from, err := l.fetch(i, end, ptr)
		if err != nil {
			return err
		}
		at := h.listSpans.data[:end-i]
		for j := range at {
			at[j] = span{start: ptr[j], deg: ptr[j+1] - ptr[j]}
		}
		l.chooser.choose(&h.threads[0], h, i, end, at, from)
		i = end
	}
	return nil
}

// fetch fetches the lists of the targets i to end one after another; ptr has their bounds.
func (l *wholeLists) fetch(i, end int, ptr []int64) (*lists, error) {
	h := l.hop
	total := ptr[end-i]
	if err := h.listPos.renew(h.budget, total); err != nil {
		return nil, err
	}
	pos := h.listPos.data[:total]
	for j, s := range h.spans.data[i:end] {
		for e := range s.deg {
			pos[ptr[j]+e] = s.start + e
		}
	}
	drawn := Drawn{Targets: h.expanded(h.first+i, h.first+end), Ptr: ptr, Pos: pos}
	from := new(lists)
	if l.ids {
		if err := h.listIDs.renew(h.budget, total); err != nil {
			return nil, err
		}
		from.ids64 = h.listIDs.data[:total]
		if err := h.relation.Relation.fetch(h.ctx, drawn, from.ids64); err != nil {
			return nil, fmt.Errorf("sample: fetching lists of %d neighbours: %w", total, err)
		}
	}
	if !l.weighs {
		return from, nil
	}
	if err := h.listWeights.renew(h.budget, total); err != nil {
		return nil, err
	}
	if err := h.listSums.renew(h.budget, SumsLen(total)); err != nil {
		return nil, err
	}
	from.wide, from.sums = h.listWeights.data[:total], h.listSums.data[:SumsLen(total)]
	if err := l.weights.fetch(h.ctx, drawn, from.wide); err != nil {
		return nil, fmt.Errorf("sample: fetching %d weights: %w", total, err)
	}
	for j := range end - i {
		sumBlocks(from.wide[ptr[j]:ptr[j+1]], ptr[j], from.sums)
	}
	return from, nil
}

// fetch is Adjacency.Fetch for any relation.
func (r *Relation) fetch(ctx context.Context, d Drawn, out []int64) error {
	switch {
	case r.Adjacency != nil:
		return inPieces(d, out, func(d Drawn, out []int64) error { return r.Adjacency.Fetch(ctx, d, out) })
	case r.Indices32 != nil:
		for i, p := range d.Pos {
			out[i] = int64(r.Indices32[p])
		}
	case r.Packed != nil:
		packed.Load(r.Packed, d.Pos, out)
	default:
		for i, p := range d.Pos {
			out[i] = r.Indices64[p]
		}
	}
	return nil
}

// fetchedBytes returns the memory of a Worker for fetched lists.
func fetchedBytes(r *relation, d size, w *Weights, ids, weights bool) int64 {
	if !fetches(&r.Relation, w, ids, weights) {
		return 0
	}
	n := max(FetchedEdges, r.widest)
	each := int64(8)
	if ids {
		each += 8
	}
	total := (8+16)*(d.nodes+1) + each*n
	if weights {
		total += 8*n + 8*SumsLen(n)
	}
	return total + 6*minBuffer
}
