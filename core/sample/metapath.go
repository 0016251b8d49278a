package sample

import (
	"fmt"
	"slices"

	"freshgo/core/internal/asm"
)

// MetapathConfig says how neighbours are found by walks along types of edges (PinSAGE on a graph of users and items; DGL's
// PinSAGESampler).
//
// Metapath is relations of a HeteroGraph, by place, each walked against its edges, from a target to a source. It leads from
// nodes of the type that the first relation ends at back to nodes of that type, which are the seeds, the neighbours and so all
// nodes of a batch. Length of a Walk counts how often it is walked, Restart is the probability to go back to the target before
// each time but the first, and what is visited is where it ends. A walk that can go no further goes back to the target: at once
// where it has not left since the metapath began, and else with the next time, so that this time visits nothing. With a
// metapath of one relation all this is what Walk says.
//
// A walk draws numbers as Walk says: for going back, and for each relation one below the degree of where it stands.
type MetapathConfig struct {
	Fanouts  []int64 // nodes most often visited that a target keeps, for each hop: positive, or All
	Walks    []Walk  // of each hop
	Metapath []int   // the same in all hops
}

// metapath is walks along relations.
type metapath struct {
	walks
	path    []Graph // in each NumNodes is that of its targets
	fetched bool    // one of them is not in memory
}

// NewMetapath checks the shape of g, in time proportional to the nodes of one type, and the Config. The Sampler's batches hold
// nodes of the one type that the metapath begins and ends at, as if these were all of a graph.
func NewMetapath(g HeteroGraph, cfg MetapathConfig) (*Sampler, error) {
	if len(cfg.Metapath) == 0 {
		return nil, fmt.Errorf("sample: a metapath of no relations, want one at least: %w", ErrConfig)
	}
	m := metapath{walks: slices.Clone(cfg.Walks)}
	for i, place := range cfg.Metapath {
		if place < 0 || place >= len(g.Relations) {
			return nil, fmt.Errorf("sample: step %d of the metapath is relation %d, want one of %d: %w", i, place, len(g.Relations), ErrConfig)
		}
		r := &g.Relations[place]
		if r.Source < 0 || r.Source >= len(g.NumNodes) || r.Target < 0 || r.Target >= len(g.NumNodes) {
			return nil, fmt.Errorf("sample: relation %d from node type %d to %d, want types below %d: %w", place, r.Source, r.Target, len(g.NumNodes), ErrGraph)
		}
		next := cfg.Metapath[(i+1)%len(cfg.Metapath)]
		if next < 0 || next >= len(g.Relations) {
			continue // its turn comes
		}
		if after := g.Relations[next].Target; r.Source != after {
			return nil, fmt.Errorf("sample: the metapath does not connect: step %d, relation %d, leads to nodes of type %d, and the next one, relation %d, from type %d: %w",
				i, place, r.Source, next, after, ErrConfig)
		}
		graph := Graph{NumNodes: g.NumNodes[r.Target], Indptr: r.Indptr, Indices32: r.Indices32, Indices64: r.Indices64, Adjacency: r.Adjacency}
		if err := graph.check(); err != nil {
			return nil, fmt.Errorf("sample: relation %d: %w", place, err)
		}
		m.path = append(m.path, graph)
		m.fetched = m.fetched || r.Adjacency != nil
	}
	s, err := New(m.path[0], Config{Fanouts: cfg.Fanouts, Walks: append([]Walk{}, cfg.Walks...)})
	if err != nil {
		return nil, err
	}
	s.method = m
	return s, nil
}

func (m metapath) bytes(*Sampler, Demand) (most int64) {
	for _, w := range m.walks {
		most = max(most, walkerBytes(w, walkersIn(m.fetched, w)))
	}
	return most
}

func (m metapath) expand(h *hop) error {
	w := m.walks[h.number]
	return h.expandWalks(w, m.fetched, func(k *walker, lo, hi int) error {
		p := pathMoves{hop: h, k: k, w: w, path: m.path, back: w.back(), n: h.start(k, w, lo, hi)}
		if m.fetched {
			return p.fetch()
		}
		p.resident()
		return nil
	})
}

// pathMoves is n walkers that move together along a metapath, in stages as moves has them. A walker that has come to an end is
// one whose target is the complement of what it was; it stands at node 0 of whatever type.
type pathMoves struct {
	*hop
	k    *walker
	w    Walk
	path []Graph
	back uint64
	n    int
}

// steps is how many each walker takes.
func (m *pathMoves) steps() int { return int(m.w.Length) * len(m.path) }

// turn begins a metapath, and asks for the spans of where the walkers stand.
func (m *pathMoves) turn(first, step int) {
	end := min(first+group, m.n)
	at, targets := m.k.at.data[first:end], m.k.targets.data[first:end]
	if step > 0 && step%len(m.path) == 0 {
		state, nodes := m.k.state.data[first:end], m.nodes.data[m.first:]
		for i, t := range targets {
			x, s := stream(state[i]).next()
			state[i] = uint64(s)
			if ended := t < 0; ended || x>>11 < m.back {
				targets[i] = max(t, ^t)
				at[i] = nodes[targets[i]]
			}
		}
	}
	indptr := m.path[step%len(m.path)].Indptr
	asm.Prefetch(indptr, at)
	asm.Prefetch(indptr[1:], at)
}

// leave draws the edges that the walkers take and asks for their sources.
func (m *pathMoves) leave(first, step int) {
	end := min(first+group, m.n)
	at, targets, state, pos := m.k.at.data[first:end], m.k.targets.data[first:end], m.k.state.data[first:end], m.k.pos.data[first:end]
	relation := step % len(m.path)
	g := &m.path[relation]
	for i, t := range targets {
		if pos[i] = 0; t < 0 {
			continue
		}
		start, stop := g.Indptr[at[i]], g.Indptr[at[i]+1]
		if start == stop {
			if relation > 0 {
				targets[i], at[i] = ^t, 0
				continue
			}
			home := m.spans.data[t] // has edges
			at[i] = m.nodes.data[int64(m.first)+t]
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

// visit notes where metapaths end, -1 where one has not been walked to its end.
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

// resident moves all walkers all their steps; see moves.resident.
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

// fetch moves them step by step. Walkers that have come to an end ask for no edge.
func (m *pathMoves) fetch() error {
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
			if err := g.fetch(m.ctx, Drawn{Targets: at, Ptr: ptr, Pos: pos[:moving]}, next[:moving]); err != nil {
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
