package sample

import (
	"context"
	"fmt"
)

// Weights holds the weights of edges for weighted draws, by position in the index array. The caller has checked that
// they are finite and not negative, and that the sum of each list is finite. Exactly one of Narrow and Wide, with Sums,
// or Source is set.
type Weights struct {
	Narrow []float32
	Wide   []float64
	Sums   []float64 // of SumsLen elements, made by Sum
	// Positive means that no weight is 0, as Sum finds out. It changes no batch: without it a hop is made in two
	// passes, since a target may get fewer edges than its fanout.
	Positive bool
	Source   WeightSource
}

// WeightSource is weights that are not in memory.
type WeightSource interface {
	// FetchWeights sets out[i] to the weight of the edge at d.Pos[i], as Adjacency.Fetch does with sources. It is
	// called with whole lists.
	FetchWeights(ctx context.Context, d Drawn, out []float64) error
}

// sumBlock is the number of weights in a block that has a sum: a cache line of Narrow. A draw searches the sums of a
// list and then adds up the weights of one block, each addition waiting for the one before.
const sumBlock = 16

// SumsLen returns the number of sums for a number of edges.
func SumsLen(edges int64) int64 { return edges / sumBlock }

// Sum makes the sums of lists, which begin where indptr says. Block j of a list that begins at s are its weights 16j to
// 16j+16; the sum of the list's blocks 0 to j is sums[s/16+j], where no other list has one. They are running sums of
// float64: 2^25 equal weights of float32 are summed without an error, and any others with one of 2^-53 of the sum in
// each addition. It returns whether all weights are above 0, for Positive.
func Sum[W float32 | float64](indptr []int64, weights []W, sums []float64) (positive bool) {
	for v := range len(indptr) - 1 {
		list := weights[indptr[v]:indptr[v+1]]
		at, sum := indptr[v]/sumBlock, 0.
		for ; len(list) >= sumBlock; list = list[sumBlock:] {
			for _, w := range list[:sumBlock] {
				sum += float64(w)
			}
			sums[at] = sum
			at++
		}
	}
	for _, w := range weights {
		if !(w > 0) {
			return false
		}
	}
	return true
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

// fetch is FetchWeights of any weights.
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
