package loader

import (
	"fmt"
	"slices"
	"strings"

	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// What a batch of bidirectional or induced edges asks of the loader beside what the sampler makes of it: little, for to
// caches, plans and traces it is a batch like any other.

// validateSubgraph checks what goes together with edges that were not drawn.
func (o *Options) validateSubgraph() error {
	switch {
	case o.Subgraph > sample.Induced:
		return fmt.Errorf("%w: subgraph_type must be 0 (directional), 1 (bidirectional) or 2 (induced), got %d",
			ErrOption, o.Subgraph)
	case o.Subgraph == sample.Directional:
	case o.walk():
		return fmt.Errorf("%w: subgraph_type: random walks give no edges of the graph that could be completed, "+
			"only \"directional\"",
			ErrOption)
	case o.Labor != nil && !o.NoEdgeWeight:
		return fmt.Errorf("%w: subgraph_type: LABOR's edge_weight is for the edges that were drawn: let it give none, "+
			"or take \"directional\"", ErrOption)
	case o.Subgraph == sample.Induced && o.disjoint():
		return fmt.Errorf("%w: subgraph_type \"induced\" joins what is disjoint, and has edges of any time: "+
			"take \"directional\" or \"bidirectional\"", ErrOption)
	case o.History != nil:
		return fmt.Errorf("%w: subgraph_type: a history prunes edges hop by hop, which only \"directional\" has",
			ErrOption)
	}
	return nil
}

// complete adds to the measured demand what edges take that were not drawn: all edges of a batch are read at once where
// edge numbers are on disk, and whole lists where neighbours are.
func (o *Options) complete(d *sizing.Demand) {
	switch o.Subgraph {
	case sample.Bidirectional:
		d.HopEdges = max(d.HopEdges, d.Edges)
	case sample.Induced:
		d.HopEdges = max(d.HopEdges, d.Edges, sample.FetchedEdges)
	}
}

// reversed is the prefix that PyG gives to the name of a reverse relation.
const reversed = "rev_"

// reverses finds the relation whose edges go against those of each, as PyG's to_bidirectional does:
// the one that is named after it, "rev_x" for "x" and the other way round; else itself, where its
// edges begin and end at the same type; else the only one that leads back; else none, -1.
func (s *schema) reverses() []int {
	of := make([]int, len(s.relations))
	for i := range s.relations {
		r := &s.relations[i]
		name, was := strings.CutPrefix(r.relation, reversed)
		if !was {
			name = reversed + r.relation
		}
		back := func(other relation) bool { return other.source == r.target && other.target == r.source }
		named := func(other relation) bool { return back(other) && other.relation == name }
		of[i] = slices.IndexFunc(s.relations, named)
		if of[i] >= 0 {
			continue
		}
		if r.source == r.target {
			of[i] = i
			continue
		}
		only := slices.IndexFunc(s.relations, back)
		if only >= 0 && !slices.ContainsFunc(s.relations[only+1:], back) {
			of[i] = only
		}
	}
	return of
}

// findReverses finds what bidirectional batches need.
func (s *schema) findReverses(o *Options) {
	s.subgraph = o.Subgraph
	if s.subgraph == sample.Bidirectional {
		s.reverse = s.reverses()
	}
}

// numbered reports whether the edges of a relation in a batch are edges of it in the graph, with
// numbers and tensors: not where a batch has edges against those of another relation, or of walks, or where nobody
// wants the numbers.
func (s *schema) numbered(relation int) bool {
	return !s.walked && !s.relations[relation].unnumbered &&
		(s.reverse == nil || s.reverse[relation] < 0 || s.reverse[relation] == relation)
}
