package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
)

// Floats may be stored in fewer bytes (package narrow). Such a tensor is float32 to whoever reads it; its Array is what
// is stored.

const (
	// narrowValues are about how many numbers are encoded at a time: they stay in the second-level cache. Arbitrary.
	narrowValues = 32 << 10
	// minInt8 is the elements that a row of int8 has at least. Fewer are narrow already, and a number by itself, such
	// as a weight or a time, is not to be rounded to one of 255.
	minInt8 = narrow.MinRow
)

// Narrowed is the form in which floats are stored in fewer bytes.
type Narrowed struct {
	narrow.Coding
	Shape []int64 // of a row of values

	// What narrowing changed, over all finite numbers.
	MaxError       float64 // largest difference
	SumSquareError float64 // sum of the squares of differences
	SumSquare      float64 // sum of the squares of the numbers
}

// Values returns type and shape of a row as it is delivered.
func (t *Tensor) Values() (dtype manifest.DType, shape []int64) {
	if t.Narrow == nil {
		return t.DType, t.RowShape
	}
	return manifest.DType_FLOAT32, t.Narrow.Shape
}

// ValueBytes returns the size of a row as it is delivered.
func (t *Tensor) ValueBytes() int {
	if t.Narrow == nil {
		return t.Layout.RowBytes
	}
	return t.Narrow.ValueBytes()
}

// checkNarrow returns an error if the tensor cannot be stored in its form.
func (s Source) checkNarrow(name string) error {
	if s.Narrow == narrow.None {
		return nil
	}
	if !s.Narrow.Known() {
		return invalid("%s is to be stored in the unknown form %d", name, s.Narrow)
	}
	if !s.DType.IsFloat() {
		return invalid("%s holds %s, expected floats to store as %s", name, s.DType.Label(), s.Narrow)
	}
	if s.DType.Size() == 2 && s.Narrow <= narrow.BFloat16 {
		return invalid("%s holds %s, which %s does not make narrower", name, s.DType.Label(), s.Narrow)
	}
	if n := s.elements(); s.Narrow >= narrow.Int8 && n < minInt8 {
		return invalid("%s has rows of %d numbers, expected at least %d to store as %s", name, n, minInt8, s.Narrow)
	} else if s.Narrow == narrow.Int8Columns && n > narrow.MaxColumns {
		return invalid("%s has rows of %d numbers, expected at most %d to store as %s", name, n, narrow.MaxColumns, s.Narrow)
	}
	return nil
}

// elements returns the number of elements of a row.
func (s Source) elements() int { return int(s.rowBytes()) / s.DType.Size() }

// most returns the largest of what a function gives for the forms that a tensor may be stored in: Int8 is decided
// later.
func (s Source) most(of func(Source) int64) int64 {
	if s.Narrow != narrow.Int8 {
		return of(s)
	}
	rows, columns := s, s
	rows.Narrow, columns.Narrow = narrow.Int8Rows, narrow.Int8Columns
	return max(of(rows), of(columns))
}

// stored is type and shape of a stored row. One of Int8 takes at most what one of Int8Rows does.
func (s Source) stored() (dtype manifest.DType, shape []int64) {
	switch s.Narrow {
	case narrow.Float16:
		return manifest.DType_FLOAT16, s.Shape[1:]
	case narrow.BFloat16:
		return manifest.DType_BFLOAT16, s.Shape[1:]
	case narrow.Int8Columns:
		return manifest.DType_INT8, s.Shape[1:]
	case narrow.Int8, narrow.Int8Rows:
		c := narrow.Coding{Form: narrow.Int8Rows, Elements: s.elements()}
		return manifest.DType_INT8, []int64{int64(c.RowBytes())}
	}
	return s.DType, s.Shape[1:]
}

// narrowRows returns the number of rows that are encoded at a time: whole pages of them.
func (s Source) narrowRows() int64 {
	dtype, shape := s.stored()
	rowBytes, _ := rowBytesOf(dtype, shape) // not larger than a row of the source, which was checked
	rows := max(narrowValues/int64(s.elements()), 1)
	if layout := LayoutFor(rowBytes, s.rows()); layout.RowsPerPage > 0 {
		rows = roundUp(rows, int64(layout.RowsPerPage))
	}
	return rows
}

// narrowBytes returns the memory of narrowing beside that of streaming: the numbers, and the rows that become of them.
func (s Source) narrowBytes() int64 {
	if s.Narrow == narrow.None {
		return 0
	}
	return s.narrowRows()*2*4*int64(s.elements()) + narrow.MeasureBytes(s.elements())
}

// narrowing encodes the rows of one source.
type narrowing struct {
	source NamedSource
	label  string // of the tensor, for messages
	rows   int64
	block  *mem.Block
	values []float32
	wide   []byte // stored rows at its end, and what is read back
	*Narrowed
}

// newNarrowing prepares the encoding of a tensor, which reads it once where its scales depend on all rows.
func newNarrowing(ctx context.Context, c *sourceWriter, label string, t NamedSource) (*narrowing, error) {
	n := &narrowing{source: t, label: label, rows: t.most(Source.narrowRows)}
	count := n.rows * int64(t.elements())
	var err error
	if n.block, err = c.budget.Alloc(mem.Convert, t.most(Source.narrowBytes)); err != nil {
		return nil, err
	}
	n.values = mem.View[float32](n.block.Bytes()[:4*count])
	n.wide = n.block.Bytes()[4*count : 8*count]
	n.Narrowed = &Narrowed{Coding: narrow.Coding{Form: t.Narrow, Elements: t.elements()}, Shape: t.Shape[1:]}
	if t.Narrow == narrow.Int8 || t.Narrow == narrow.Int8Columns {
		if err := n.measure(ctx, c); err != nil {
			n.block.Free()
			return nil, err
		}
	}
	return n, nil
}

func (n *narrowing) close() { n.block.Free() }

// measure reads the source for scales of columns and for the form of int8.
func (n *narrowing) measure(ctx context.Context, c *sourceWriter) error {
	measure := narrow.NewMeasure(n.Form, n.Elements)
	progress := &meter{report: c.progress, stage: "measuring " + n.label, total: n.source.rows()}
	plan := planTensor(n.source.Source, c.tensorChunk)
	err := c.stream(ctx, n.source.Source, n.label, plan.chunkRows, func(first int64, rows []byte) error {
		return n.pieces(first, rows, func(first int64, values []float32) error {
			progress.add(int64(len(values) / n.Elements))
			return measure.Add(values, first)
		})
	})
	if err == nil {
		n.Coding = measure.Coding()
		n.source.Narrow = n.Form
		n.rows = n.source.narrowRows() // not more than before
	}
	return err
}

// write encodes rows of the source, which begin where a page of stored rows does, and passes what is stored.
func (n *narrowing) write(first int64, rows []byte, emit func(stored []byte) error) error {
	return n.pieces(first, rows, func(first int64, values []float32) error {
		wide := n.wide[:4*len(values)]
		stored := wide[len(wide)-len(values)/n.Elements*n.RowBytes():]
		if err := n.Encode(stored, values, first, n.source.Clip); err != nil {
			return err
		}
		if err := emit(stored); err != nil {
			return err
		}
		n.Widen(wide)
		n.compare(values, mem.View[float32](wide))
		return nil
	})
}

// compare notes what narrowing changed.
func (n *narrowing) compare(values, read []float32) {
	for i, v := range values {
		d := math.Abs(float64(v) - float64(read[i]))
		if d-d != 0 {
			continue // of infinite numbers and NaN
		}
		n.MaxError = max(n.MaxError, d)
		n.SumSquareError += d * d
		n.SumSquare += float64(v) * float64(v)
	}
}

// pieces passes rows as float32.
func (n *narrowing) pieces(first int64, rows []byte, visit func(first int64, values []float32) error) error {
	rowBytes := n.source.rowBytes()
	for len(rows) > 0 {
		piece := rows[:min(n.rows*rowBytes, int64(len(rows)))]
		values := n.values[:len(piece)/n.source.DType.Size()]
		err := floatsOf(values, n.source.DType, piece, n.source.Clip)
		if err == nil {
			err = visit(first, values)
		}
		var bad *narrow.ValueError
		if errors.As(err, &bad) {
			if bad.Form == narrow.None { // found before it was known in which row
				bad.Row, bad.Column = first+int64(bad.Column/n.Elements), bad.Column%n.Elements
			}
			return n.refuse(bad)
		}
		if err != nil {
			return err
		}
		first += int64(len(piece)) / rowBytes
		rows = rows[len(piece):]
	}
	return nil
}

// refuse returns the error for a number that cannot be stored.
func (n *narrowing) refuse(bad *narrow.ValueError) error {
	at := fmt.Sprintf("%s[%d, %d] is %v", n.label, bad.Row, bad.Column, bad.Value)
	if len(n.source.Shape) == 1 {
		at = fmt.Sprintf("%s[%d] is %v", n.label, bad.Row, bad.Value)
	}
	return invalid("%s, %s", at, bad.Reason())
}

// floatsOf converts floats to float32. A number that float32 cannot hold is a *narrow.ValueError with its place for
// column or, with clip, the largest that it can.
func floatsOf(dst []float32, dtype manifest.DType, src []byte, clip bool) error {
	switch dtype {
	case manifest.DType_FLOAT32:
		copy(mem.Bytes(dst), src)
	case manifest.DType_FLOAT64:
		for i := range dst {
			wide := math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:]))
			dst[i] = float32(wide)
			if math.IsInf(float64(dst[i]), 0) && !math.IsInf(wide, 0) {
				if !clip {
					return &narrow.ValueError{Column: i, Value: wide}
				}
				dst[i] = float32(math.Copysign(math.MaxFloat32, wide))
			}
		}
	default:
		form := narrow.Float16
		if dtype == manifest.DType_BFLOAT16 {
			form = narrow.BFloat16
		}
		wide := mem.Bytes(dst)
		copy(wide[len(src):], src)
		(&narrow.Coding{Form: form, Elements: 1}).Widen(wide)
	}
	return nil
}

// describe adds to a tensor of the manifest how it is stored.
func (n *Narrowed) describe(t *manifest.Tensor) {
	t.Scale = 1
	t.Narrow = &manifest.Narrow{MaxError: n.MaxError, SumSquareError: n.SumSquareError, SumSquare: n.SumSquare}
	switch n.Form {
	case narrow.Int8Columns:
		for i := range n.Scales {
			t.Narrow.Columns = append(t.Narrow.Columns, n.Scales[i], n.Offsets[i])
		}
	case narrow.Int8Rows:
		t.Narrow.ValueShape = n.Shape
	}
}

// narrowed checks how the manifest says that a tensor is stored: nil where it is stored as it is.
func (c *checker) narrowed(t *manifest.Tensor, a *Array) *Narrowed {
	if c.err != nil || t.GetScale() == 0 && t.GetScales() == nil {
		return nil
	}
	if t.GetScale() != 1 || t.GetScales() != nil {
		c.err = fmt.Errorf("store: %s: %stensor %q is quantised in a way that this version does not know: %w",
			c.dir.path, c.label, t.GetName(), ErrVersion)
		return nil
	}
	m := t.GetNarrow()
	n := &Narrowed{
		Shape: a.RowShape, MaxError: m.GetMaxError(), SumSquareError: m.GetSumSquareError(), SumSquare: m.GetSumSquare(),
	}
	n.Elements = a.Layout.RowBytes / a.DType.Size()
	switch columns, shape := m.GetColumns(), m.GetValueShape(); {
	case a.DType == manifest.DType_FLOAT16 && len(columns) == 0 && len(shape) == 0:
		n.Form = narrow.Float16
	case a.DType == manifest.DType_BFLOAT16 && len(columns) == 0 && len(shape) == 0:
		n.Form = narrow.BFloat16
	case a.DType == manifest.DType_INT8 && len(columns) == 2*n.Elements && len(shape) == 0:
		n.Form = narrow.Int8Columns
		for i := 0; i < len(columns); i += 2 {
			n.Scales, n.Offsets = append(n.Scales, columns[i]), append(n.Offsets, columns[i+1])
		}
	case a.DType == manifest.DType_INT8 && len(columns) == 0 && len(shape) > 0:
		n.Form, n.Shape = narrow.Int8Rows, slices.Clone(shape)
		bytes, ok := rowBytesOf(manifest.DType_FLOAT32, shape)
		n.Elements = bytes / manifest.DType_FLOAT32.Size()
		if !ok || len(shape) > maxDims || n.Elements < minInt8 || n.RowBytes() != a.Layout.RowBytes || len(a.RowShape) != 1 {
			c.fail("%s has rows of %d bytes for values of shape %v", t.GetName(), a.Layout.RowBytes, shape)
		}
	default:
		c.fail("%s is %s with %d columns and values of shape %v: no narrow form", t.GetName(), a.DType.Label(),
			len(columns)/2, shape)
	}
	return n
}
