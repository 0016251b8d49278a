package sample

import "fmt"

// Edges are excluded from a graph with types relation by relation, see exclude.go: what holds of a node of a homogeneous graph holds of one along each
// relation that ends at its type, since it is expanded along all of them in the same hop.

// checkExclude checks what a request excludes of each relation, and keeps it for the draws.
func (w *HeteroWorker) checkExclude(r *Request) error {
	w.exclude = nil
	for i := range w.relations {
		w.relations[i].skipped.clear()
		w.relations[i].excluded.found = false
	}
	switch {
	case len(r.Exclude) > 0:
		return fmt.Errorf("sample: excluded edges of no relation, want those of each in a graph with types: %w", ErrConfig)
	case len(r.ExcludeOf) == 0:
		return nil
	case len(r.ExcludeOf) != len(w.relations):
		return fmt.Errorf("sample: excluded edges of %d relations, want %d as there are, or none: %w", len(r.ExcludeOf), len(w.relations), ErrConfig)
	}
	for i, links := range r.ExcludeOf {
		if len(links) == 0 {
			continue
		}
		if err := w.relations[i].canExclude(links); err != nil {
			return fmt.Errorf("sample: relation %d: %w", i, err)
		}
	}
	w.exclude = r.ExcludeOf
	return nil
}

// excluded is what is excluded of a relation.
func (w *HeteroWorker) excluded(relation int) []Link {
	if w.exclude == nil {
		return nil
	}
	return w.exclude[relation]
}
