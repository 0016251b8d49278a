package draw

import (
	"fmt"
	"slices"

	"freshgo/core/sample"
)

// Options by node type and by relation.

// checkTypes checks the options against the types of the graph.
func checkTypes(m *Sampling) error {
	types, o := m.Parts.Schema, &m.Options
	if types.Homogeneous() {
		if o.Metapaths != nil {
			return fmt.Errorf("%w: metapaths need edge types, and the graph has none", ErrOption)
		}
		if o.RelationFanouts != nil {
			return fmt.Errorf("%w: num_neighbors has fanouts for %d edge types, and the graph has none",
				sample.ErrFanout, len(o.RelationFanouts))
		}
	}
	for i := range types.Relations {
		rows := slices.ContainsFunc(m.Parts.Tensors, func(t Tensor) bool { return t.ByEdge && t.Type == i })
		types.Relations[i].unnumbered = o.NoEdgeIDs && !rows
	}
	if err := (schemaOptions{types, o}).validate(); err != nil {
		return err
	}
	return checkNumbers(types, o)
}

// checkNumbers returns an error if batches need the numbers of edges that a store holds without them.
func checkNumbers(s *Schema, o *Options) error {
	for i := range s.Relations {
		r := &s.Relations[i]
		if !r.withoutNumbers() || !r.used || s.Walked || s.Hops == 0 {
			continue
		}
		if o.History != nil {
			return r.noNumbers("a history prunes edges by their e_id")
		}
		if !o.NoEdgeIDs {
			return r.noNumbers("batches have no e_id, pass return_edge_id=False")
		}
	}
	return nil
}

// noNumbers returns the error for edges without numbers, with what to do.
func (r *Relation) noNumbers(advice string) error {
	of := ""
	if r.Relation != "" { // types have names
		of = " of " + r.name
	}
	return fmt.Errorf("%w: the edges%s were converted with edge_ids=False and have no numbers: %s", ErrOption, of, advice)
}

// schemaOptions applies options to a schema.
type schemaOptions struct {
	schema  *Schema
	options *Options
}

// validate validates the options of each type, and finds the seeds of each.
func (a schemaOptions) validate() error {
	s, o := a.schema, a.options
	if o.Walks != nil && !s.Homogeneous() {
		return fmt.Errorf("%w: random walks in a heterogeneous graph need a metapath", ErrOption)
	}
	if err := a.findEdges(); err != nil {
		return err
	}
	if o.RelationFanouts == nil && len(s.Edges) > 0 {
		o.RelationFanouts = make([][]int64, len(s.Edges))
		for i := range o.RelationFanouts {
			o.RelationFanouts[i] = o.Fanouts
		}
	}
	if len(o.RelationFanouts) != len(s.Edges) {
		what := "edge types"
		if o.Metapaths != nil {
			what = "metapaths"
		}
		return fmt.Errorf("%w: num_neighbors has fanouts for %d %s, expected %d",
			sample.ErrFanout, len(o.RelationFanouts), what, len(s.Edges))
	}
	for _, f := range o.RelationFanouts {
		s.Hops = len(f) // all alike, which the sampler checks
	}
	s.Subgraph = o.Subgraph
	if s.Subgraph == sample.Bidirectional {
		s.reverse = s.reverses()
	}
	if o.Links == nil {
		if err := a.findRuns(); err != nil {
			return err
		}
	}
	a.findReached()
	return nil
}

// findReached finds the types that some batch may have nodes of: rows of others need no memory.
func (a schemaOptions) findReached() {
	s, o := a.schema, a.options
	found := make([]bool, s.NumTypes()) // in a hop
	for _, r := range s.Runs {
		found[r.Type] = true
	}
	if k := o.Links; k != nil && k.Relation >= 0 && k.Relation < len(s.Relations) { // else see LinkedRelation
		found[s.Relations[k.Relation].Source], found[s.Relations[k.Relation].Target] = true, true
	}
	s.reached = slices.Clone(found)
	s.read, s.leads = make([]bool, len(s.Relations)), make([]bool, len(s.Relations))
	for hop := range s.Hops {
		next := make([]bool, s.NumTypes())
		for i, e := range s.Edges {
			if f := o.RelationFanouts[i]; hop < len(f) && f[hop] != 0 && found[e.Target] {
				next[e.Source], s.reached[e.Source] = true, true
				a.readAlong(i, hop)
			}
		}
		found = next
	}
	a.readInduced()
}

// Reaches reports whether batches may have rows of a tensor.
func (p *Parts) Reaches(t *Tensor) bool {
	return t.ByEdge || p.Schema.reached[t.Type]
}

// findEdges finds the types of edges that batches have.
func (a schemaOptions) findEdges() error {
	s, o := a.schema, a.options
	metapaths := o.Metapaths
	s.Edges = nil
	if metapaths == nil {
		for i := range s.Relations {
			r := &s.Relations[i]
			r.used = true
			s.Edges = append(s.Edges, edgeType{r.Source, r.Target})
		}
		return nil
	}
	for i, m := range metapaths {
		if len(m.Path) == 0 {
			return fmt.Errorf("%w: metapath %d has no edge types", ErrOption, i)
		}
		for _, place := range m.Path {
			if place < 0 || place >= len(s.Relations) {
				return fmt.Errorf("%w: metapath %d names edge type %d, expected 0 to %d",
					ErrOption, i, place, len(s.Relations)-1)
			}
			s.Relations[place].used = true
		}
		s.Edges = append(s.Edges, edgeType{s.Relations[m.Path[len(m.Path)-1]].Source, s.Relations[m.Path[0]].Target})
	}
	return nil
}

// findRuns finds the seeds of each type. The user's lists, one for each type, follow one another;
// so a place in the list of a type is one within its run.
func (a schemaOptions) findRuns() error {
	s, o := a.schema, a.options
	if o.Seeds == nil {
		for t := range s.NumTypes() {
			s.Runs = append(s.Runs, SeedRun{t, s.First[t], s.First[t+1]})
		}
		return nil
	}
	var err error
	s.Runs, err = s.SeedRuns("input_nodes", o.Seeds)
	return err
}

// SeedRuns finds the seeds of each type in a list of this name.
func (s *Schema) SeedRuns(name string, seeds []int64) (runs []SeedRun, err error) {
	seen := make([]bool, s.NumTypes())
	for i, v := range seeds {
		at := int64(i)
		if n := len(runs); n > 0 {
			if last := &runs[n-1]; v >= s.First[last.Type] && v < s.First[last.Type+1] {
				last.To = at + 1
				continue
			}
		}
		t := sample.TypeOf(s.First, v)
		if seen[t] {
			return nil, fmt.Errorf("%w: %s[%d] is a node of type %q, expected the nodes of a type to follow one another",
				ErrOption, name, i, s.TypeNames[t])
		}
		seen[t] = true
		runs = append(runs, SeedRun{t, at, at + 1})
	}
	return runs, nil
}
