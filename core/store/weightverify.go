package store

import (
	"context"
	"fmt"
	"math"
	"slices"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// verifyWeights checks that each weight by position is the weight of its edge in the tensor, and that the sums are
// right. It reads edge numbers, weights, sums and tensor once each, in order. Two lists of pairs of an edge and a
// weight have the same elements if the sums of a hash of each pair are equal, except once in 2^64.
func (e *EdgeType) verifyWeights(ctx context.Context, budget *mem.Budget, m *meter) error {
	w := e.Weights
	t := e.weighed()
	buffer := make([]float64, wordsBytes/8)
	want, got := uint64(0), uint64(0)
	err := t.streamRows(ctx, scanBytes, budget, func(first int64, rows []byte) error {
		m.add(int64(len(rows)))
		return EachFloat(t.DType, rows, buffer, func(at int64, weights []float64) error {
			if i := BadWeight(weights); i >= 0 {
				edge := first + at + int64(i)
				return &CorruptError{Path: t.Path, Off: t.Layout.Offset(edge),
					Reason: fmt.Sprintf("edge %d has the weight %v", edge, weights[i])}
			}
			for i, v := range weights {
				want += pairHash(first+at+int64(i), v)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	check, err := e.newSumCheck(ctx, budget)
	if err != nil {
		return err
	}
	defer check.close()
	ids, err := e.newEdgeNumbers(ctx, budget)
	if err != nil {
		return err
	}
	defer ids.close()
	err = w.streamRows(ctx, scanBytes, budget, func(first int64, rows []byte) error {
		m.add(int64(len(rows)))
		return EachFloat(w.DType, rows, buffer, func(at int64, weights []float64) error {
			numbers, err := ids.read(ctx, first+at, int64(len(weights)))
			if err != nil {
				return err
			}
			for i, v := range weights {
				got += pairHash(numbers[i], v)
			}
			return check.summer.add(weights)
		})
	})
	if err != nil {
		return err
	}
	if got != want {
		return &CorruptError{Path: w.Path, Reason: fmt.Sprintf("the weights are not those of the tensor %q", w.Of)}
	}
	return check.finish()
}

// verifiedBytes returns the bytes that verifyWeights counts as progress.
func (e *EdgeType) verifiedBytes() int64 {
	if e.Weights == nil {
		return 0
	}
	t := e.weighed()
	return t.Rows*int64(t.Layout.RowBytes) + e.NumEdges*int64(e.Weights.Layout.RowBytes)
}

// weighed returns the tensor that the weights are of. The checker has found it.
func (e *EdgeType) weighed() *Tensor {
	return &e.Tensors[slices.IndexFunc(e.Tensors, func(t Tensor) bool { return t.Name == e.Weights.Of })]
}

// pairHash depends on an edge and its weight.
func pairHash(edge int64, weight float64) uint64 {
	mix := func(x uint64) uint64 { // the finalizer of splitmix64
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	return mix(mix(uint64(edge)+0x9e3779b97f4a7c15) + math.Float64bits(weight+0)) // -0 is 0
}

// EachFloat calls visit with parts of rows, of one number each, as float64: as much as buffer has room for, from row at
// on.
func EachFloat(dtype manifest.DType, rows []byte, buffer []float64, visit func(at int64, part []float64) error) error {
	width, at := dtype.Size(), int64(0)
	for len(rows) > 0 {
		part := buffer[:min(len(rows)/width, len(buffer))]
		DecodeFloats(dtype, rows[:len(part)*width], part)
		if err := visit(at, part); err != nil {
			return err
		}
		at, rows = at+int64(len(part)), rows[len(part)*width:]
	}
	return nil
}

// edgeNumbers reads the numbers of edges by position.
type edgeNumbers struct {
	reader *rangeReader // nil where numbers are positions
	buffer *mem.Block
	out    []int64
}

func (e *EdgeType) newEdgeNumbers(ctx context.Context, budget *mem.Budget) (*edgeNumbers, error) {
	n := &edgeNumbers{out: make([]int64, wordsBytes/8)}
	if e.EdgeIDs == nil {
		return n, nil
	}
	var err error
	if n.reader, err = newRangeReader(ctx, e.EdgeIDs, budget); err != nil {
		return nil, err
	}
	if n.buffer, err = budget.Alloc(mem.Staging, rangeBytes(wordsBytes)); err != nil {
		n.reader.close()
		return nil, err
	}
	return n, nil
}

func (n *edgeNumbers) close() {
	if n.reader != nil {
		n.reader.close()
		n.buffer.Free()
	}
}

// read returns the edge numbers of count positions from first on.
func (n *edgeNumbers) read(ctx context.Context, first, count int64) ([]int64, error) {
	out := n.out[:count]
	if n.reader == nil {
		for i := range out {
			out[i] = first + int64(i)
		}
		return out, nil
	}
	data, err := n.reader.rows(ctx, n.buffer.Bytes(), first, count)
	if err != nil {
		return nil, err
	}
	DecodeIntegers(n.reader.array.DType, data, out)
	return out, nil
}

// sumCheck compares sums with those that are stored.
type sumCheck struct {
	array  *Array
	indptr *words
	stored *words
	summer *summer
	row    int64
}

func (e *EdgeType) newSumCheck(ctx context.Context, budget *mem.Budget) (c *sumCheck, err error) {
	c = &sumCheck{array: &e.Weights.Sums}
	if c.indptr, err = newWords(ctx, e.Indptr, budget); err != nil {
		return nil, err
	}
	if c.stored, err = newWords(ctx, c.array, budget); err != nil {
		c.indptr.close()
		return nil, err
	}
	if c.summer, err = newSummer(c.indptr, c.compare); err != nil {
		c.close()
	}
	return c, err
}

func (c *sumCheck) close() {
	c.indptr.close()
	c.stored.close()
}

// compare takes the sum of a row. The rows before it that have none are 0.
func (c *sumCheck) compare(row int64, want float64) error {
	for ; c.row <= row; c.row++ {
		expected := want
		if c.row < row {
			expected = 0
		}
		stored, err := c.stored.next()
		if err != nil {
			return err
		}
		if got := math.Float64frombits(stored); stored != math.Float64bits(expected) {
			return &CorruptError{Path: c.array.Path, Off: c.array.Layout.Offset(c.row),
				Reason: fmt.Sprintf("sum %d is %v, expected %v", c.row, got, expected)}
		}
	}
	return nil
}

// finish checks that the remaining rows are 0.
func (c *sumCheck) finish() error {
	if c.row == c.array.Rows {
		return nil
	}
	return c.compare(c.array.Rows-1, 0)
}
