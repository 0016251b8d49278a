// Package narrow keeps rows of float32 numbers in fewer bytes: as float16 or bfloat16, or as int8 with a scale and an
// offset for each row or for each column.
//
// A coding is lossy when rows are written, and exact from then on: every kernel widens stored rows to the same bits.
// Rows are widened in place, in the memory of the tensor that they are delivered in, so that files, caches and packs
// hold the narrow rows and nothing beside the tensor is needed. Widening is bound by memory; the best of the kernels
// that the processor runs (AVX-512, AVX2 with F16C, portable) is chosen once, and tests compare each with the portable
// one. core/store calls Encode, core/loader calls Widen.
package narrow

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Form is the stored form of numbers.
type Form uint8

// The forms. Int8 leaves the choice between Int8Rows and Int8Columns to Measure.
const (
	None        Form = iota // as they are
	Float16                 // rounded to the nearest float16, ties to even
	BFloat16                // rounded to the nearest bfloat16, ties to even
	Int8                    // Int8Rows or Int8Columns, whichever has the smaller error
	Int8Rows                // int8, a scale and an offset in each row
	Int8Columns             // int8, a scale and an offset for each column
)

var labels = [...]string{"", "float16", "bfloat16", "int8", "int8-per-row", "int8-per-column"}

// String returns the name by which a user asks for the form.
func (f Form) String() string { return labels[f] }

// Parse returns the form that a user asks for by this name.
func Parse(label string) (Form, bool) {
	i := slices.Index(labels[1:], label)
	return Form(i + 1), i >= 0
}

// Labels returns the names of all forms but None.
func Labels() []string { return slices.Clone(labels[1:]) }

// Known reports whether f is one of the forms, None excluded.
func (f Form) Known() bool { return f > None && int(f) < len(labels) }

const (
	// prefixBytes begin a row of Int8Rows: its scale and its offset, float32 each.
	prefixBytes = 8
	// MinRow is the elements that a row of Int8Rows has at least: fewer take no less than float16.
	MinRow = 8
	// MaxColumns bounds the columns of Int8Columns: their scales are kept in the manifest.
	MaxColumns = 1 << 16
	// steps is the greatest number that int8 stores; -128 is not used, so that a range is symmetrical.
	steps = 127
	// MaxFloat16 is the greatest finite float16.
	MaxFloat16 = 65504
)

// Coding encodes the rows of a tensor.
type Coding struct {
	Form     Form
	Elements int // of a row
	// Int8Columns: value = Scales[i]*stored + Offsets[i].
	Scales, Offsets []float32
}

// RowBytes returns the size of a stored row.
func (c *Coding) RowBytes() int {
	switch c.Form {
	case Float16, BFloat16:
		return 2 * c.Elements
	case Int8Rows:
		return prefixBytes + (c.Elements+3)&^3 // whole words, so that the prefix of the next row is aligned
	case Int8Columns:
		return c.Elements
	}
	return 4 * c.Elements
}

// ValueBytes returns the size of a row of float32.
func (c *Coding) ValueBytes() int { return 4 * c.Elements }

// Widen turns stored rows into float32. dst has whole rows of ValueBytes; as many stored rows lie at its end. What is
// written never overtakes what is still to be read, as a stored row is not longer than a wide one.
func (c *Coding) Widen(dst []byte) { c.widen(best, dst) }

func (c *Coding) widen(k kernel, dst []byte) {
	rows := len(dst) / c.ValueBytes()
	if rows*c.ValueBytes() != len(dst) {
		panic(fmt.Sprintf("narrow: %d bytes for rows of %d", len(dst), c.ValueBytes()))
	}
	stored := dst[len(dst)-rows*c.RowBytes():]
	switch c.Form {
	case Float16:
		k.float16(dst, stored, rows*c.Elements)
	case BFloat16:
		k.bfloat16(dst, stored, rows*c.Elements)
	case Int8Rows:
		for r := range rows {
			row := stored[r*c.RowBytes() : (r+1)*c.RowBytes()]
			scale, offset := getFloat(row), getFloat(row[4:])
			k.int8(dst[r*c.ValueBytes():], row[prefixBytes:], c.Elements, scale, offset)
		}
	case Int8Columns:
		for r := range rows {
			k.columns(dst[r*c.ValueBytes():], stored[r*c.Elements:], c.Scales[:c.Elements], c.Offsets[:c.Elements])
		}
	}
}

// Decode turns the numbers lo to hi of a stored row into float64.
func (c *Coding) Decode(row []byte, lo, hi int, numbers []float64) {
	for i := range hi - lo {
		numbers[i] = float64(c.number(row, lo+i))
	}
}

// number returns one number of a stored row.
func (c *Coding) number(row []byte, i int) float32 {
	switch c.Form {
	case Float16:
		return FromFloat16(binary.LittleEndian.Uint16(row[2*i:]))
	case BFloat16:
		return FromBFloat16(binary.LittleEndian.Uint16(row[2*i:]))
	case Int8Rows:
		return value(row[prefixBytes+i], getFloat(row), getFloat(row[4:]))
	case Int8Columns:
		return value(row[i], c.Scales[i], c.Offsets[i])
	}
	return getFloat(row[4*i:])
}

// A kernel widens n numbers from the beginning of src to the beginning of dst, which may be memory of src before it.
type kernel struct {
	name     string
	float16  widenHalves
	bfloat16 widenHalves
	int8     func(dst, src []byte, n int, scale, offset float32)
	columns  func(dst, src []byte, scales, offsets []float32)
}

type widenHalves = func(dst, src []byte, n int)

// best is chosen once and never written again.
var best = kernels()[0]

var portable = kernel{
	name:     "portable",
	float16:  widenFloat16,
	bfloat16: widenBFloat16,
	int8:     widenInt8,
	columns:  widenColumns,
}

func widenFloat16(dst, src []byte, n int) {
	for i := range n {
		putFloat(dst[4*i:], FromFloat16(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

func widenBFloat16(dst, src []byte, n int) {
	for i := range n {
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(binary.LittleEndian.Uint16(src[2*i:]))<<16)
	}
}

func widenInt8(dst, src []byte, n int, scale, offset float32) {
	for i := range n {
		putFloat(dst[4*i:], value(src[i], scale, offset))
	}
}

func widenColumns(dst, src []byte, scales, offsets []float32) {
	for i := range scales {
		putFloat(dst[4*i:], value(src[i], scales[i], offsets[i]))
	}
}

// value decodes a stored int8. The product is rounded before the sum, on every processor.
func value(stored byte, scale, offset float32) float32 {
	return float32(scale*float32(int8(stored))) + offset
}

func getFloat(p []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(p)) }

func putFloat(p []byte, v float32) { binary.LittleEndian.PutUint32(p, math.Float32bits(v)) }
