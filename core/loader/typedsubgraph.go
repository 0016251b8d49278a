package loader

import (
	"slices"
	"strings"

	"freshgo/core/sample"
)

// reversed is what PyG puts before the name of a relation to name the one against it.
const reversed = "rev_"

// reverses finds the relation whose edges go against those of each, as PyG's to_bidirectional does: the one that is named after it, "rev_x" for "x"
// and the other way round; else itself, where its edges begin and end at the same type; else the only one that leads back; else none, -1.
func (s *schema) reverses() []int {
	of := make([]int, len(s.relations))
	for i := range s.relations {
		r := &s.relations[i]
		name, was := strings.CutPrefix(r.relation, reversed)
		if !was {
			name = reversed + r.relation
		}
		back := func(other relation) bool { return other.source == r.target && other.target == r.source }
		of[i] = slices.IndexFunc(s.relations, func(other relation) bool { return back(other) && other.relation == name })
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

// numbered says whether the edges of a relation in a batch are edges of it in the graph, with numbers and tensors: not where a batch has edges against
// those of another relation, or of walks.
func (s *schema) numbered(relation int) bool {
	return !s.walked && (s.reverse == nil || s.reverse[relation] < 0 || s.reverse[relation] == relation)
}
