package propagate

import (
	"context"
	"fmt"
	"math"
	"sort"

	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/store"
)

// lists are the in-edges of one edge type, and what each is multiplied by.
type lists struct {
	*part
	kind    string
	indptr  *offsets.Table
	sources graph.IDs
	weights *weights  // nil: all are 1
	inverse []float64 // with GCN, the inverse root of each node's degree
	pieces  [2]piece  // one is read while the other is used
}

// piece is some edges, which follow one another, of a batch of targets.
type piece struct {
	first, end int64 // targets of the batch
	position   int64 // of the first edge
	ids        []int64
	numbers    []float64 // weights, nil where all are 1
	begins     bool      // its batch
	last       bool      // of its batch

	space   []byte // buffer for reads
	buffers []int64
	floats  []float64
}

// weights holds the weights of edges by position.
type weights struct {
	dtype manifest.DType
	rows  *graph.Rows // by position, or
	whole []byte      // by the user's number of the edge
	edges graph.IDs   // their edge numbers
	space []byte
	ids   []int64
}

// openLists makes the lists of a part ready.
func (p *pass) openLists(ctx context.Context, of *part) (*lists, error) {
	l := &lists{part: of, kind: p.out.kind}
	var err error
	if l.indptr, err = of.edges.LoadIndptr(ctx, p.r.budget, mem.Convert); err != nil {
		return nil, err
	}
	p.owned = append(p.owned, l.indptr)
	p.r.report.Read += of.edges.Indptr.Bytes
	o := &p.r.opened
	if l.sources, err = o.IDs(ctx, of.edges.Indices, of.edges.NumSources); err != nil {
		return nil, err
	}
	for i := range l.pieces {
		c := &l.pieces[i]
		if c.space, err = p.alloc(graph.SpanBytes(of.edges.Indices.Layout, listPiece)); err != nil {
			return nil, err
		}
		buffers, err := p.alloc(2 * 8 * listPiece)
		if err != nil {
			return nil, err
		}
		c.buffers, c.floats = mem.View[int64](buffers[:8*listPiece]), mem.View[float64](buffers[8*listPiece:])
	}
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

// openWeights opens the weights of a part: by position if the store has them so, or if positions are the user's
// numbers; else it loads all of them into memory.
func (p *pass) openWeights(ctx context.Context, of *part) (w *weights, err error) {
	o, t, ids := &p.r.opened, of.weights, of.edges.EdgeIDs
	w = &weights{dtype: t.DType}
	array := &t.Array
	switch by := of.edges.Weights; {
	case by != nil && by.Of == t.Name:
		w.dtype, array = by.DType, &by.Array
	case ids != nil:
		block, err := array.Load(ctx, p.r.budget, mem.Convert)
		if err != nil {
			return nil, err
		}
		p.owned = append(p.owned, block)
		p.r.report.Read += array.Bytes
		w.whole = block.Bytes()
		if w.edges, err = o.IDs(ctx, ids, of.edges.NumEdges); err != nil {
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

// read reads the weights at positions from first on.
func (w *weights) read(ctx context.Context, first int64, out []float64) error {
	if w.rows != nil {
		data, err := w.rows.Span(ctx, w.space, first, int64(len(out)))
		if err == nil {
			store.DecodeFloats(w.dtype, data, out)
		}
		return err
	}
	ids := w.ids[:len(out)]
	if err := w.edges.Span(ctx, w.space, first, ids); err != nil {
		return err
	}
	store.GatherFloats(w.dtype, w.whole, ids, out)
	return nil
}

// scan calls visit with the edges of all targets in order, in batches of the given number of targets, each in one or
// several pieces. The next piece is read during the call.
func (l *lists) scan(ctx context.Context, targets int64, visit func(c *piece) error) error {
	cut := func(c, before *piece) bool { // c becomes the piece behind the one before
		c.first, c.end, c.position = before.first, before.end, before.position+int64(len(before.ids))
		if c.begins = before.last; c.begins {
			c.first, c.end = before.end, min(before.end+targets, l.edges.NumNodes)
		}
		left := l.indptr.Begin(c.end) - c.position
		n := min(left, listPiece)
		c.ids, c.last = c.buffers[:n], n == left
		return c.first < c.end
	}
	reading := make(chan error, 1)
	begin := func(c *piece) {
		guard.Go(func() { reading <- l.read(ctx, c) }, func(panicked *guard.PanicError) { reading <- panicked })
	}
	now, next := &l.pieces[0], &l.pieces[1]
	more := cut(now, &piece{last: true})
	if more {
		begin(now)
	}
	for more {
		if err := <-reading; err != nil {
			return err
		}
		if more = cut(next, now); more {
			begin(next)
		}
		if err := visit(now); err != nil {
			if more {
				<-reading // into memory that is freed now
			}
			return err
		}
		now, next = next, now
	}
	return ctx.Err()
}

// read fills a piece.
func (l *lists) read(ctx context.Context, c *piece) error {
	c.numbers = nil
	if len(c.ids) == 0 {
		return ctx.Err()
	}
	if err := l.sources.Span(ctx, c.space, c.position, c.ids); err != nil || l.weights == nil {
		return err
	}
	c.numbers = c.floats[:len(c.ids)]
	return l.weights.read(ctx, c.position, c.numbers)
}

// share returns the targets of a piece that the i-th of n threads works at: all edges that a target has in the piece
// are one thread's.
func (l *lists) share(c *piece, i, n int) (first, end int64) {
	behind := func(position int64) int64 { // the first target whose edges begin there or later
		return c.first + int64(sort.Search(int(c.end-c.first), func(k int) bool {
			return l.indptr.Begin(c.first+int64(k)) >= position
		}))
	}
	bound := func(i int) int64 { return behind(c.position + int64(len(c.ids)*i/n)) }
	if first = bound(i); i == 0 { // edges of that before may go on
		first = max(behind(c.position+1)-1, c.first)
	}
	return first, max(first, bound(i+1))
}

// within returns the edges of a target in a piece.
func (l *lists) within(c *piece, target int64) (lo, hi int64) {
	lo, hi = l.indptr.Range(target)
	lo, hi = max(lo-c.position, 0), min(hi-c.position, int64(len(c.ids)))
	return lo, max(lo, hi)
}

// weight returns the weight of an edge.
func (c *piece) weight(k int64) float64 {
	if c.numbers == nil {
		return 1
	}
	return c.numbers[k]
}

// each calls fn with the targets of a piece, one share a thread.
func (l *lists) each(c *piece, threads int, fn func(target, lo, hi int64)) {
	guard.Split(threads, threads, func(from, to int) {
		for i := from; i < to; i++ {
			first, end := l.share(c, i, threads)
			for t := first; t < end; t++ {
				lo, hi := l.within(c, t)
				fn(t, lo, hi)
			}
		}
	})
}

// degreeBatch is the most targets of a piece while degrees are added up. Arbitrary.
const degreeBatch = 1 << 16

// degrees finds the inverse root of every node's degree: the weights of its in-edges added up, its self-loop's once.
func (p *pass) degrees(ctx context.Context, l *lists) error {
	block, err := p.alloc(8 * l.edges.NumNodes)
	if err != nil {
		return err
	}
	buffer, err := p.r.budget.Alloc(mem.Convert, 8*min(degreeBatch, l.edges.NumNodes))
	if err != nil {
		return err
	}
	defer buffer.Free()
	l.inverse = mem.View[float64](block)
	loops := mem.Slice[float64](buffer)
	err = l.scan(ctx, degreeBatch, func(c *piece) error {
		if c.begins {
			fill(loops, 1)
		}
		l.each(c, p.r.threads, func(t, lo, hi int64) {
			for k := lo; k < hi; k++ {
				if c.ids[k] == t {
					loops[t-c.first] = c.weight(k)
				} else {
					l.inverse[t] += c.weight(k)
				}
			}
		})
		for t := c.first; c.last && t < c.end; t++ {
			switch degree := l.inverse[t] + loops[t-c.first]; {
			case degree > 0:
				l.inverse[t] = 1 / math.Sqrt(degree)
			case degree == 0:
				l.inverse[t] = 0
			default:
				l.inverse[t] = math.NaN()
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading degrees: %w", err)
	}
	return nil
}

func fill(numbers []float64, with float64) {
	for i := range numbers {
		numbers[i] = with
	}
}
