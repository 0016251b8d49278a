package propagate

import (
	"context"
	"fmt"
	"math"

	"freshgo/core/graph"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/store"
)

// lists are the in-edges of one edge type, and what each is multiplied by.
type lists struct {
	*part
	kind    string
	indptr  []int64
	sources graph.IDs
	weights *weights  // nil: all are 1
	inverse []float64 // with GCN, the inverse root of each node's degree

	space   []byte  // of what is read
	ids     []int64 // of a piece
	numbers []float64
}

// weights are those of edges by position.
type weights struct {
	dtype manifest.DType
	rows  *graph.Rows // by position, or
	whole []byte      // by the user's number of the edge
	edges graph.IDs   // which these are of
	space []byte
	ids   []int64
}

// openLists makes the lists of a part ready.
func (p *pass) openLists(ctx context.Context, of *part) (*lists, error) {
	l := &lists{part: of, kind: p.kind}
	block, err := of.edges.LoadIndptr(ctx, p.r.budget, mem.Convert)
	if err != nil {
		return nil, err
	}
	p.blocks = append(p.blocks, block)
	p.r.report.Read += of.edges.Indptr.Bytes
	l.indptr = mem.Slice[int64](block)[:of.edges.NumNodes+1]
	o := &p.r.opened
	if l.sources, err = o.IDs(ctx, of.edges.Indices, false, of.edges.NumSources, nil, nil); err != nil {
		return nil, err
	}
	if l.space, err = p.alloc(graph.SpanBytes(of.edges.Indices.Layout, listPiece)); err != nil {
		return nil, err
	}
	buffers, err := p.alloc(2 * 8 * listPiece)
	if err != nil {
		return nil, err
	}
	l.ids, l.numbers = mem.View[int64](buffers[:8*listPiece]), mem.View[float64](buffers[8*listPiece:])
	if of.weights != nil {
		if l.weights, err = p.openWeights(ctx, of); err != nil {
			return nil, err
		}
	}
	if l.kind == GCN {
		return l, p.degrees(ctx, l)
	}
	return l, nil
}

// openWeights makes the weights of a part ready: by position where the store has them so, or where positions are the
// user's numbers; else all of them are put into memory.
func (p *pass) openWeights(ctx context.Context, of *part) (w *weights, err error) {
	o, t, ids := &p.r.opened, of.weights, of.edges.EdgeIDs
	w = &weights{dtype: t.DType}
	array := &t.Array
	switch by := of.edges.Weights; {
	case by != nil && by.Of == t.Name:
		w.dtype, array = by.DType, &by.Array
	case ids != nil:
		block, err := p.r.store.LoadTensor(ctx, array, p.r.budget, mem.Convert)
		if err != nil {
			return nil, err
		}
		p.blocks = append(p.blocks, block)
		p.r.report.Read += array.Bytes
		w.whole = block.Bytes()
		if w.edges, err = o.IDs(ctx, ids, false, of.edges.NumEdges, nil, nil); err != nil {
			return nil, err
		}
		if w.space, err = p.alloc(graph.SpanBytes(ids.Layout, listPiece)); err != nil {
			return nil, err
		}
		buffer, err := p.alloc(8 * listPiece)
		w.ids = mem.View[int64](buffer)
		return w, err
	}
	if w.rows, err = o.Rows(ctx, array); err != nil {
		return nil, err
	}
	w.space, err = p.alloc(graph.SpanBytes(array.Layout, listPiece))
	return w, err
}

// listsBytes is the memory of openLists.
func (p *pass) listsBytes(of *part) int64 {
	e := of.edges
	n := e.Indptr.Bytes + e.Indices.CRCBytes() + graph.SpanBytes(e.Indices.Layout, listPiece) + 2*8*listPiece
	if p.kind == GCN {
		n += 8 * e.NumNodes
	}
	if of.weights == nil {
		return n
	}
	n += of.weights.LoadBytes() + of.weights.Rows*int64(of.weights.Layout.RowBytes)
	if e.EdgeIDs != nil {
		n += e.EdgeIDs.CRCBytes() + graph.SpanBytes(e.EdgeIDs.Layout, listPiece) + 8*listPiece
	}
	return n + graph.SpanBytes(of.weights.Layout, listPiece)
}

// read reads the weights at positions from first on.
func (w *weights) read(ctx context.Context, first int64, out []float64) error {
	if w.rows != nil {
		data, err := w.rows.Span(ctx, w.space, first, int64(len(out)))
		if err == nil {
			store.DecodeFloats(w.dtype, data, out)
		}
		return err
	}
	ids, size := w.ids[:len(out)], int64(w.dtype.Size())
	if err := w.edges.Span(ctx, w.space, first, ids); err != nil {
		return err
	}
	for i, e := range ids {
		store.DecodeFloats(w.dtype, w.whole[e*size:(e+1)*size], out[i:i+1])
	}
	return nil
}

// weighs says whether edges are multiplied by other than 1.
func (l *lists) weighs() bool { return l.weights != nil || l.kind == GCN }

// edgeBytes is the memory of an edge in a window.
func (l *lists) edgeBytes() int64 {
	if l.weighs() {
		return weightedBytes
	}
	return plainBytes
}

// count is how many edges a target has in a window at most.
func (l *lists) count(target int64) int64 {
	n := l.indptr[target+1] - l.indptr[target]
	if l.kind == GCN {
		n++ // its self-loop
	}
	return n
}

// visit calls fn with the edges at positions from first to end, a piece at a time, and their weights, nil where all
// are 1.
func (l *lists) visit(
	ctx context.Context, first, end int64, fn func(first int64, sources []int64, weights []float64) error,
) error {
	for ; first < end; first += listPiece {
		ids := l.ids[:min(listPiece, end-first)]
		if err := l.sources.Span(ctx, l.space, first, ids); err != nil {
			return err
		}
		var numbers []float64
		if l.weights != nil {
			numbers = l.numbers[:len(ids)]
			if err := l.weights.read(ctx, first, numbers); err != nil {
				return err
			}
		}
		if err := fn(first, ids, numbers); err != nil {
			return err
		}
	}
	return nil
}

// collect puts the edges of a window of a pass: those of a run of positions, or those of targets here and there among
// all.
func (l *lists) collect(ctx context.Context, p *pass, i int) error {
	w := &p.window
	target, rowOf := w.first, p.rowOf[i]
	first, end := int64(0), l.indptr[len(l.indptr)-1]
	if p.at == nil {
		first, end = l.indptr[w.first], l.indptr[w.end]
	} else {
		target = 0
	}
	loop := 1.0        // with GCN the weight of the target's self-loop: that of the last that it has
	finish := func() { // the target at hand has all its edges
		if at, within := p.within(target); within && l.kind == GCN {
			w.edges.put(rowNumber(rowOf, target), at, loop*l.inverse[target])
		}
		loop = 1
		target++
	}
	err := l.visit(ctx, first, end, func(first int64, sources []int64, numbers []float64) error {
		for k, u := range sources {
			for first+int64(k) >= l.indptr[target+1] {
				finish()
			}
			at, within := p.within(target)
			if !within {
				continue
			}
			c := 1.0
			if numbers != nil {
				c = numbers[k]
			}
			if l.kind == GCN {
				if u == target {
					loop = c
					continue
				}
				c *= l.inverse[u]
			}
			w.edges.put(rowNumber(rowOf, u), at, c)
		}
		return nil
	})
	last := int64(len(l.indptr) - 1)
	if p.at == nil {
		last = w.end
	}
	for err == nil && target < last {
		finish()
	}
	return err
}

// within is the place in the window of a target, if it is there.
func (p *pass) within(target int64) (uint32, bool) {
	row := target
	if p.at != nil {
		row = int64(p.at[target])
	}
	at := row - p.window.first
	return uint32(at), at >= 0 && row < p.window.end
}

func rowNumber(rowOf []uint32, node int64) uint32 {
	if rowOf == nil {
		return uint32(node)
	}
	return rowOf[node]
}

// degrees finds the inverse root of every node's degree: the weights of its in-edges added up, its self-loop's once.
func (p *pass) degrees(ctx context.Context, l *lists) error {
	block, err := p.alloc(8 * l.edges.NumNodes)
	if err != nil {
		return err
	}
	l.inverse = mem.View[float64](block)
	target, degree, loop := int64(0), 0.0, 1.0
	finish := func() {
		degree += loop
		if degree > 0 {
			l.inverse[target] = 1 / math.Sqrt(degree)
		} else if degree < 0 || degree != degree {
			l.inverse[target] = math.NaN()
		}
		target, degree, loop = target+1, 0, 1
	}
	err = l.visit(ctx, 0, l.edges.NumEdges, func(first int64, sources []int64, numbers []float64) error {
		for k, u := range sources {
			for first+int64(k) >= l.indptr[target+1] {
				finish()
			}
			c := 1.0
			if numbers != nil {
				c = numbers[k]
			}
			if u == target {
				loop = c
			} else {
				degree += c
			}
		}
		return nil
	})
	for err == nil && target < l.edges.NumNodes {
		finish()
	}
	if err != nil {
		return fmt.Errorf("reading degrees: %w", err)
	}
	return nil
}

// scale turns a target's sums into what the reduction asks for.
func (l *lists) scale(sums []float64, target int64) {
	switch l.kind {
	case Mean:
		n := float64(max(l.indptr[target+1]-l.indptr[target], 1))
		for i := range sums {
			sums[i] /= n
		}
	case GCN:
		for i := range sums {
			sums[i] *= l.inverse[target]
		}
	}
}
