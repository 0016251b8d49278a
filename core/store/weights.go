package store

import (
	"freshgo/core/manifest"
)

// The weights of an edge type by position, and the sums of blocks of them: what a draw from a list on disk reads
// instead of the edge numbers and the weights of the whole list. They are made of a tensor of the user's when Convert
// is asked to, and carry nothing that this and edge_ids do not say.

// MaxWeight keeps the sums of lists finite: of a list of 2^57 such weights. Arbitrary.
const MaxWeight = 1e290

// WeightBlock is the number of weights in a block that has a sum.
const WeightBlock = 16

// GoodWeight reports whether edges can be drawn by a weight: it is finite, not negative and at most MaxWeight. NaN is
// not.
func GoodWeight(w float64) bool { return w >= 0 && w <= MaxWeight }

// NarrowWeights reports whether float32 holds all values of a type.
func NarrowWeights(dtype manifest.DType) bool {
	switch dtype {
	case manifest.DType_INT32, manifest.DType_INT64, manifest.DType_UINT32, manifest.DType_UINT64, manifest.DType_FLOAT64:
		return false
	}
	return true
}

// weightsType returns the type in which weights of a type are stored by position.
func weightsType(dtype manifest.DType) manifest.DType {
	if NarrowWeights(dtype) {
		return manifest.DType_FLOAT32
	}
	return manifest.DType_FLOAT64
}

// weightSums returns the number of sums for a number of edges.
func weightSums(edges int64) int64 { return edges / WeightBlock }

// Weights holds the weights of an edge type by position. Block j of a list that begins at s has its weights 16j to
// 16j+16; row s/16+j of Sums is the sum of the list's blocks 0 to j, added in float64 one weight after the other, if
// block j is whole. Other rows are 0.
type Weights struct {
	Of    string // the tensor that they are of
	Array        // float32 or float64, a row for each position
	Sums  Array  // float64
}

// weights validates the weights by position of e edges, or returns nil where there are none. Without sums they are of
// no use here and left alone, as the format allows.
func (c *checker) weights(edge *manifest.EdgeType, tensors []Tensor, e int64) *Weights {
	if c.err != nil || edge.GetWeightSums() == nil {
		return nil
	}
	for i := range tensors {
		t := &tensors[i]
		if t.Name != edge.GetWeightsOf() {
			continue
		}
		if err := checkWeights(t.DType, t.RowShape); err != nil {
			c.fail("weights of the tensor %q: %v", t.Name, err)
			return nil
		}
		return &Weights{
			Of:    t.Name,
			Array: *c.column(edge.GetWeights(), "weights", e, weightsType(t.DType)),
			Sums:  *c.column(edge.GetWeightSums(), "weight_sums", weightSums(e), manifest.DType_FLOAT64),
		}
	}
	c.fail("weights are of the tensor %q, which is none", edge.GetWeightsOf())
	return nil
}

// checkWeights says why rows of this type and shape are no weights.
func checkWeights(dtype manifest.DType, rowShape []int64) error {
	for _, d := range rowShape {
		if d != 1 {
			return invalid("rows have shape %v, expected one number for each edge", rowShape)
		}
	}
	if !dtype.IsFloat() && !dtype.IsInteger() {
		return invalid("%s, expected numbers", dtype.Label())
	}
	return nil
}

// arrays returns the arrays of weights; w may be nil.
func (w *Weights) arrays() []*Array {
	if w == nil {
		return nil
	}
	return []*Array{&w.Array, &w.Sums}
}
