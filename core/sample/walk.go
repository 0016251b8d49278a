package sample

import (
	"fmt"
	"math"
	"sync/atomic"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// Walk finds the neighbours of a target in a hop by random walks (PinSAGE; FGNN, section 7.1) along one relation;
// Metapath generalizes it. Walks walks start at the target, and each takes Length steps, from a node to the source of
// one of its in-edges, all equally likely. Before each step but the first a walk returns to the target with probability
// Restart; at a node without in-edges it returns at once. A target without in-edges has no neighbours. The neighbours
// are the most visited nodes, up to the fanout, ties to the lower id, including the target if it was visited;
// Subgraph.Weight counts visits. The edges of such a batch are not edges of the graph: Subgraph.Pos is nil.
//
// Walk w of a target draws from stream absorb(stream of the target, w): before each step but the first a number that
// decides on the return, by its upper 53 bits below Restart, and then one below the degree of the current node.
type Walk struct {
	Walks, Length int64
	Restart       float64
}

const (
	// maxSteps bounds the steps of a target's walks, so that visits fit int32 and sorting one target takes milliseconds.
	// Arbitrary.
	maxSteps = 1 << 20
	// nodeBits leaves room for numbers up to maxSteps in a word. The offsets of more nodes would take 64 TiB.
	nodeBits = asm.VisitBits
	// walkersAtOnce is the number of walkers that a thread moves together, so that their cache misses overlap; with three
	// steps of 4 walks they take 72 KiB of a second-level cache. Arbitrary: several times a core's misses in flight.
	walkersAtOnce = 1024
	// stagesApart is the number of groups between two stages of a group: about ahead elements. Arbitrary beyond that.
	stagesApart = 6
	// walkersFetched is the number of walkers that move together if each step reads from disk, so that the read engine can
	// merge their requests.
	walkersFetched = 1 << 15
)

func (w Walk) check(hop int) error {
	switch {
	case w.Walks < 1 || w.Length < 1 || w.Walks > maxSteps || w.Length > maxSteps || w.Walks*w.Length > maxSteps:
		return fmt.Errorf("%d walks of length %d in hop %d, expected at least 1 of each and at most %d steps: %w",
			w.Walks, w.Length, hop, maxSteps, ErrConfig)
	case !(w.Restart >= 0 && w.Restart < 1):
		return fmt.Errorf("restart %v in hop %d, expected a probability in [0, 1): %w", w.Restart, hop, ErrConfig)
	}
	return nil
}

// walkersIn returns the number of walkers that move together, at least the walkers of one target.
func walkersIn(fetched bool, w Walk) int64 {
	if fetched {
		return max(walkersFetched, w.Walks)
	}
	return max(walkersAtOnce, w.Walks)
}

func walkerBytes(w Walk, n int64) int64 { return n*(6*8+8*w.Length) + 7*minBuffer }

// walker is the state of walkers that move together.
type walker struct {
	targets buffer[int64] // by walker: its target, counted from the first
	at      buffer[int64] // by walker: its current node
	state   buffer[uint64]
	pos     buffer[int64] // by walker: the in-edge that it takes
	next    buffer[int64] // by walker: the source of this edge
	ptr     buffer[int64] // 0, 1, 2, ..., for Fetch
	visits  buffer[int64] // Length nodes for each walker, grouped by target
	often   []int64
}

func (w *walker) free() {
	for _, b := range []*buffer[int64]{&w.targets, &w.at, &w.pos, &w.next, &w.ptr, &w.visits} {
		b.free()
	}
	w.state.free()
}

func (w *walker) grow(budget *mem.Budget, n, length int64) error {
	for _, b := range []*buffer[int64]{&w.targets, &w.at, &w.pos, &w.next} {
		if err := b.renew(budget, n); err != nil {
			return err
		}
	}
	if err := w.state.renew(budget, n); err != nil {
		return err
	}
	if have := int64(len(w.ptr.data)); have < n+1 {
		if err := w.ptr.renew(budget, n+1); err != nil {
			return err
		}
		for i := range w.ptr.data {
			w.ptr.data[i] = int64(i)
		}
	}
	return w.visits.renew(budget, n*length)
}

// walkHop finds the neighbours of a hop's targets by random walks.
type walkHop struct {
	hop  *hop
	walk Walk
}

// expand finds the neighbours of all targets. move moves the walkers of the targets lo to hi through all steps;
// fetching walks use one thread.
func (x *walkHop) expand(fetched bool, move func(k *walker, lo, hi int) error) error {
	h, w := x.hop, x.walk
	n := walkersIn(fetched, w)
	if fetched {
		return x.walkAll(&h.threads[0], n, 0, h.targets, move)
	}
	piece := int(max(1, n/w.Walks))
	units := (h.targets + piece - 1) / piece
	var taken atomic.Int64
	return h.share(&taken, units, func(t *thread) error {
		for {
			u := int(taken.Add(1)) - 1
			if u >= units {
				return nil
			}
			if err := x.walkAll(t, n, u*piece, min((u+1)*piece, h.targets), move); err != nil {
				return err
			}
		}
	})
}

// walkAll finds the neighbours of the targets lo to hi, with at most n walkers at a time.
func (x *walkHop) walkAll(t *thread, n int64, lo, hi int, move func(k *walker, lo, hi int) error) error {
	h, w := x.hop, x.walk
	if err := t.walker.grow(h.budget, n, w.Length); err != nil {
		return err
	}
	for lo < hi {
		if err := h.ctx.Err(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		end := min(hi, lo+int(max(1, n/w.Walks)))
		if err := move(&t.walker, lo, end); err != nil {
			return err
		}
		at := int64(0) // position in visits
		for i := lo; i < end; i++ {
			h.counts[i] = 0
			if h.spans.data[i].deg > 0 {
				steps := w.Walks * w.Length
				h.counts[i] = x.rank(&t.walker, i, t.walker.visits.data[at:at+steps])
				at += steps
			}
		}
		lo = end
	}
	return nil
}

// start places the walkers of the targets lo to hi at their targets and returns their number.
func (x *walkHop) start(k *walker, lo, hi int) (n int) {
	h := x.hop
	nodes, spans := h.expanded(h.first, h.first+h.targets), h.spans.data
	for i := lo; i < hi; i++ {
		if spans[i].deg == 0 {
			continue
		}
		s := absorb(uint64(h.key), uint64(nodes[i]))
		for walk := range x.walk.Walks {
			k.targets.data[n], k.at.data[n], k.state.data[n] = int64(i), nodes[i], absorb(s, uint64(walk))
			n++
		}
	}
	return n
}

// back returns the number below which a walker's number returns it: x < Restart * 2^53 for an integer x.
func (w Walk) back() uint64 { return uint64(math.Ceil(w.Restart * 0x1p53)) }

// moves moves n walkers together along one relation in memory. A step has three stages, each for a group of walkers at
// a time. The checks for dead ends in pathMoves would take 1.25 times as long.
type moves struct {
	relation *Relation
	spans    []span // by target
	k        *walker
	w        Walk
	from     []int64 // the targets
	back     uint64  // walkers with smaller numbers return
	n        int
}

// turn returns walkers to their targets and prefetches the spans of the walkers' nodes.
func (m *moves) turn(first int, step int64) {
	end := min(first+group, m.n)
	at, state := m.k.at.data[first:end], m.k.state.data[first:end]
	if step > 0 {
		targets := m.k.targets.data[first:end]
		for i := range at {
			x, s := stream(state[i]).next()
			state[i] = uint64(s)
			v := at[i]
			if home := m.from[targets[i]]; x>>11 < m.back {
				v = home
			}
			at[i] = v
		}
	}
	m.relation.Indptr.Prefetch(at)
}

// leave draws the in-edges that the walkers take and prefetches their sources.
func (m *moves) leave(first int) {
	end := min(first+group, m.n)
	at, state, pos := m.k.at.data[first:end], m.k.state.data[first:end], m.k.pos.data[first:end]
	g := m.relation
	for i, v := range at {
		start, stop := g.Indptr.Range(v)
		if start == stop { // return to the target, which has in-edges
			home := m.spans[m.k.targets.data[first+i]]
			at[i] = m.from[m.k.targets.data[first+i]]
			start, stop = home.start, home.start+home.deg
		}
		x, s := stream(state[i]).below(uint64(stop - start))
		pos[i], state[i] = start+int64(x), uint64(s)
	}
	asm.Prefetch(g.Indices32, pos)
	asm.Prefetch(g.Indices64, pos)
}

// arrive moves the walkers to the sources of their edges.
func (m *moves) arrive(first int, step int64) {
	end := min(first+group, m.n)
	at, pos := m.k.at.data[first:end], m.k.pos.data[first:end]
	if g := m.relation; g.Indices32 != nil {
		for i, p := range pos {
			at[i] = int64(g.Indices32[p])
		}
	} else {
		for i, p := range pos {
			at[i] = g.Indices64[p]
		}
	}
	visits := m.k.visits.data[int64(first)*m.w.Length+step:]
	for i, v := range at {
		visits[int64(i)*m.w.Length] = v
	}
}

// resident moves all walkers through all steps. The stages of a group are stagesApart groups apart, so that prefetched
// lines have arrived before they are used; a group takes its next step after all other groups.
func (m *moves) resident() {
	groups := (m.n + group - 1) / group
	apart := min(stagesApart, (groups-1)/2)
	total := groups * int(m.w.Length)
	for i := range total + 2*apart {
		if i < total {
			m.turn(i%groups*group, int64(i/groups))
		}
		if j := i - apart; j >= 0 && j < total {
			m.leave(j % groups * group)
		}
		if j := i - 2*apart; j >= 0 {
			m.arrive(j%groups*group, int64(j/groups))
		}
	}
}
