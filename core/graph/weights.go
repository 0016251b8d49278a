package graph

import (
	"context"
	"sync"

	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// WeightColumn is a tensor with a number for each edge, in the user's order of edges, that edges
// are drawn in proportion to.
type WeightColumn struct {
	Column
	ByPosition *store.Weights // the same by position; nil: the store does not have them
	InMemory   bool           // they are put into memory
	Unchecked  bool           // bad ones on disk are errors only where they are drawn by
	// Bad is the error of a number that is no weight.
	Bad func(edge int64, w float64) error
}

// Bytes returns the memory of the weights, with their sums.
func (t *WeightColumn) Bytes() int64 {
	each := int64(8)
	if store.NarrowWeights(t.DType) {
		each = 4
	}
	return t.NumRows*each + 8*max(1, sample.SumsLen(t.NumRows))
}

// Stay stands for weights that stay on disk, for what a sampler needs to draw by them.
func (t *WeightColumn) Stay() *sample.Weights {
	if t.ByPosition != nil {
		return &sample.Weights{Source: &positionWeights{}}
	}
	return &sample.Weights{Source: &diskWeights{}}
}

// Weights makes the weights of a relation ready, until o is closed.
func (o *Opened) Weights(ctx context.Context, t WeightColumn, of *Lists) (*sample.Weights, error) {
	switch {
	case t.ByPosition != nil && t.InMemory:
		return o.holdPositions(ctx, t.ByPosition, of.Indptr)
	case o.Store == nil || t.InMemory:
		return o.holdWeights(ctx, &t, of)
	case t.ByPosition != nil:
		w, err := o.openPositions(ctx, t.ByPosition)
		return &sample.Weights{Source: w}, err
	}
	disk, err := o.Rows(ctx, &t.Disk.Array)
	if err != nil {
		return nil, err
	}
	w := &diskWeights{edgeIDs: &of.EdgeIDs, tensor: &t, disk: disk, scratch: NewScratchPool()}
	if !t.Unchecked {
		// All of them, so that a bad one is an error now and not in some batch.
		buffer := make([]float64, ScanIDs)
		err = disk.Scan(ctx, o.Budget, func(first int64, data []byte) error {
			return t.eachWeight(ctx, first, data, buffer, nil)
		})
	}
	return &sample.Weights{Source: w}, err
}

// holdWeights puts the weights into memory, by position.
func (o *Opened) holdWeights(ctx context.Context, t *WeightColumn, of *Lists) (*sample.Weights, error) {
	rows, free, err := o.Whole(ctx, &t.Column)
	if err != nil {
		return nil, err
	}
	defer free()
	n, w := t.NumRows, new(sample.Weights)
	numSums := sample.SumsLen(n)
	block, err := o.hold(t.Bytes() - 8*max(1, numSums))
	if err != nil {
		return nil, err
	}
	sums, err := o.hold(8 * max(1, numSums))
	if err != nil {
		return nil, err
	}
	w.Sums = mem.Slice[float64](sums)[:numSums]
	buffer := make([]float64, ScanIDs)
	if store.NarrowWeights(t.DType) {
		w.Narrow = mem.Slice[float32](block)[:n]
		if err = placeWeights(ctx, o, t, &of.EdgeIDs, rows, buffer, w.Narrow); err == nil {
			w.Positive = sample.Sum(of.Indptr, w.Narrow, w.Sums)
		}
	} else {
		w.Wide = mem.Slice[float64](block)[:n]
		if err = placeWeights(ctx, o, t, &of.EdgeIDs, rows, buffer, w.Wide); err == nil {
			w.Positive = sample.Sum(of.Indptr, w.Wide, w.Sums)
		}
	}
	return w, err
}

// placeWeights writes the weight of the edge at each position to out.
func placeWeights[W float32 | float64](
	ctx context.Context, o *Opened, t *WeightColumn, edgeIDs *IDs, rows []byte, buffer []float64, out []W,
) error {
	if edgeIDs.Identity() {
		return t.eachWeight(ctx, 0, rows, buffer, func(first int64, weights []float64) {
			for i, w := range weights {
				out[first+int64(i)] = W(w)
			}
		})
	}
	if err := t.eachWeight(ctx, 0, rows, buffer, nil); err != nil { // in the user's order, which a message speaks of
		return err
	}
	return edgeIDs.Scan(ctx, o.Budget, func(first int64, ids []int64) error {
		part := buffer[:len(ids)]
		store.GatherFloats(t.DType, rows, ids, part)
		for i, w := range part {
			out[first+int64(i)] = W(w)
		}
		return nil
	})
}

// eachWeight checks the weights of the edges from first on and gives them to visit, a part at a time.
func (t *WeightColumn) eachWeight(
	ctx context.Context, first int64, rows []byte, buffer []float64, visit func(first int64, weights []float64),
) error {
	return store.EachFloat(t.DType, rows, buffer, func(at int64, part []float64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i := store.BadWeight(part); i >= 0 {
			return t.Bad(first+at+int64(i), part[i])
		}
		if visit != nil {
			visit(first+at, part)
		}
		return nil
	})
}

// diskWeights is weights on disk.
type diskWeights struct {
	edgeIDs *IDs
	tensor  *WeightColumn
	disk    *Rows
	scratch *sync.Pool // *Scratch, one per hop in flight
}

// FetchWeights implements sample.WeightSource.
func (w *diskWeights) FetchWeights(ctx context.Context, d sample.Drawn, out []float64) error {
	s := w.scratch.Get().(*Scratch)
	defer w.scratch.Put(s)
	s.edges = reuse.Slice(s.edges, len(d.Pos))
	if err := w.edgeIDs.Gather(ctx, s, d, s.edges); err != nil {
		return err
	}
	return w.read(ctx, s, out)
}

// FetchFrom reads the weights of the positions from first on.
func (w *diskWeights) FetchFrom(ctx context.Context, first int64, out []float64) error {
	s := w.scratch.Get().(*Scratch)
	defer w.scratch.Put(s)
	s.edges = reuse.Slice(s.edges, len(out))
	for i := range s.edges {
		s.edges[i] = first + int64(i)
	}
	whole := *w.edgeIDs
	whole.lists, whole.counts = nil, nil // these are of draws
	if err := whole.Gather(ctx, s, sample.Drawn{Pos: s.edges}, s.edges); err != nil {
		return err
	}
	return w.read(ctx, s, out)
}

// read reads the weights of the edges that a scratch lists.
func (w *diskWeights) read(ctx context.Context, s *Scratch, out []float64) error {
	return w.disk.Read(ctx, &s.Merger, s.edges, func(i int32, row []byte) error {
		store.DecodeFloats(w.tensor.DType, row, out[i:i+1])
		if !store.GoodWeight(out[i]) {
			return w.tensor.Bad(s.edges[i], out[i])
		}
		return nil
	})
}
