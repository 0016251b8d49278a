package sample

import (
	"context"
	"fmt"

	"freshgo/core/offsets"
)

// Weights holds edge weights for weighted draws, by position in the index array. The caller has checked that they are
// finite and not negative, and that the sum of each list is finite. Exactly one of Narrow and Wide, with Sums, or
// Source is set.
type Weights struct {
	Narrow []float32
	Wide   []float64
	Sums   []float64 // SumsLen elements, computed by Sum
	// Positive means that no weight is 0, as Sum reports. It changes no batch: without it a hop takes two passes, since
	// targets may get fewer edges than their fanouts.
	Positive bool
	Source   WeightSource
}

// WeightSource provides weights on disk.
type WeightSource interface {
	// FetchWeights sets out[i] to the weight of the edge at d.Pos[i], like Adjacency.Fetch for sources. It is called with
	// whole lists.
	FetchWeights(ctx context.Context, d Drawn, out []float64) error
}

// sumBlock is the number of weights in a block that has a sum: a cache line of Narrow. A draw searches the sums of a
// list and then sums the weights of one block in a chain of dependent additions.
const sumBlock = 16

// SumsLen returns the number of sums for a number of edges.
func SumsLen(edges int64) int64 { return edges / sumBlock }

// Sum computes the sums of lists, whose starts are in indptr. Block j of a list that begins at s has its weights 16j to
// 16j+16; the sum of the list's blocks 0 to j is sums[s/16+j], which no other list uses. They are running sums of
// float64: 2^25 equal float32 weights have an exact sum, others an error of 2^-53 of the sum per addition. It returns
// whether all weights are above 0, for Positive.
func Sum[W float32 | float64](indptr *offsets.Table, weights []W, sums []float64) (positive bool) {
	for v := range indptr.NumNodes() {
		begin, end := indptr.Range(v)
		sumBlocks(weights[begin:end], begin, sums)
	}
	for _, w := range weights {
		if !(w > 0) {
			return false
		}
	}
	return true
}

// sumBlocks computes the sums of the list that begins at a position.
func sumBlocks[W float32 | float64](list []W, begin int64, sums []float64) {
	at, sum := begin/sumBlock, 0.
	for ; len(list) >= sumBlock; list = list[sumBlock:] {
		for _, w := range list[:sumBlock] {
			sum += float64(w)
		}
		sums[at] = sum
		at++
	}
}

// At returns the weight at a position, of weights in memory.
func (w *Weights) At(p int64) float64 {
	if w.Narrow != nil {
		return float64(w.Narrow[p])
	}
	return w.Wide[p]
}

func (w *Weights) check(r *Relation) error {
	if w.Source != nil {
		if w.Narrow != nil || w.Wide != nil {
			return fmt.Errorf("sample: weights in memory and a source of weights, expected one of them: %w", ErrConfig)
		}
		return nil
	}
	edges := r.numEdges()
	if have := int64(len(w.Narrow) + len(w.Wide)); have != edges || w.Narrow != nil && w.Wide != nil {
		return fmt.Errorf("sample: %d weights, expected %d as indptr ends: %w", have, edges, ErrConfig)
	}
	if int64(len(w.Sums)) != SumsLen(edges) {
		return fmt.Errorf("sample: %d sums of weights, expected %d: %w", len(w.Sums), SumsLen(edges), ErrConfig)
	}
	return nil
}

// fetch is FetchWeights for all kinds of weights.
func (w *Weights) fetch(ctx context.Context, d Drawn, out []float64) error {
	switch {
	case w.Source != nil:
		return inPieces(d, out, func(d Drawn, out []float64) error { return w.Source.FetchWeights(ctx, d, out) })
	case w.Narrow != nil:
		for i, p := range d.Pos {
			out[i] = float64(w.Narrow[p])
		}
	default:
		for i, p := range d.Pos {
			out[i] = w.Wide[p]
		}
	}
	return nil
}
