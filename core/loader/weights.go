package loader

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// The weights that edges are drawn by: an edge tensor with a number for each edge, in the user's order of edges. The sampler
// wants them in its own, by target. In memory they are put into that order at opening, with sums of blocks so that a long
// list need not be added up. On disk they stay where the store has them: by position, see positionWeights, or else by number
// only. Then a hop needs the weights of whole lists, so their edge numbers are read, and then the weights with these numbers.
// Where the user's edges are sorted by target those of a list lie together; else each is a read of its own, but for those on
// a page that several are on.

// edgeWeightName is the tensor of what LABOR and walks say of an edge.
const edgeWeightName = "edge_weight"

// weightTensor returns the tensor that Options.WeightAttr names, nil where it names none.
func (l *Loader) weightTensor() (*tensor, error) {
	name := l.options.WeightAttr
	if name == "" {
		return nil, nil
	}
	var known []string
	for i := range l.parts.tensors {
		t := &l.parts.tensors[i]
		if !t.byEdge {
			continue
		}
		if t.name != name {
			known = append(known, t.name)
			continue
		}
		return t, t.checkWeight()
	}
	return nil, fmt.Errorf("%w: weight_attr %q is no edge tensor, the edge tensors are %q", ErrOption, name, known)
}

// checkWeight says why a tensor holds no weights.
func (t *tensor) checkWeight() error {
	if one := t.width == t.dtype.Size(); !one || !t.dtype.IsFloat() && !t.dtype.IsInteger() {
		return fmt.Errorf("%w: weight_attr %q holds %s %v for each edge, expected one number", ErrOption, t.name, t.dtype.Label(), t.rowShape)
	}
	return nil
}

// checkSampler checks what depends on the source's tensors.
func (l *Loader) checkSampler() error {
	if err := l.checkWeights(); err != nil {
		return err
	}
	if err := l.checkTimes(); err != nil {
		return err
	}
	o := &l.options
	if o.walk() && o.Cache == "expected" {
		return fmt.Errorf("%w: cache \"expected\" follows draws from neighbour lists, not walks: use \"presc\"", ErrOption)
	}
	if o.walk() { // whose edges are not the graph's: batches bring no edge tensors
		l.parts.tensors = slices.DeleteFunc(slices.Clone(l.parts.tensors), func(t tensor) bool { return t.byEdge })
	}
	clash := slices.ContainsFunc(l.parts.tensors, func(t tensor) bool {
		return t.name == edgeWeightName && (t.byEdge || l.parts.types.unnamed())
	})
	l.parts.weighted = o.walk() || o.Labor != nil && !o.NoEdgeWeight
	if l.parts.weighted && clash {
		return fmt.Errorf("%w: the graph has a tensor %q, which is what the sampler calls the weights that it gives: rename the tensor, or let LABOR give none", ErrOption, edgeWeightName)
	}
	return nil
}

// weightBytes is what weights take in memory, with their sums.
func weightBytes(t *tensor) int64 {
	each := int64(8)
	if store.NarrowWeights(t.dtype) {
		each = 4
	}
	return t.numRows*each + 8*max(1, sample.SumsLen(t.numRows))
}

// openWeights makes the weights ready for the sampler, nil where edges are drawn uniformly.
func (l *Loader) openWeights(ctx context.Context, indptr []int64) (*sample.Weights, error) {
	t, err := l.weightTensor()
	if err != nil || t == nil {
		return nil, err
	}
	return l.openWeightsOf(ctx, t, indptr, &l.edgeIDs)
}

// openWeightsOf makes a tensor ready whose edges have these numbers.
func (l *Loader) openWeightsOf(ctx context.Context, t *tensor, indptr []int64, edgeIDs *idArray) (*sample.Weights, error) {
	of := l.byPosition(t)
	switch {
	case of != nil && l.split.Weights:
		return l.holdPositions(ctx, of, indptr)
	case l.parts.store == nil || l.split.Weights:
		return l.holdWeights(ctx, t, indptr, edgeIDs)
	case of != nil:
		w, err := l.openPositions(ctx, of)
		return &sample.Weights{Source: w}, err
	}
	disk, err := l.openRows(ctx, &t.onDisk.Array)
	if err != nil {
		return nil, err
	}
	w := &diskWeights{edgeIDs: edgeIDs, tensor: t, disk: disk, scratch: sync.Pool{New: func() any { return new(fetchScratch) }}}
	if !l.trial {
		// All of them, so that a bad one is an error now and not in some batch.
		buffer := make([]float64, scanIDs)
		err = disk.scan(ctx, l.budget, func(first int64, data []byte) error { return t.eachWeight(ctx, first, data, buffer, nil) })
	}
	return &sample.Weights{Source: w}, err
}

// holdWeights puts the weights into memory, by position.
func (l *Loader) holdWeights(ctx context.Context, t *tensor, indptr []int64, edgeIDs *idArray) (*sample.Weights, error) {
	rows, free, err := l.allRows(ctx, t)
	if err != nil {
		return nil, err
	}
	defer free()
	n, w := t.numRows, new(sample.Weights)
	numSums := sample.SumsLen(n)
	block, err := l.hold(weightBytes(t) - 8*max(1, numSums))
	if err != nil {
		return nil, err
	}
	sums, err := l.hold(8 * max(1, numSums))
	if err != nil {
		return nil, err
	}
	w.Sums = mem.Slice[float64](sums)[:numSums]
	buffer := make([]float64, scanIDs)
	if store.NarrowWeights(t.dtype) {
		w.Narrow = mem.Slice[float32](block)[:n]
		if err = placeWeights(ctx, l, t, edgeIDs, rows, buffer, w.Narrow); err == nil {
			w.Positive = sample.Sum(indptr, w.Narrow, w.Sums)
		}
	} else {
		w.Wide = mem.Slice[float64](block)[:n]
		if err = placeWeights(ctx, l, t, edgeIDs, rows, buffer, w.Wide); err == nil {
			w.Positive = sample.Sum(indptr, w.Wide, w.Sums)
		}
	}
	return w, err
}

// placeWeights writes the weight of the edge at each position to out.
func placeWeights[W float32 | float64](ctx context.Context, l *Loader, t *tensor, edgeIDs *idArray, rows []byte, buffer []float64, out []W) error {
	if edgeIDs.identity() {
		return t.eachWeight(ctx, 0, rows, buffer, func(first int64, weights []float64) {
			for i, w := range weights {
				out[first+int64(i)] = W(w)
			}
		})
	}
	if err := t.eachWeight(ctx, 0, rows, buffer, nil); err != nil { // in the user's order, which a message speaks of
		return err
	}
	width, one := int64(t.width), make([]float64, 1)
	return edgeIDs.scan(ctx, l.budget, func(first int64, ids []int64) error {
		for i, e := range ids {
			store.DecodeFloats(t.dtype, rows[e*width:(e+1)*width], one)
			out[first+int64(i)] = W(one[0])
		}
		return nil
	})
}

// eachWeight checks the weights of the edges from first on and gives them to visit, a part at a time.
func (t *tensor) eachWeight(ctx context.Context, first int64, rows []byte, buffer []float64, visit func(first int64, weights []float64)) error {
	return store.EachFloat(t.dtype, rows, buffer, func(at int64, part []float64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i := store.BadWeight(part); i >= 0 {
			return t.badWeight(first+at+int64(i), part[i])
		}
		if visit != nil {
			visit(first+at, part)
		}
		return nil
	})
}

func (t *tensor) badWeight(edge int64, w float64) error {
	return fmt.Errorf("%w: weight_attr %q is %v for edge %d, expected a finite number of at least 0 and at most %g", ErrOption, t.name, w, edge, store.MaxWeight)
}

// diskWeights is weights on disk.
type diskWeights struct {
	edgeIDs *idArray
	tensor  *tensor
	disk    *diskRows
	scratch sync.Pool // *fetchScratch, one per hop in flight
}

// FetchWeights implements sample.WeightSource.
func (w *diskWeights) FetchWeights(ctx context.Context, d sample.Drawn, out []float64) error {
	s := w.scratch.Get().(*fetchScratch)
	defer w.scratch.Put(s)
	s.edges = grown(s.edges, len(d.Pos))
	if err := w.edgeIDs.gather(ctx, s, d, s.edges); err != nil {
		return err
	}
	return w.read(ctx, s, out)
}

// fetchFrom reads the weights of the positions from first on.
func (w *diskWeights) fetchFrom(ctx context.Context, first int64, out []float64) error {
	s := w.scratch.Get().(*fetchScratch)
	defer w.scratch.Put(s)
	s.edges = grown(s.edges, len(out))
	for i := range s.edges {
		s.edges[i] = first + int64(i)
	}
	whole := *w.edgeIDs
	whole.lists, whole.counts = nil, nil // these are of draws
	if err := whole.gather(ctx, s, sample.Drawn{Pos: s.edges}, s.edges); err != nil {
		return err
	}
	return w.read(ctx, s, out)
}

// read reads the weights of the edges that a scratch lists.
func (w *diskWeights) read(ctx context.Context, s *fetchScratch, out []float64) error {
	return w.disk.read(ctx, &s.merger, s.edges, func(i int32, row []byte) error {
		store.DecodeFloats(w.tensor.dtype, row, out[i:i+1])
		if !store.GoodWeight(out[i]) {
			return w.tensor.badWeight(s.edges[i], out[i])
		}
		return nil
	})
}
