package sample

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/internal/asm"
)

// Metapath finds neighbours by walks along edge types (PinSAGE on a graph of users and items; DGL's PinSAGESampler),
// instead of draws along one type.
//
// Path lists relations of the Graph by number, each followed from target to source. It leads from nodes of the type
// that the first relation ends at, the targets, to nodes of the type that the last relation begins at, the sources.
// Length of a Walk counts passes through the path, Restart is the probability of returning to the target before each
// pass but the first, and the end of each pass is visited. If Length exceeds 1, sources and targets are of one type. A
// walk that reaches a node without in-edges returns to the target: at once if it is at the start of a pass, otherwise
// with the next pass, and this pass visits nothing. A metapath of one relation is a Walk.
//
// A walk draws its numbers as Walk says: one for each return, and for each relation one below the degree of the current
// node.
type Metapath struct {
	Path  []int
	Walks []Walk // by hop
}

// metapath draws by walks along relations.
type metapath struct {
	walks   []Walk // by hop
	path    []Relation
	fetched bool // one of the relations is on disk
}

var walks = Kind{
	Name: "random walks",
	For:  CanWalks,
	Else: "neighbours are the nodes that walks visit most, not drawn edges: give num_neighbors numbers to have it",
	Can:  CanTypes | CanWalks | CanMetapaths | CanLinks | CanTranspose | CanDisk | CanEdgeWeight,
}

// walk makes r a metapath, from its sources to its targets.
func (r *relation) walk(g *Graph, of Metapath, hops int) error {
	m, repeated := metapath{walks: slices.Clone(of.Walks)}, false
	if len(of.Walks) != hops {
		return fmt.Errorf("walks for %d hops, expected %d as there are fanouts: %w", len(of.Walks), hops, ErrConfig)
	}
	for hop, w := range of.Walks {
		if err := w.check(hop); err != nil {
			return err
		}
		repeated = repeated || w.Length > 1
		r.steps = append(r.steps, w.Walks*w.Length*int64(len(of.Path)))
	}
	if len(of.Path) == 0 {
		return fmt.Errorf("no relations, expected one at least: %w", ErrConfig)
	}
	source := 0
	for i, place := range of.Path {
		if place < 0 || place >= len(g.Relations) {
			return fmt.Errorf("step %d is relation %d, expected one of %d: %w", i, place, len(g.Relations), ErrConfig)
		}
		step := g.Relations[place]
		if err := step.check(g); err != nil {
			return fmt.Errorf("relation %d: %w", place, err)
		}
		if i > 0 && source != step.Target {
			return fmt.Errorf("it does not connect: step %d leads to nodes of type %d, and step %d, relation %d, "+
				"from type %d: %w",
				i-1, source, i, place, step.Target, ErrConfig)
		}
		m.path = append(m.path, step)
		m.fetched = m.fetched || step.Adjacency != nil
		source = step.Source
	}
	if target := m.path[0].Target; repeated && source != target {
		return fmt.Errorf("it leads from nodes of type %d to type %d and so cannot be walked twice: %w",
			target, source, ErrConfig)
	}
	r.Relation, r.method = m.path[0], m
	r.Source = source
	return nil
}

func (m metapath) most(hop int, deg, k int64) int64 {
	if deg == 0 {
		return 0
	}
	n := m.walks[hop].Walks * m.walks[hop].Length
	if k == All {
		return n
	}
	return min(k, n)
}

func (m metapath) scratch(int, int64, int64) (set, entries int64) { return 0, 0 }
func (m metapath) gives() gives                                   { return gives{ids: true, weight: true} }
func (m metapath) once() bool                                     { return false }

func (m metapath) bytes(*relation, size) (most int64) {
	for _, w := range m.walks {
		most = max(most, walkerBytes(w, walkersIn(m.fetched, w)))
	}
	return most
}

func (m metapath) expand(h *hop) error {
	w := m.walks[h.number]
	walks := walkHop{hop: h, walk: w}
	return walks.expand(m.fetched, func(k *walker, lo, hi int) error {
		from, n := h.expanded(h.first, h.first+h.targets), walks.start(k, lo, hi)
		if len(m.path) == 1 && !m.fetched {
			one := moves{relation: &h.relation.Relation, spans: h.spans.data, k: k, w: w, from: from, back: w.back(), n: n}
			one.resident()
			return nil
		}
		p := pathMoves{spans: h.spans.data, k: k, w: w, path: m.path, from: from, back: w.back(), n: n}
		if m.fetched {
			return p.fetch(h.ctx)
		}
		p.resident()
		return nil
	})
}

// pathMoves moves n walkers together along a metapath, in the stages of moves. The target of a walker that has reached
// a dead end is complemented; it stands at node 0 of whatever type.
type pathMoves struct {
	spans []span // by target
	k     *walker
	w     Walk
	path  []Relation
	from  []int64 // the targets
	back  uint64
	n     int
}

// steps returns the number of steps that each walker takes.
func (m *pathMoves) steps() int { return int(m.w.Length) * len(m.path) }

// turn begins a pass, and prefetches the spans of the walkers' nodes.
func (m *pathMoves) turn(first, step int) {
	end := min(first+group, m.n)
	at, targets := m.k.at.data[first:end], m.k.targets.data[first:end]
	if step > 0 && step%len(m.path) == 0 {
		state := m.k.state.data[first:end]
		for i, t := range targets {
			x, s := stream(state[i]).next()
			state[i] = uint64(s)
			if ended := t < 0; ended || x>>11 < m.back {
				targets[i] = max(t, ^t)
				at[i] = m.from[targets[i]]
			}
		}
	}
	m.path[step%len(m.path)].Indptr.Prefetch(at)
}

// leave draws the edges that the walkers take and prefetches their sources.
func (m *pathMoves) leave(first, step int) {
	end := min(first+group, m.n)
	at, targets := m.k.at.data[first:end], m.k.targets.data[first:end]
	state, pos := m.k.state.data[first:end], m.k.pos.data[first:end]
	relation := step % len(m.path)
	g := &m.path[relation]
	for i, t := range targets {
		if pos[i] = 0; t < 0 {
			continue
		}
		start, stop := g.Indptr.Range(at[i])
		if start == stop {
			if relation > 0 {
				targets[i], at[i] = ^t, 0
				continue
			}
			home := m.spans[t] // has edges
			at[i] = m.from[t]
			start, stop = home.start, home.start+home.deg
		}
		x, s := stream(state[i]).below(uint64(stop - start))
		pos[i], state[i] = start+int64(x), uint64(s)
	}
	asm.Prefetch(g.Indices32, pos)
	asm.Prefetch(g.Indices64, pos)
}

// arrive moves the walkers to the sources of their edges.
func (m *pathMoves) arrive(first, step int) {
	end := min(first+group, m.n)
	at, targets, pos := m.k.at.data[first:end], m.k.targets.data[first:end], m.k.pos.data[first:end]
	g := &m.path[step%len(m.path)]
	for i, t := range targets {
		switch {
		case t < 0:
		case g.Indices32 != nil:
			at[i] = int64(g.Indices32[pos[i]])
		default:
			at[i] = g.Indices64[pos[i]]
		}
	}
	m.visit(first, end, step)
}

// visit records where the pass ends, or -1 for a pass that did not reach its end.
func (m *pathMoves) visit(first, end, step int) {
	if (step+1)%len(m.path) != 0 {
		return
	}
	time := int64(step / len(m.path))
	for i := first; i < end; i++ {
		v := m.k.at.data[i]
		if m.k.targets.data[i] < 0 {
			v = -1
		}
		m.k.visits.data[int64(i)*m.w.Length+time] = v
	}
}

// resident moves all walkers through all their steps; see moves.resident.
func (m *pathMoves) resident() {
	groups := (m.n + group - 1) / group
	apart := min(stagesApart, (groups-1)/2)
	total := groups * m.steps()
	for i := range total + 2*apart {
		if i < total {
			m.turn(i%groups*group, i/groups)
		}
		if j := i - apart; j >= 0 && j < total {
			m.leave(j%groups*group, j/groups)
		}
		if j := i - 2*apart; j >= 0 {
			m.arrive(j%groups*group, j/groups)
		}
	}
}

// fetch moves them step by step. Walkers at a dead end request no edge.
func (m *pathMoves) fetch(ctx context.Context) error {
	at, pos, next, ptr := m.k.at.data[:m.n], m.k.pos.data[:m.n], m.k.next.data[:m.n], m.k.ptr.data[:m.n+1]
	for step := range m.steps() {
		for first := 0; first < m.n; first += group {
			m.turn(first, step)
			m.leave(first, step)
		}
		moving := 0
		for i, t := range m.k.targets.data[:m.n] {
			ptr[i] = int64(moving)
			if t >= 0 {
				pos[moving] = pos[i]
				moving++
			}
		}
		ptr[m.n] = int64(moving)
		if moving > 0 {
			g := &m.path[step%len(m.path)]
			if err := g.fetch(ctx, Drawn{Targets: at, Ptr: ptr, Pos: pos[:moving]}, next[:moving]); err != nil {
				return fmt.Errorf("sample: fetching step %d of %d walks: %w", step, m.n, err)
			}
		}
		for i := range at {
			if ptr[i] < ptr[i+1] {
				at[i] = next[ptr[i]]
			}
		}
		m.visit(0, m.n, step)
	}
	return nil
}
