package sample

import (
	"fmt"
	"math"

	"freshgo/core/mem"
)

// method is how the neighbours of a hop come about where they are not uniform draws, which hop.go fuses with loading them.
// There is one file for each: weighted.go, labor.go, walk.go. What follows, numbering, layout and hop after hop, is the same
// for all.
type method interface {
	// most is the number of edges that a target of this degree gets at most.
	most(hop int, deg, k int64) int64
	// scratch is how many members the set and how many entries the race of a thread need at most in a hop whose longest list
	// is this long.
	scratch(hop int, widest, k int64) (set, race int64)
	// expand gives every target its neighbours. Target i of the hop has room for most of them from place ptr[first+i]-from
	// on, in h.pos (where they are edges of the graph), in h.sources (where the method has seen the sources), and in h.weight
	// (where it weighs them), and their number goes to h.counts[i].
	expand(h *hop) error
	// gives says which of pos, sources and weight it fills.
	gives() gives
	// bytes is what a Worker needs besides, for batches up to a demand.
	bytes(s *Sampler, d Demand) int64
}

type gives struct{ pos, ids, weight bool }

// method returns what the Config asks for, nil for uniform draws.
func (c *Config) method(g *Graph) (method, error) {
	refuse := func(format string, args ...any) (method, error) {
		return nil, fmt.Errorf("sample: %s: %w", fmt.Sprintf(format, args...), ErrConfig)
	}
	if c.Weights != nil {
		if err := c.Weights.check(g); err != nil {
			return nil, err
		}
	}
	if c.Temporal != nil {
		if err := c.Temporal.check(g); err != nil {
			return nil, err
		}
	}
	switch {
	case (c.Temporal != nil || c.Disjoint) && (c.Labor != nil || c.Walks != nil):
		return refuse("LABOR and random walks draw for all seeds together: they have no trees of single seeds and no times")
	case c.Temporal != nil && c.Weights != nil:
		return refuse("weights and times, want one of them")
	case c.Temporal != nil && c.Temporal.Times.Source != nil:
		return &temporalLists{Temporal: c.Temporal, replace: c.Replace}, nil
	case c.Walks != nil:
		if c.Weights != nil || c.Labor != nil || c.Replace {
			return refuse("random walks are uniform: they have no weights, no LABOR and no draws with replacement")
		}
		if len(c.Walks) != len(c.Fanouts) {
			return refuse("walks for %d hops, want %d as there are fanouts", len(c.Walks), len(c.Fanouts))
		}
		for hop, w := range c.Walks {
			if err := w.check(hop); err != nil {
				return nil, err
			}
		}
		return walks(c.Walks), nil
	case c.Labor != nil:
		if c.Replace {
			return refuse("LABOR draws without replacement")
		}
		if c.Labor.BatchDependency < 1 || c.Labor.BatchDependency > math.MaxInt32 {
			return refuse("batch dependency %d, want 1 to %d", c.Labor.BatchDependency, math.MaxInt32)
		}
		return &labor{Labor: *c.Labor, weights: c.Weights}, nil
	case c.Weights != nil:
		return &weighted{weights: c.Weights, replace: c.Replace}, nil
	}
	return nil, nil
}

// HasPositions says whether the edges of batches are edges of the graph: Subgraph.Pos is not nil.
func (s *Sampler) HasPositions() bool { return s.method == nil || s.method.gives().pos }

// HasWeights says whether edges have weights: Subgraph.Weight is not nil.
func (s *Sampler) HasWeights() bool {
	return s.method != nil && s.method.gives().weight && s.subgraph == Directional
}

// prepare makes room in the threads' scratch.
func (b *batch) prepare(m method, number int, k, widest int64) error {
	set, entries := m.scratch(number, widest, k)
	for i := range b.threads {
		t := &b.threads[i]
		if err := t.set.grow(b.budget, int(set)); err != nil {
			return err
		}
		if err := t.race.grow(b.budget, int(entries)); err != nil {
			return err
		}
	}
	return nil
}

// room makes room for what the method gives of the edges from to to.
func (h *hop) room(m method, from, to int64) error {
	g := m.gives()
	if g.pos {
		if err := h.batch.pos.grow(h.budget, mem.Trace, to, from); err != nil {
			return err
		}
		h.pos = h.batch.pos.data[from:to]
	}
	if g.ids {
		if err := h.wide.grow(h.budget, mem.Trace, to-from, 0); err != nil {
			return err
		}
		h.sources = h.wide.data[:to-from]
	}
	if g.weight {
		if err := h.batch.weight.grow(h.budget, mem.Trace, to, from); err != nil {
			return err
		}
		h.weight = h.batch.weight.data[from:to]
	}
	if err := h.batch.counts.grow(h.budget, mem.Trace, int64(h.targets), 0); err != nil {
		return err
	}
	h.counts = h.batch.counts.data[:h.targets]
	return nil
}

// expand lets the method choose and closes the gaps that it left.
func (h *hop) expand(m method) error {
	if err := m.expand(h); err != nil {
		return err
	}
	h.compact()
	return nil
}

// compact moves the edges of each target to the end of those before and sets ptr to where they are.
func (h *hop) compact() {
	ptr := h.ptr.data[h.first:]
	begin, at := ptr[0]-h.from, int64(0)
	for i, n := range h.counts {
		if begin != at {
			if h.pos != nil {
				copy(h.pos[at:at+n], h.pos[begin:begin+n])
			}
			if h.sources != nil {
				copy(h.sources[at:at+n], h.sources[begin:begin+n])
			}
			if h.weight != nil {
				copy(h.weight[at:at+n], h.weight[begin:begin+n])
			}
		}
		begin = ptr[i+1] - h.from
		at += n
		ptr[i+1] = h.from + at
	}
}
