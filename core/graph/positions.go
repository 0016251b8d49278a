package graph

import (
	"context"
	"fmt"
	"math"
	"sort"
	"sync"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// Weights by position, of a store that was converted with them (store.Weights): whole lists are runs of
// pages, without edge numbers, and from a long list a draw reads a page of sums and one of weights. The
// last sum of every page of sums is in memory, a sixteen-thousandth of the weights, so that one page is
// known to have what is looked for. Without that a draw from a list of n pages of sums would wait for
// log n reads, one after the other.

const pageSums = ssd.PageBytes / 8

var _ = [1]struct{}{}[sample.SumBlock-store.WeightBlock] // they speak of the same blocks

// positionWeights is weights by position on disk. It implements sample.BlockSource.
type positionWeights struct {
	weights, sums *Rows  // whose rows are pages
	name          string // of the file, for messages
	dtype         manifest.DType
	perPage       int64     // weights
	lasts         []float64 // the last sum of every page
	scratch       sync.Pool // *positionScratch, one per hop in flight
}

// positionScratch is the scratch memory of a call, for one at a time.
type positionScratch struct {
	Merger ssd.Merger
	pages  []int64 // that are read
	of     []int32 // the list or point that wants each
}

func (s *positionScratch) clear() { s.pages, s.of = s.pages[:0], s.of[:0] }

func (s *positionScratch) add(page int64, of int) {
	s.pages, s.of = append(s.pages, page), append(s.of, int32(of))
}

// holdPositions loads weights by position into memory. Their sums are made anew, which takes less than reading them.
func (o *Opened) holdPositions(ctx context.Context, of *store.Weights, indptr *offsets.Table) (*sample.Weights, error) {
	block, err := of.Load(ctx, o.Budget, mem.Topology)
	if err != nil {
		return nil, err
	}
	o.onClose(block.Free)
	numSums := sample.SumsLen(of.Rows)
	sums, err := o.hold(8 * max(1, numSums))
	if err != nil {
		return nil, err
	}
	w := &sample.Weights{Sums: mem.Slice[float64](sums)[:numSums]}
	if of.DType == manifest.DType_FLOAT32 {
		w.Narrow = mem.Slice[float32](block)[:of.Rows]
		err = checkPositions(ctx, of.Path, 0, w.Narrow)
		w.Positive = err == nil && sample.Sum(indptr, w.Narrow, w.Sums)
	} else {
		w.Wide = mem.Slice[float64](block)[:of.Rows]
		err = checkPositions(ctx, of.Path, 0, w.Wide)
		w.Positive = err == nil && sample.Sum(indptr, w.Wide, w.Sums)
	}
	return w, err
}

// checkPositions refuses weights of a file, from position first on, that edges cannot be drawn by.
func checkPositions[W float32 | float64](ctx context.Context, name string, first int64, weights []W) error {
	for i, v := range weights {
		if i%(1<<20) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !store.GoodWeight(float64(v)) {
			return fmt.Errorf("%w: %s holds the weight %v at position %d, expected a finite number of "+
				"at least 0 and at most %g",
				store.ErrCorrupt, name, v, first+int64(i), store.MaxWeight)
		}
	}
	return nil
}

// PositionBytes returns the memory that opening weights by position takes beside the checksums.
func PositionBytes(w *store.Weights) int64 { return max(1, w.Sums.Bytes/ssd.PageBytes) * 8 }

// openPositions opens weights by position that stay on disk.
func (o *Opened) openPositions(ctx context.Context, of *store.Weights) (*positionWeights, error) {
	w := &positionWeights{
		name: of.Path, dtype: of.DType, perPage: int64(ssd.PageBytes / of.DType.Size()),
		scratch: sync.Pool{New: func() any { return new(positionScratch) }},
	}
	var err error
	if w.weights, err = o.openPages(ctx, &of.Array); err != nil {
		return nil, err
	}
	if w.sums, err = o.openPages(ctx, &of.Sums); err != nil {
		return nil, err
	}
	block, err := o.hold(PositionBytes(of))
	if err != nil {
		return nil, err
	}
	w.lasts = mem.Slice[float64](block)[:of.Sums.Bytes/ssd.PageBytes]
	err = w.sums.Scan(ctx, o.Budget, func(first int64, data []byte) error {
		for ; len(data) > 0; data = data[ssd.PageBytes:] {
			w.lasts[first] = mem.View[float64](data[:ssd.PageBytes])[pageSums-1]
			first++
		}
		return ctx.Err()
	})
	return w, err
}

// openPages opens an array whose rows fill their pages, page by page.
func (o *Opened) openPages(ctx context.Context, a *store.Array) (*Rows, error) {
	d, err := o.Rows(ctx, a)
	if err == nil {
		d.layout = ssd.Layout{RowBytes: ssd.PageBytes, RowsPerPage: 1, NumRows: a.Bytes / ssd.PageBytes}
	}
	return d, err
}

// FetchWeights implements sample.WeightSource.
func (w *positionWeights) FetchWeights(ctx context.Context, d sample.Drawn, out []float64) error {
	s := w.scratch.Get().(*positionScratch)
	defer w.scratch.Put(s)
	s.clear()
	for i := range d.Targets {
		if lo, hi := d.Ptr[i]-d.Ptr[0], d.Ptr[i+1]-d.Ptr[0]; lo < hi {
			w.want(s, i, d.Pos[lo], hi-lo)
		}
	}
	return w.weights.Read(ctx, &s.Merger, s.pages, func(i int32, page []byte) error {
		list := s.of[i]
		lo, hi := d.Ptr[list]-d.Ptr[0], d.Ptr[list+1]-d.Ptr[0]
		return w.decode(s.pages[i], page, d.Pos[lo], out[lo:hi])
	})
}

// FetchFrom reads the weights of the positions from first on.
func (w *positionWeights) FetchFrom(ctx context.Context, first int64, out []float64) error {
	if len(out) == 0 {
		return nil
	}
	s := w.scratch.Get().(*positionScratch)
	defer w.scratch.Put(s)
	s.clear()
	w.want(s, 0, first, int64(len(out)))
	return w.weights.Read(ctx, &s.Merger, s.pages, func(i int32, page []byte) error {
		return w.decode(s.pages[i], page, first, out)
	})
}

// want notes the pages with n weights from a position on, n > 0.
func (w *positionWeights) want(s *positionScratch, of int, first, n int64) {
	for page := first / w.perPage; page <= (first+n-1)/w.perPage; page++ {
		s.add(page, of)
	}
}

// decode writes what a page has of the weights from position first on.
func (w *positionWeights) decode(page int64, data []byte, first int64, out []float64) error {
	begin := page * w.perPage
	lo, hi := max(first, begin), min(first+int64(len(out)), begin+w.perPage)
	part, width := out[lo-first:hi-first], int64(w.dtype.Size())
	store.DecodeFloats(w.dtype, data[(lo-begin)*width:(hi-begin)*width], part)
	return checkPositions(context.Background(), w.name, lo, part) // a page at most
}

// Worth implements sample.BlockSource: a place costs a page of sums and one of weights, and so does
// the sum of all, against the pages of the list.
func (w *positionWeights) Worth(deg, k int64) bool { return deg/w.perPage > 2*(k+1) }

// Locate implements sample.BlockSource.
func (w *positionWeights) Locate(ctx context.Context, points []sample.Point) error {
	s := w.scratch.Get().(*positionScratch)
	defer w.scratch.Put(s)
	if err := w.findBlocks(ctx, s, points); err != nil {
		return err
	}
	s.clear()
	for i := range points {
		if p := &points[i]; p.Len() > 0 {
			w.want(s, i, p.Start+p.Block*sample.SumBlock, p.Len())
		}
	}
	return w.weights.Read(ctx, &s.Merger, s.pages, func(i int32, page []byte) error {
		p := &points[s.of[i]]
		return w.decode(s.pages[i], page, p.Start+p.Block*sample.SumBlock, p.Weights[:p.Len()])
	})
}

// findBlocks sets Block and Before of points.
func (w *positionWeights) findBlocks(ctx context.Context, s *positionScratch, points []sample.Point) error {
	s.clear()
	for i := range points {
		p := &points[i]
		first, end := sumsOf(p)
		page, last := first/pageSums, (end-1)/pageSums
		// The list has the last sums of all its pages but that of the last one, which may be another's.
		page += int64(sort.Search(int(last-page), func(j int) bool { return w.lasts[page+int64(j)] > p.Below }))
		s.add(page, i)
	}
	return w.sums.Read(ctx, &s.Merger, s.pages, func(i int32, data []byte) error {
		p := &points[s.of[i]]
		first, end := sumsOf(p)
		begin := s.pages[i] * pageSums
		lo, hi := max(first, begin), min(end, begin+pageSums)
		sums := mem.View[float64](data)[lo-begin : hi-begin]
		at := int64(sort.Search(len(sums), func(j int) bool { return sums[j] > p.Below }))
		p.Block, p.Before = lo+at-first, 0
		switch {
		case at > 0:
			p.Before = sums[at-1]
		case lo > first:
			p.Before = w.lasts[s.pages[i]-1]
		}
		if math.IsNaN(p.Before) || p.Before < 0 {
			return fmt.Errorf("%w: %s holds the sum %v, expected a number of at least 0",
				store.ErrCorrupt, w.sums.handle.Name(), p.Before)
		}
		return nil
	})
}

// sumsOf returns the rows of a point's list in the sums.
func sumsOf(p *sample.Point) (first, end int64) {
	first = p.Start / sample.SumBlock
	return first, first + p.Deg/sample.SumBlock
}
