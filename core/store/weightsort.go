package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
	"freshgo/core/ssd"
)

// Conversion puts weights in the order of positions by sorting the edges once more, with the bits of a weight in the
// place of an edge's source: a sort is stable, so each weight comes where its edge is. It needs the memory and the
// spill of the first sort and reads the targets twice more.
//
// Rejected: weights beside the sources in the records of the one sort. It saves two readings of the targets, and makes
// three kinds of every record; and a lookup by edge number, which needs all weights in memory or reads them once for
// each part that fits.

// weightEdges returns the edge list with the weights of a tensor for sources.
func (p *edgePart) weightEdges() edgeList {
	list := p.edges
	list.sources, list.weights, list.name = p.weights.Source, true, p.label+p.weights.Name
	list.unnumbered = true
	return list
}

// weightLimit is above the bits of all good weights as they are stored.
func weightLimit(dtype manifest.DType) int64 {
	if NarrowWeights(dtype) {
		return math.MaxInt32 // the bits of a NaN
	}
	return math.MaxInt64
}

// weightsBeside returns the memory of writing weights beside the plan of their sort, in which the writer of sums
// replaces the writer of edge numbers.
func weightsBeside(targets int64) int64 {
	n := roundUp((targets+1)*8, ssd.PageBytes)
	return wordsMemory(&Array{Bytes: n})
}

// planWeights plans the sort of the weights of an edge type.
func (g *graph) planWeights(e *edgePart, memory int64) (edgePlan, error) {
	beside := weightsBeside(g.nodes[e.to].count)
	if memory > 0 {
		memory = max(memory-beside, 1)
	}
	plan, err := planEdges(e.weightEdges(), weightLimit(e.weights.DType), g.nodes[e.to].count, memory, runtime.NumCPU())
	var short *mem.BudgetError
	if errors.As(err, &short) {
		short.Need += beside
	}
	return plan, err
}

// checkWeightsOf finds the tensor that weights are of.
func (p *edgePart) checkWeightsOf(name string) error {
	if name == "" {
		return nil
	}
	var known []string
	for i := range p.tensors {
		t := &p.tensors[i]
		if known = append(known, t.Name); t.Name != name {
			continue
		}
		if t.Narrow != narrow.None {
			return invalid("%s is to be stored as %s, but weights by position are of a tensor that is stored as it is",
				p.label+name, t.Narrow)
		}
		if t.Pipe != 0 {
			return invalid("%s comes through a pipe, and weights by position are read more than once", p.label+name)
		}
		if err := checkWeights(t.DType, t.Shape[1:]); err != nil {
			return fmt.Errorf("store: weights of %s: %w", p.label+name, err)
		}
		p.weights = t
		return nil
	}
	return invalid("weights are of the tensor %q, the tensors of the edges are %q", p.label+name, known)
}

// weightCheck returns a visitor that refuses weights that edges cannot be drawn by.
func weightCheck(t *NamedSource, label string) visitRows {
	buffer := make([]float64, wordsBytes/8)
	return func(first int64, rows []byte) error {
		for width := int(t.rowBytes()); len(rows) > 0; {
			part := buffer[:min(len(rows)/width, len(buffer))]
			DecodeFloats(t.DType, aligned(rows[:len(part)*width]), part)
			if i := BadWeight(part); i >= 0 {
				return wrongWeight(t.Source, label+t.Name, first+int64(i), part[i])
			}
			first, rows = first+int64(len(part)), rows[len(part)*width:]
		}
		return nil
	}
}

// aligned returns numbers in memory that is aligned for them, as the user's need not be.
func aligned(p []byte) []byte {
	if uintptr(unsafe.Pointer(unsafe.SliceData(p)))%8 == 0 { // only compared
		return p
	}
	words := make([]uint64, (len(p)+7)/8)
	return mem.Bytes(words)[:copy(mem.Bytes(words), p)]
}

// BadWeight returns the place of the first invalid weight, or -1.
func BadWeight(weights []float64) int {
	for i, w := range weights {
		if !GoodWeight(w) {
			return i
		}
	}
	return -1
}

func wrongWeight(src Source, name string, edge int64, w float64) error {
	position := fmt.Sprintf("%s[%d]%s", name, edge, src.where(edge))
	return invalid("%s is %v, expected a finite weight of at least 0 and at most %g", position, w, MaxWeight)
}

// weightReader reads the bits of weights, as they are stored.
type weightReader struct {
	elementReader
	narrow bool
}

func newWeightReader(fs ssd.FS, src Source, name string, maxRows int64, budget *mem.Budget) (*weightReader, error) {
	r, err := newElementReader(fs, src, name, maxRows, 8, budget)
	return &weightReader{r, NarrowWeights(src.DType)}, err
}

// read returns the bits of n weights from edge first on, valid until the next read. -0 is read as 0.
func (r *weightReader) read(first, n int64) ([]int64, error) {
	raw, err := r.bytes(first, n)
	if err != nil {
		return nil, err
	}
	src := r.rows.src
	floats := mem.Slice[float64](r.wide)[:n]
	DecodeFloats(src.DType, raw, floats)
	if i := BadWeight(floats); i >= 0 {
		return nil, wrongWeight(src, r.rows.name, first+int64(i), floats[i])
	}
	bits := mem.Slice[int64](r.wide)[:n] // in the place of the numbers
	for i, w := range floats {
		if r.narrow {
			bits[i] = int64(math.Float32bits(float32(w + 0)))
		} else {
			bits[i] = int64(math.Float64bits(w + 0))
		}
	}
	return bits, nil
}

// writeWeights writes the counted weights of an edge type by position, and their sums. The topology is written.
func (c *conversion) writeWeights(ctx context.Context, p *edgePart, s *edgeSorter, edge *manifest.EdgeType) error {
	defer s.close()
	out, err := c.newWeightSink(ctx, p, s.plan.chunk, edge)
	if err != nil {
		return err
	}
	defer out.abort()
	if err := s.sort(ctx, topologySinks{indptr: nowhere{}, indices: out}); err != nil {
		return err
	}
	edge.WeightsOf = p.weights.Name
	edge.Weights, edge.WeightSums, err = out.finish(p.edges.count)
	return err
}

// nowhere is a sink for what is known already.
type nowhere struct{}

func (nowhere) write([]byte) error { return nil }

// weightSink takes the sorted weights and makes their sums.
type weightSink struct {
	weights, sums *arrayWriter
	indptr        *words
	summer        *summer
	narrow        bool
	floats        []float64
	pending       []float64 // sums that are not written yet
	row           int64     // of the next sum
}

func (c *sourceWriter) newWeightSink(
	ctx context.Context, p *edgePart, chunk int, edge *manifest.EdgeType,
) (w *weightSink, err error) {
	w = &weightSink{narrow: NarrowWeights(p.weights.DType), floats: make([]float64, wordsBytes/8),
		pending: make([]float64, 0, wordsBytes/8)}
	defer func() {
		if err != nil {
			w.abort()
		}
	}()
	check := newChecker(&directory{fs: c.fs, path: c.site.dir, draft: true})
	indptr := check.column(edge.Indptr, "indptr", c.graph.nodes[p.to].count+1, manifest.DType_INT64)
	if w.indptr, err = newWords(ctx, indptr, c.budget); err != nil {
		return w, err
	}
	if w.summer, err = newSummer(w.indptr, w.sum); err != nil {
		return w, err
	}
	if w.weights, err = newArrayWriter(c.fs, c.site.dir, p.file+"weights",
		weightsType(p.weights.DType), nil, chunk, c.budget); err != nil {
		return w, err
	}
	w.sums, err = newArrayWriter(c.fs, c.site.dir, p.file+"weight_sums", manifest.DType_FLOAT64, nil, chunk, c.budget)
	return w, err
}

// write takes the bits of weights.
func (w *weightSink) write(p []byte) error {
	if err := w.weights.write(p); err != nil {
		return err
	}
	dtype := manifest.DType_FLOAT64
	if w.narrow {
		dtype = manifest.DType_FLOAT32
	}
	return EachFloat(dtype, p, w.floats, func(_ int64, part []float64) error { return w.summer.add(part) })
}

// sum takes the sum of a row, after rows that have none.
func (w *weightSink) sum(row int64, sum float64) error {
	for ; w.row < row; w.row++ {
		if err := w.put(0); err != nil {
			return err
		}
	}
	w.row++
	return w.put(sum)
}

func (w *weightSink) put(sum float64) error {
	if w.pending = append(w.pending, sum); len(w.pending) < cap(w.pending) {
		return nil
	}
	return w.flush()
}

func (w *weightSink) flush() error {
	defer func() { w.pending = w.pending[:0] }()
	return w.sums.write(mem.Bytes(w.pending))
}

// finish ends both arrays, which have the given number of edges.
func (w *weightSink) finish(edges int64) (weights, sums *manifest.Array, err error) {
	defer w.abort()
	for ; w.row < weightSums(edges); w.row++ {
		if err := w.put(0); err != nil {
			return nil, nil, err
		}
	}
	if err := w.flush(); err != nil {
		return nil, nil, err
	}
	if weights, err = w.weights.finish(edges); err != nil {
		return nil, nil, err
	}
	sums, err = w.sums.finish(weightSums(edges))
	return weights, sums, err
}

// abort gives everything back. After finish it does nothing.
func (w *weightSink) abort() {
	if w.indptr != nil {
		w.indptr.close()
		w.indptr = nil
	}
	for _, array := range []*arrayWriter{w.weights, w.sums} {
		if array != nil {
			array.abort()
		}
	}
}
