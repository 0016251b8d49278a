package narrow

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A ValueError is a number that a form cannot hold, or, of None, that is none of float32.
type ValueError struct {
	Row    int64
	Column int
	Value  float64
	Form   Form
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("row %d, column %d is %v, %s", e.Row, e.Column, e.Value, e.Reason())
}

// Reason says why the form cannot hold the number.
func (e *ValueError) Reason() string {
	switch e.Form {
	case None:
		return "too large for float32"
	case Float16, BFloat16:
		return "too large for " + e.Form.String()
	}
	return "expected finite numbers to store as " + e.Form.String()
}

// Encode writes rows as they are stored. first is the number of the first row, for messages. With clip, numbers that
// overflow a form of floats are clipped to it. Infinite numbers and NaN are kept by these forms, and refused by those
// of int8.
func (c *Coding) Encode(dst []byte, values []float32, first int64, clip bool) error {
	switch c.Form {
	case Float16:
		return c.encodeFloats(dst, values, first, clip, MaxFloat16, 0x7c00)
	case BFloat16:
		return c.encodeFloats(dst, values, first, clip, float64(FromBFloat16(0x7f7f)), 0x7f80)
	case Int8Rows:
		return c.encodeRows(dst, values, first)
	case Int8Columns:
		return c.encodeColumns(dst, values, first)
	}
	panic(fmt.Sprintf("narrow: rows cannot be encoded as form %d", c.Form))
}

func (c *Coding) encodeFloats(
	dst []byte, values []float32, first int64, clip bool, most float64, infinite uint16,
) error {
	if !Round(c.Form, dst, values) {
		return nil
	}
	for i, v := range values {
		if binary.LittleEndian.Uint16(dst[2*i:])&0x7fff == infinite && !math.IsInf(float64(v), 0) {
			if !clip {
				return c.refuse(first, i, v)
			}
			Round(c.Form, dst[2*i:], []float64{math.Copysign(most, float64(v))})
		}
	}
	return nil
}

func (c *Coding) encodeRows(dst []byte, values []float32, first int64) error {
	n := c.Elements
	for r := range len(values) / n {
		row, out := values[r*n:(r+1)*n], dst[r*c.RowBytes():(r+1)*c.RowBytes()]
		low, high, err := c.bounds(row, first+int64(r))
		if err != nil {
			return err
		}
		scale, offset := Scale(low, high)
		putFloat(out, scale)
		putFloat(out[4:], offset)
		for i, v := range row {
			out[prefixBytes+i] = quantise(v, scale, offset)
		}
		clear(out[prefixBytes+n:])
	}
	return nil
}

// bounds returns the least and the greatest number of a row, or an error if one is not finite.
func (c *Coding) bounds(row []float32, number int64) (low, high float32, err error) {
	low, high = row[0], row[0]
	for _, v := range row { // one NaN makes both of them NaN
		low, high = min(low, v), max(high, v)
	}
	if !finite(low) || !finite(high) {
		i := slices.IndexFunc(row, func(v float32) bool { return !finite(v) })
		return 0, 0, c.refuse(number, i, row[i])
	}
	return low, high, nil
}

func (c *Coding) encodeColumns(dst []byte, values []float32, first int64) error {
	column := 0
	for i, v := range values {
		if !finite(v) {
			return c.refuse(first, i, v)
		}
		dst[i] = quantise(v, c.Scales[column], c.Offsets[column])
		if column++; column == c.Elements {
			column = 0
		}
	}
	return nil
}

// refuse returns the error of the i-th number of some rows.
func (c *Coding) refuse(first int64, i int, v float32) error {
	return &ValueError{Row: first + int64(i/c.Elements), Column: i % c.Elements, Value: float64(v), Form: c.Form}
}

func finite(v float32) bool { return v-v == 0 }

// Scale returns the scale and the offset with which int8 holds the numbers from low to high, both finite. Equal numbers
// are held exactly, with a scale of 0.
func Scale(low, high float32) (scale, offset float32) {
	// In float64, as the difference may be infinite in float32.
	middle := float32((float64(low) + float64(high)) / 2)
	half := max(float64(high)-float64(middle), float64(middle)-float64(low))
	if half == 0 {
		return 0, middle
	}
	scale = float32(half / steps)
	if scale == 0 { // half is less than float32 can divide
		scale = math.SmallestNonzeroFloat32
	}
	// Each product is rounded by itself, as a row is widened: where a processor fuses it with the sum, an infinity of
	// others would not show.
	for !finite(float32(scale*steps)+middle) || !finite(middle-float32(scale*steps)) { // the scale was rounded up
		scale = math.Nextafter32(scale, 0)
	}
	return scale, middle
}

// quantise returns the stored number nearest to v.
func quantise(v, scale, offset float32) byte {
	if scale == 0 {
		return 0
	}
	q := math.RoundToEven((float64(v) - float64(offset)) / float64(scale))
	return byte(int8(max(-steps, min(steps, q))))
}

// Measure finds what Encode must know of all rows: the scales of columns, and which form of int8 has the smaller error.
// Its memory is MeasureBytes.
type Measure struct {
	coding    Coding
	low, high []float32 // of each column
	rows      int64
	error     float64 // expected square error of Int8Rows, summed over all numbers
}

// MeasureBytes returns the memory of a Measure of rows with the given number of elements.
func MeasureBytes(elements int) int64 { return 16 * int64(elements) }

// NewMeasure returns a measure for Int8 or Int8Columns.
func NewMeasure(form Form, elements int) *Measure {
	m := &Measure{coding: Coding{Form: form, Elements: elements}}
	m.low, m.high = make([]float32, elements), make([]float32, elements)
	for i := range m.low {
		m.low[i], m.high[i] = float32(math.Inf(1)), float32(math.Inf(-1))
	}
	return m
}

// Add measures rows. first is the number of the first, for messages.
func (m *Measure) Add(values []float32, first int64) error {
	n := m.coding.Elements
	for r := range len(values) / n {
		row := values[r*n : (r+1)*n]
		low, high, err := m.coding.bounds(row, first+int64(r))
		if err != nil {
			return err
		}
		lows, highs := m.low[:len(row)], m.high[:len(row)]
		for i, v := range row {
			lows[i], highs[i] = min(lows[i], v), max(highs[i], v)
		}
		m.error += float64(n) * squareError(low, high)
		m.rows++
	}
	return nil
}

// Coding returns the coding for what was measured. Int8 becomes Int8Rows where its error is smaller and rows are long
// enough for it, or too long for Int8Columns.
func (m *Measure) Coding() Coding {
	c := m.coding
	n := c.Elements
	c.Scales, c.Offsets = make([]float32, n), make([]float32, n)
	columns := 0.0
	for i := range n {
		if m.rows == 0 {
			break
		}
		c.Scales[i], c.Offsets[i] = Scale(m.low[i], m.high[i])
		columns += float64(m.rows) * squareError(m.low[i], m.high[i])
	}
	if c.Form == Int8 {
		if n >= MinRow && (n > MaxColumns || m.error < columns) {
			return Coding{Form: Int8Rows, Elements: n}
		}
		c.Form = Int8Columns
	}
	return c
}

// squareError returns the expected square of the error of a number between two: uniform within a step.
func squareError(low, high float32) float64 {
	step := (float64(high) - float64(low)) / (2 * steps)
	return step * step / 12
}
