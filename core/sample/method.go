package sample

import (
	"fmt"
	"math"

	"freshgo/core/mem"
)

// method draws the neighbours of a hop where draws are not uniform; hop.go fuses uniform draws with loading. There is
// one file for each: weighted.go, labor.go, metapath.go, temporallists.go. Numbering, layout and the sequence of hops
// are the same for all.
type method interface {
	// most is the number of edges that a target of this degree gets at most.
	most(hop int, deg, k int64) int64
	// scratch returns the most members of the set and entries of the race that a thread needs in a hop whose longest
	// list has widest edges.
	scratch(hop int, widest, k int64) (set, race int64)
	// expand gives every target its neighbours. Target i of the hop has room for most of them from place
	// ptr[first+i]-from on, in h.pos (where they are edges of the graph), in h.sources (where the method has seen the
	// sources), and in h.weight (where it weighs them), and their number goes to h.counts[i].
	expand(h *hop) error
	// gives names the outputs that it fills: pos, sources, weight.
	gives() gives
	// bytes returns the memory that a Worker needs in addition, for batches of this size along the relation.
	bytes(r *relation, d size) int64
}

type gives struct{ pos, ids, weight bool }

// checkMethod returns an error if the configured ways to draw cannot be combined.
func (c *Config) checkMethod() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("sample: %s: %w", fmt.Sprintf(format, args...), ErrConfig)
	}
	walk, trees := len(c.Metapaths) > 0, c.Disjoint || len(c.Temporal) > 0
	switch {
	case c.Subgraph > Induced:
		return refuse("subgraph type %d, want %d to %d", c.Subgraph, Directional, Induced)
	case c.Subgraph != Directional && walk:
		return refuse("random walks give no edges of the graph that could be completed")
	case c.Subgraph == Induced && trees:
		return refuse("an induced subgraph joins what is disjoint, and has edges of any time")
	case trees && (c.Labor != nil || walk):
		return refuse("LABOR and random walks draw for all seeds together: " +
			"they have no trees of single seeds and no times")
	case walk && (len(c.Weights) > 0 || c.Labor != nil || c.Replace):
		return refuse("random walks are uniform: they have no weights, no LABOR and no draws with replacement")
	case c.Labor != nil && c.Replace:
		return refuse("LABOR draws without replacement")
	case c.Labor != nil && (c.Labor.BatchDependency < 1 || c.Labor.BatchDependency > math.MaxInt32):
		return refuse("batch dependency %d, want 1 to %d", c.Labor.BatchDependency, math.MaxInt32)
	}
	return nil
}

// method returns what the Config asks for along a relation, nil for uniform draws.
func (c *Config) method(relation int, r *Relation) (method, error) {
	var weights *Weights
	if len(c.Weights) > 0 {
		weights = c.Weights[relation]
	}
	if weights != nil {
		if err := weights.check(r); err != nil {
			return nil, err
		}
	}
	var temporal *Temporal
	if len(c.Temporal) > 0 {
		temporal = c.Temporal[relation]
	}
	if temporal != nil {
		if err := temporal.check(r); err != nil {
			return nil, err
		}
	}
	switch {
	case temporal != nil && weights != nil:
		return nil, fmt.Errorf("sample: weights and times, want one of them: %w", ErrConfig)
	case temporal != nil && temporal.Times.Source != nil:
		return &temporalLists{Temporal: temporal, replace: c.Replace}, nil
	case c.Labor != nil:
		return &labor{Labor: *c.Labor, weights: weights}, nil
	case weights != nil:
		return &weighted{weights: weights, replace: c.Replace}, nil
	}
	return nil, nil
}

// HasPositions reports whether the edges of batches are edges of the graph: Subgraph.Pos is not nil.
func (s *Sampler) HasPositions() bool { return s.relations[0].hasPositions() }

// HasWeights reports whether edges have weights: Subgraph.Weight is not nil.
func (s *Sampler) HasWeights() bool { return s.relations[0].hasWeights() }

func (r *relation) hasPositions() bool { return r.method == nil || r.method.gives().pos }

func (r *relation) hasWeights() bool {
	return r.method != nil && r.method.gives().weight && r.subgraph == Directional
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

// roomFor makes room for what the method gives of the edges from to to.
func (h *hop) roomFor(m method, from, to int64) error {
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
