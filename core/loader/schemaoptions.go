package loader

import (
	"fmt"
	"slices"

	"freshgo/core/sample"
)

// What the options ask of the node types and relations of a graph.

// checkTypes checks the options against the types of the graph.
func (m *sampling) checkTypes() error {
	types, o := m.parts.types, &m.options
	if types.unnamed() {
		if o.Metapaths != nil {
			return fmt.Errorf("%w: metapaths are of edge types, the graph has none", ErrOption)
		}
		if o.RelationFanouts != nil {
			return fmt.Errorf("%w: fanouts of %d edge types, the graph has no types",
				sample.ErrFanout, len(o.RelationFanouts))
		}
	}
	for i := range types.relations {
		rows := slices.ContainsFunc(m.parts.tensors, func(t tensor) bool { return t.byEdge && t.typ == i })
		types.relations[i].unnumbered = o.NoEdgeIDs && !rows
	}
	return types.validate(o)
}

// validate checks what the options ask of each type, and finds the seeds of each.
func (s *schema) validate(o *Options) error {
	refused := func(what string) error {
		return fmt.Errorf("%w: %s, expected none with a heterogeneous graph", ErrOption, what)
	}
	switch {
	case o.Walks != nil && !s.unnamed():
		return refused("random walks without a metapath")
	case o.Metapaths != nil && o.Subgraph != sample.Directional:
		return refused("subgraph_type other than \"directional\" with metapaths")
	case o.Metapaths != nil && o.disjoint():
		return refused("disjoint trees and times with metapaths")
	case o.Metapaths != nil && o.Cache == "expected":
		return fmt.Errorf("%w: cache \"expected\" follows draws from neighbour lists, not walks: use \"presc\"",
			ErrOption)
	}
	if err := s.findEdges(o); err != nil {
		return err
	}
	if o.RelationFanouts == nil && len(s.edges) > 0 {
		o.RelationFanouts = make([][]int64, len(s.edges))
		for i := range o.RelationFanouts {
			o.RelationFanouts[i] = o.Fanouts
		}
	}
	if len(o.RelationFanouts) != len(s.edges) {
		what := "the graph has"
		if o.Metapaths != nil {
			what = "the metapaths are"
		}
		return fmt.Errorf("%w: fanouts of %d edge types, %s %d",
			sample.ErrFanout, len(o.RelationFanouts), what, len(s.edges))
	}
	for _, f := range o.RelationFanouts {
		s.hops = len(f) // all alike, which the sampler checks
	}
	s.findReverses(o)
	if o.Links == nil {
		if err := s.findRuns(o); err != nil {
			return err
		}
	}
	s.findReached(o)
	return nil
}

// findReached finds the types that some batch may have nodes of: rows of others need no memory.
func (s *schema) findReached(o *Options) {
	found := make([]bool, s.types()) // in a hop
	for _, r := range s.runs {
		found[r.typ] = true
	}
	if k := o.Links; k != nil && k.Relation >= 0 && k.Relation < len(s.relations) { // else see parts.linked
		found[s.relations[k.Relation].source], found[s.relations[k.Relation].target] = true, true
	}
	s.reached = slices.Clone(found)
	s.read, s.leads = make([]bool, len(s.relations)), make([]bool, len(s.relations))
	for hop := range s.hops {
		next := make([]bool, s.types())
		for i, e := range s.edges {
			if f := o.RelationFanouts[i]; hop < len(f) && f[hop] != 0 && found[e.target] {
				next[e.source], s.reached[e.source] = true, true
				s.readAlong(o, i, hop)
			}
		}
		found = next
	}
	s.readInduced()
}

// reaches reports whether batches may have rows of a tensor.
func (p *parts) reaches(t *tensor) bool {
	return t.byEdge || p.types.reached[t.typ]
}

// findEdges finds the types of edges that batches have.
func (s *schema) findEdges(o *Options) error {
	metapaths := o.Metapaths
	s.edges, s.walked = nil, o.walk()
	if metapaths == nil {
		for i := range s.relations {
			r := &s.relations[i]
			r.used = true
			s.edges = append(s.edges, edgeType{r.source, r.target})
		}
		return nil
	}
	for i, m := range metapaths {
		if len(m.Path) == 0 {
			return fmt.Errorf("%w: metapath %d has no edge types", ErrOption, i)
		}
		for _, place := range m.Path {
			if place < 0 || place >= len(s.relations) {
				return fmt.Errorf("%w: metapath %d names edge type %d, the graph has %d",
					ErrOption, i, place, len(s.relations))
			}
			s.relations[place].used = true
		}
		s.edges = append(s.edges, edgeType{s.relations[m.Path[len(m.Path)-1]].source, s.relations[m.Path[0]].target})
	}
	return nil
}

// findRuns finds the seeds of each type. The user's lists, one for each type, follow one another;
// so a place in the list of a type is one within its run.
func (s *schema) findRuns(o *Options) error {
	if o.Seeds == nil {
		for t := range s.types() {
			s.runs = append(s.runs, seedRun{t, s.first[t], s.first[t+1]})
		}
		return nil
	}
	var err error
	s.runs, err = s.runsOf("input_nodes", o.Seeds)
	return err
}

// runsOf finds the seeds of each type in a list of this name.
func (s *schema) runsOf(name string, seeds []int64) (runs []seedRun, err error) {
	seen := make([]bool, s.types())
	for i, v := range seeds {
		at := int64(i)
		if n := len(runs); n > 0 {
			if last := &runs[n-1]; v >= s.first[last.typ] && v < s.first[last.typ+1] {
				last.to = at + 1
				continue
			}
		}
		t := sample.TypeOf(s.first, v)
		if seen[t] {
			return nil, fmt.Errorf("%w: %s[%d] is a node of type %q, expected the nodes of a type to follow one another",
				ErrOption, name, i, s.names[t])
		}
		seen[t] = true
		runs = append(runs, seedRun{t, at, at + 1})
	}
	return runs, nil
}
