package sample

import "freshgo/core/mem"

// method draws the neighbours of a hop if draws are not uniform; hop.go fuses uniform draws with loading. Each method
// has a file, which also states the capabilities of its Kind. Numbering, layout and the sequence of hops are the same
// for all.
type method interface {
	// most returns the largest number of edges that a target of this degree gets.
	most(hop int, deg, k int64) int64
	// scratch returns the largest number of members of the set and of entries of the race that a thread needs in a hop
	// whose longest list has widest edges.
	scratch(hop int, widest, k int64) (set, race int64)
	// expand draws the neighbours of all targets. Target i of the hop has room for the most edges that it may get from
	// ptr[first+i]-from on, in h.pos (if they are edges of the graph), in h.sources (if the method has read the sources),
	// and in h.weight (if it weighs them). It sets h.counts[i] to their number.
	expand(h *hop) error
	// gives returns the outputs that it fills: pos, sources, weight.
	gives() gives
	// once reports whether it names all edges before it fetches anything, and so fetches once per hop.
	once() bool
	// bytes returns the additional memory of a Worker for batches of this size along the relation.
	bytes(r *relation, d size) int64
}

type gives struct{ pos, ids, weight bool }

// weightsOf returns the checked weights of a relation, or nil.
func (c *Config) weightsOf(relation int, r *Relation) (*Weights, error) {
	if len(c.Weights) == 0 || c.Weights[relation] == nil {
		return nil, nil
	}
	return c.Weights[relation], c.Weights[relation].check(r)
}

// HasPositions reports whether the edges of batches are edges of the graph: Subgraph.Pos is not nil.
func (s *Sampler) HasPositions() bool { return s.relations[0].hasPositions() }

// HasWeights reports whether edges have weights: Subgraph.Weight is not nil.
func (s *Sampler) HasWeights() bool { return s.relations[0].hasWeights() }

func (r *relation) hasPositions() bool { return r.method == nil || r.method.gives().pos }

func (r *relation) hasWeights() bool {
	return r.method != nil && r.method.gives().weight && r.subgraph == Directional
}

// prepare makes room in the scratch memory of the threads.
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

// roomFor makes room for the method's outputs for the edges from to to.
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

// expand runs the method and closes the gaps between targets.
func (h *hop) expand(m method) error {
	if err := m.expand(h); err != nil {
		return err
	}
	h.compact()
	return nil
}

// compact moves the edges of each target behind the edges of the previous one and sets ptr.
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
