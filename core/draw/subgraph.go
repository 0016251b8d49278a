package draw

import (
	"slices"
	"strings"

	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The loader's part in bidirectional and induced batches, which to caches, plans and traces are like any others.

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

// reverses finds the reverse of each relation, like PyG's to_bidirectional: the one named after it, "rev_x" for "x" and
// conversely; else itself, if its edges begin and end at the same type; else the only one in the opposite direction;
// else none, -1.
func (s *Schema) reverses() []int {
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

// AnyNumbered reports whether the edges of some relation are numbered (see Schema.Numbered).
func AnyNumbered(s *Schema) bool {
	for i := range s.Relations {
		if s.Numbered(i) {
			return true
		}
	}
	return false
}

// Numbered reports whether the edges of a relation in a batch are edges of the graph with numbers and tensors: they are
// not if a batch has reverses of another relation's edges, or edges of walks, or if the numbers are not needed.
func (s *Schema) Numbered(relation int) bool {
	return !s.Walked && !s.Relations[relation].unnumbered &&
		(s.reverse == nil || s.reverse[relation] < 0 || s.reverse[relation] == relation)
}
