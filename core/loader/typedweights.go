package loader

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/sample"
)

// Weights of edges, where they have types: relations with a tensor of the name that Options.WeightAttr gives draw by it, the others uniformly.

// weightTensors returns the tensor of each relation that is drawn by one, and nil of the others; or nothing where all are drawn uniformly.
func (l *Loader) weightTensors() []*tensor {
	if l.options.WeightAttr == "" {
		return nil
	}
	of := make([]*tensor, len(l.parts.types.relations))
	for i := range l.parts.tensors {
		if t := &l.parts.tensors[i]; t.byEdge && t.name == l.options.WeightAttr {
			of[t.typ] = t
		}
	}
	return of
}

// checkWeights checks the tensors that edges are drawn by.
func (l *Loader) checkWeights() error {
	types := l.parts.types
	if types.unnamed() {
		_, err := l.weightTensor()
		return err
	}
	found := l.weightTensors()
	if found == nil {
		return nil
	}
	for i, t := range found {
		if t == nil {
			continue
		}
		if err := t.checkWeight(); err != nil {
			return fmt.Errorf("edge type %s: %w", types.relations[i].name, err)
		}
	}
	if slices.ContainsFunc(found, func(t *tensor) bool { return t != nil }) {
		return nil
	}
	var known []string
	for i := range l.parts.tensors {
		if t := &l.parts.tensors[i]; t.byEdge {
			known = append(known, types.relations[t.typ].name+"."+t.name)
		}
	}
	return fmt.Errorf("%w: weight_attr %q is no tensor of any edge type, the edge tensors are %q", ErrOption, l.options.WeightAttr, known)
}

// openWeights makes the weights of all relations ready, of which topology is open.
func (s *schema) openWeights(ctx context.Context, l *Loader) ([]*sample.Weights, error) {
	found := l.weightTensors()
	if found == nil {
		return nil, nil
	}
	weights := make([]*sample.Weights, len(found))
	for i, t := range found {
		if t == nil {
			continue
		}
		var err error
		if weights[i], err = l.openWeightsOf(ctx, t, s.relations[i].indptr, &s.relations[i].edgeIDs); err != nil {
			return nil, fmt.Errorf("edge type %s: %w", s.relations[i].name, err)
		}
	}
	return weights, nil
}
