package draw

import (
	"slices"
	"strings"

	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// What a batch of bidirectional or induced edges asks of the loader beside what the sampler makes of it: little, for to
// caches, plans and traces it is a batch like any other.

// Complete adds to the measured demand what edges take that were not drawn: all edges of a batch are read at once where
// edge numbers are on disk, and whole lists where neighbours are.
func (o *Options) Complete(d *sizing.Demand) {
	switch o.Subgraph {
	case sample.Bidirectional:
		d.HopEdges = max(d.HopEdges, d.Edges)
	case sample.Induced:
		d.HopEdges = max(d.HopEdges, d.Edges, sample.FetchedEdges)
	}
}

// reversed is the prefix that PyG gives to the name of a reverse relation.
const reversed = "rev_"

// Reverses finds the relation whose edges go against those of each, as PyG's to_bidirectional does:
// the one that is named after it, "rev_x" for "x" and the other way round; else itself, where its
// edges begin and end at the same type; else the only one that leads back; else none, -1.
func (s *Schema) Reverses() []int {
	of := make([]int, len(s.Relations))
	for i := range s.Relations {
		r := &s.Relations[i]
		name, was := strings.CutPrefix(r.Relation, reversed)
		if !was {
			name = reversed + r.Relation
		}
		back := func(other Relation) bool { return other.Source == r.Target && other.Target == r.Source }
		named := func(other Relation) bool { return back(other) && other.Relation == name }
		of[i] = slices.IndexFunc(s.Relations, named)
		if of[i] >= 0 {
			continue
		}
		if r.Source == r.Target {
			of[i] = i
			continue
		}
		only := slices.IndexFunc(s.Relations, back)
		if only >= 0 && !slices.ContainsFunc(s.Relations[only+1:], back) {
			of[i] = only
		}
	}
	return of
}

// Numbered reports whether the edges of a relation in a batch are edges of it in the graph, with
// numbers and tensors: not where a batch has edges against those of another relation, or of walks, or where nobody
// wants the numbers.
func (s *Schema) Numbered(relation int) bool {
	return !s.Walked && !s.Relations[relation].unnumbered &&
		(s.reverse == nil || s.reverse[relation] < 0 || s.reverse[relation] == relation)
}
