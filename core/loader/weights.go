package loader

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// The weights that edges are drawn by: relations with a tensor of the name that Options.WeightAttr, or WeightAttrs,
// gives draw by it, the others uniformly. The tensor has a number for each edge, in the user's
// order of edges. The sampler wants them in its own, by target. In memory they are put into that
// order at opening, with sums of blocks so that a long list need not be added up. On disk they stay
// where the store has them: by position, see positionWeights, or else by number only. Then a hop
// needs the weights of whole lists, so their edge numbers are read, and then the weights with these
// numbers. Where the user's edges are sorted by target those of a list lie together; else each is a
// read of its own, but for those on a page that several are on.

// edgeWeightName is the tensor of what LABOR and walks say of an edge.
const edgeWeightName = "edge_weight"

// weightTensors returns the tensor of each relation that is drawn by one, and nil of the others; or
// nothing where all are drawn uniformly.
func (m *sampling) weightTensors() []*tensor {
	if !m.options.weighted() {
		return nil
	}
	of := make([]*tensor, len(m.parts.types.relations))
	for i := range m.parts.tensors {
		if t := &m.parts.tensors[i]; t.byEdge && t.name == m.options.weightsOf(t.typ) {
			of[t.typ] = t
		}
	}
	return of
}

// weighted says whether edges of any relation may be drawn by weights.
func (o *Options) weighted() bool { return o.WeightAttr != "" || o.WeightAttrs != nil }

// weightsOf is the name of the tensor that the edges of a relation are drawn by, if it has that.
func (o *Options) weightsOf(relation int) string {
	if o.WeightAttrs != nil {
		return o.WeightAttrs[relation]
	}
	return o.WeightAttr
}

// checkWeights checks the tensors that edges are drawn by.
func (m *sampling) checkWeights() error {
	types := m.parts.types
	if n := len(m.options.WeightAttrs); n > 0 && n != len(types.relations) {
		return fmt.Errorf("%w: %d names of weights for %d relations", ErrOption, n, len(types.relations))
	}
	found := m.weightTensors()
	if found == nil {
		return nil
	}
	for i, t := range found {
		if t == nil {
			if m.options.WeightAttrs != nil && m.options.WeightAttrs[i] != "" {
				return types.ofRelation(i, fmt.Errorf("%w: weight_attr %q is no edge tensor", ErrOption, m.options.WeightAttrs[i]))
			}
			continue
		}
		if err := t.checkWeight(); err != nil {
			return types.ofRelation(i, err)
		}
	}
	if slices.ContainsFunc(found, func(t *tensor) bool { return t != nil }) {
		return nil
	}
	var known []string
	for i := range m.parts.tensors {
		if t := &m.parts.tensors[i]; t.byEdge {
			known = append(known, types.fullName(t))
		}
	}
	what := "no edge tensor"
	if !types.unnamed() {
		what = "no tensor of any edge type"
	}
	return fmt.Errorf("%w: weight_attr %q is %s, the edge tensors are %q", ErrOption, m.options.WeightAttr, what, known)
}

// checkWeight says why a tensor holds no weights.
func (t *tensor) checkWeight() error {
	if one := t.width == t.stored().Size(); !one || !t.dtype.IsFloat() && !t.dtype.IsInteger() {
		return fmt.Errorf("%w: weight_attr %q holds %s %v for each edge, expected one number",
			ErrOption, t.name, t.dtype.Label(), t.rowShape)
	}
	return nil
}

// checkSampler checks what depends on the source's tensors.
func (m *sampling) checkSampler() error {
	if err := m.checkWeights(); err != nil {
		return err
	}
	if err := m.parts.types.checkTimes(m); err != nil {
		return err
	}
	o := &m.options
	if o.walk() && o.Cache == "expected" {
		return fmt.Errorf("%w: cache \"expected\" follows draws from neighbour lists, not walks: use \"presc\"",
			ErrOption)
	}
	if o.walk() { // whose edges are not the graph's: batches bring no edge tensors
		m.parts.tensors = slices.DeleteFunc(slices.Clone(m.parts.tensors), func(t tensor) bool { return t.byEdge })
	}
	clash := slices.ContainsFunc(m.parts.tensors, func(t tensor) bool {
		return t.name == edgeWeightName && (t.byEdge || t.label == t.name)
	})
	m.parts.weighted = o.walk() || o.Labor != nil && !o.NoEdgeWeight
	if m.parts.weighted && clash {
		return fmt.Errorf("%w: the graph has a tensor %q, which is what the sampler calls the weights that it gives: "+
			"rename the tensor, or let LABOR give none", ErrOption, edgeWeightName)
	}
	return nil
}

// openWeights prepares the weights of all relations. Their topology is open.
func (s *schema) openWeights(ctx context.Context, m *sampling) ([]*sample.Weights, error) {
	found := m.weightTensors()
	if found == nil {
		return nil, nil
	}
	weights := make([]*sample.Weights, len(found))
	for i, t := range found {
		if t == nil {
			continue
		}
		var err error
		if weights[i], err = m.graph.Weights(ctx, m.weightColumn(t), &s.relations[i].Lists); err != nil {
			return nil, s.ofRelation(i, err)
		}
	}
	return weights, nil
}

// weightColumn is a tensor of weights as package graph reads it. A trial does not look for bad ones.
func (m *sampling) weightColumn(t *tensor) graph.WeightColumn {
	return graph.WeightColumn{
		Column: t.column(), ByPosition: m.byPosition(t), InMemory: m.split.Weights, Unchecked: m.trial,
		Bad: func(edge int64, w float64) error {
			return fmt.Errorf("%w: weight_attr %q is %v for edge %d, expected a finite number of "+
				"at least 0 and at most %g",
				ErrOption, t.name, w, edge, store.MaxWeight)
		},
	}
}

// weightBytes returns the memory of the weights of a tensor.
func weightBytes(t *tensor) int64 {
	of := graph.WeightColumn{Column: t.column()}
	return of.Bytes()
}

// byPosition is the weights of a tensor by position, nil where the store does not have them.
func (m *sampling) byPosition(t *tensor) *store.Weights {
	if m.parts.store == nil || t.onDisk == nil {
		return nil
	}
	if w := m.parts.store.EdgeTypes()[t.typ].Weights; w != nil && w.Of == t.name {
		return w
	}
	return nil
}

// userWeights returns the memory of a tensor's weights in the user's order, while they are put into the order of
// positions.
func (m *sampling) userWeights(t *tensor) int64 {
	if m.byPosition(t) != nil {
		return 0
	}
	return t.bytes()
}
