package draw

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// Edge weights: relations with a tensor of the name in Options.WeightAttr, or WeightAttrs, draw by it, the others
// uniformly. The tensor has a number for each edge, in the user's order of edges. The sampler needs them by position,
// grouped by target. In memory they are brought into that order at opening, with sums of blocks so that a long list
// need not be summed. On disk they stay as the store has them: by position, see positionWeights, or else only by
// number. Then a hop needs the weights of whole lists, so it reads their edge numbers, and then the weights with these
// numbers. If the user's edges are sorted by target, the weights of a list are contiguous; else each is a separate
// read, except for those that share a page.

// EdgeWeightName is the tensor of the weights that a sampler gives edges.
const EdgeWeightName = "edge_weight"

// weightTensors returns the tensor of each relation that is drawn by one, and nil of the others; or
// nothing where all are drawn uniformly.
func weightTensors(m *Sampling) []*Tensor {
	if !m.Options.Weighted() {
		return nil
	}
	of := make([]*Tensor, len(m.Parts.Schema.Relations))
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; t.ByEdge && t.Name == m.Options.weightsOf(t.Type) {
			of[t.Type] = t
		}
	}
	return of
}

// Weighted says whether edges of any relation may be drawn by weights.
func (o *Options) Weighted() bool { return o.WeightAttr != "" || o.WeightAttrs != nil }

// weightsOf returns the name of the tensor that the edges of a relation are drawn by, if it has that.
func (o *Options) weightsOf(relation int) string {
	if o.WeightAttrs != nil {
		return o.WeightAttrs[relation]
	}
	return o.WeightAttr
}

// checkWeights checks the tensors that edges are drawn by.
func checkWeights(m *Sampling) error {
	types := m.Parts.Schema
	if n := len(m.Options.WeightAttrs); n > 0 && n != len(types.Relations) {
		return fmt.Errorf("%w: weight_attr has %d names, expected one for each of %d edge types",
			ErrOption, n, len(types.Relations))
	}
	found := weightTensors(m)
	if found == nil {
		return nil
	}
	for i, t := range found {
		if t == nil {
			if m.Options.WeightAttrs != nil && m.Options.WeightAttrs[i] != "" {
				return types.OfRelation(i, fmt.Errorf("%w: weight_attr %q is no edge tensor, the edge tensors are %q",
					ErrOption, m.Options.WeightAttrs[i], edgeTensors(m, func(t *Tensor) bool { return t.Type == i },
						func(t *Tensor) string { return t.Name })))
			}
			continue
		}
		if err := t.checkWeight(); err != nil {
			return types.OfRelation(i, err)
		}
	}
	if slices.ContainsFunc(found, func(t *Tensor) bool { return t != nil }) {
		return nil
	}
	known := edgeTensors(m, func(*Tensor) bool { return true }, types.fullName)
	return fmt.Errorf("%w: weight_attr %q is no edge tensor, the edge tensors are %q", ErrOption, m.Options.WeightAttr,
		known)
}

// edgeTensors returns what name calls the tensors of edges for which is holds.
func edgeTensors(m *Sampling, is func(*Tensor) bool, name func(*Tensor) string) []string {
	var names []string
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; t.ByEdge && is(t) {
			names = append(names, name(t))
		}
	}
	return names
}

// checkWeight says why a tensor holds no weights.
func (t *Tensor) checkWeight() error {
	if one := t.Width == t.Stored.Size(); !one || !t.DType.IsFloat() && !t.DType.IsInteger() {
		return fmt.Errorf("%w: weight_attr %q holds %s for each edge, expected one number", ErrOption, t.Name, t.row())
	}
	return nil
}

// row describes a row for messages: "bool", "float32 [2]".
func (t *Tensor) row() string {
	if len(t.RowShape) == 0 {
		return t.DType.Label()
	}
	return fmt.Sprintf("%s %v", t.DType.Label(), t.RowShape)
}

// checkSampler checks what depends on the source's tensors.
func checkSampler(m *Sampling) error {
	if err := checkWeights(m); err != nil {
		return err
	}
	if err := checkTimes(m); err != nil {
		return err
	}
	if !m.Gives(sample.CanEdgeIDs) { // batches bring no tensors of edges that are not the graph's
		m.Parts.Tensors = slices.DeleteFunc(slices.Clone(m.Parts.Tensors), func(t Tensor) bool { return t.ByEdge })
	}
	clash := slices.ContainsFunc(m.Parts.Tensors, func(t Tensor) bool {
		return t.Name == EdgeWeightName && (t.ByEdge || t.Label == t.Name)
	})
	if m.Parts.Weighted && clash {
		return fmt.Errorf("%w: the graph has a tensor %q, the name that batches use for the sampler's weights: "+
			"rename the tensor, or pass edge_weight=False to the sampler", ErrOption, EdgeWeightName)
	}
	return nil
}

// openWeights prepares the weights of all relations. Their topology is open.
func openWeights(ctx context.Context, m *Sampling) ([]*sample.Weights, error) {
	s := m.Parts.Schema
	found := weightTensors(m)
	if found == nil {
		return nil, nil
	}
	weights := make([]*sample.Weights, len(found))
	for i, t := range found {
		if t == nil {
			continue
		}
		var err error
		if weights[i], err = m.Graph.Weights(ctx, weightColumn(m, t), &s.Relations[i].Lists); err != nil {
			return nil, s.OfRelation(i, err)
		}
	}
	return weights, nil
}

// weightColumn returns a tensor of weights as package graph reads it. A trial does not look for bad ones.
func weightColumn(m *Sampling, t *Tensor) graph.WeightColumn {
	return graph.WeightColumn{
		Column: t.column(), ByPosition: t.positions, InMemory: m.Split.Weights, Unchecked: m.trial,
		Bad: func(edge int64, w float64) error {
			return fmt.Errorf("%w: weight_attr %q is %v for edge %d, expected a finite number of "+
				"at least 0 and at most %g",
				ErrOption, t.Name, w, edge, store.MaxWeight)
		},
	}
}
