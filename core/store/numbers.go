package store

import (
	"fmt"
	"math"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// The numbers of the user's tensors, of any type.

// DecodeFloats turns numbers of a type, as many as out is long, into float64. Integers beyond 2^53 are rounded.
func DecodeFloats(dtype manifest.DType, data []byte, out []float64) {
	switch dtype {
	case manifest.DType_FLOAT16:
		for i, h := range mem.View[uint16](data) {
			out[i] = halfFloat(h)
		}
	case manifest.DType_BFLOAT16:
		for i, h := range mem.View[uint16](data) {
			out[i] = float64(math.Float32frombits(uint32(h) << 16))
		}
	case manifest.DType_FLOAT32:
		convertNumbers(mem.View[float32](data), out)
	case manifest.DType_FLOAT64:
		copy(out, mem.View[float64](data))
	default:
		DecodeIntegers(dtype, data, out)
	}
}

// DecodeIntegers turns integers of a type, as many as out is long, into T.
func DecodeIntegers[T int64 | float64](dtype manifest.DType, data []byte, out []T) {
	switch dtype {
	case manifest.DType_INT8:
		convertNumbers(mem.View[int8](data), out)
	case manifest.DType_INT16:
		convertNumbers(mem.View[int16](data), out)
	case manifest.DType_INT32:
		convertNumbers(mem.View[int32](data), out)
	case manifest.DType_INT64:
		convertNumbers(mem.View[int64](data), out)
	case manifest.DType_UINT8:
		convertNumbers(mem.View[uint8](data), out)
	case manifest.DType_UINT16:
		convertNumbers(mem.View[uint16](data), out)
	case manifest.DType_UINT32:
		convertNumbers(mem.View[uint32](data), out)
	case manifest.DType_UINT64:
		convertNumbers(mem.View[uint64](data), out)
	default:
		panic(fmt.Sprintf("store: %s holds no integers", dtype.Label()))
	}
}

func convertNumbers[S int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32, T int64 | float64](
	data []S, out []T,
) {
	for i, v := range data[:len(out)] {
		out[i] = T(v)
	}
}

// halfFloat is the value of an IEEE 754 binary16.
func halfFloat(h uint16) float64 {
	exponent, fraction := int(h>>10&31), float64(h&1023)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -24)
	case 31:
		v = math.Inf(1)
		if fraction != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if h>>15 != 0 {
		v = -v
	}
	return v
}

// EncodeFloats turns float64 into numbers of a floating type, rounded to the nearest, ties to even. Integers are none.
func EncodeFloats(dtype manifest.DType, values []float64, out []byte) {
	switch dtype {
	case manifest.DType_FLOAT16:
		for i, half := 0, mem.View[uint16](out); i < len(values); i++ {
			half[i] = halfBits(values[i])
		}
	case manifest.DType_BFLOAT16:
		for i, brain := 0, mem.View[uint16](out); i < len(values); i++ {
			brain[i] = brainBits(float32(values[i]))
		}
	case manifest.DType_FLOAT32:
		for i, single := 0, mem.View[float32](out); i < len(values); i++ {
			single[i] = float32(values[i])
		}
	case manifest.DType_FLOAT64:
		copy(mem.View[float64](out), values)
	default:
		panic(fmt.Sprintf("store: %s holds no floats", dtype.Label()))
	}
}

// halfBits is the nearest IEEE 754 binary16.
func halfBits(v float64) uint16 {
	sign := uint16(math.Float64bits(v) >> 48 & 0x8000)
	switch v = math.Abs(v); {
	case v != v:
		return 0x7e00
	case v >= 65520: // halfway between the largest and what would be the next
		return sign | 0x7c00
	case v < 1.0/(1<<14):
		return sign | uint16(math.RoundToEven(v*(1<<24)))
	}
	_, exponent := math.Frexp(v) // v = f * 2^exponent, f in [0.5, 1)
	fraction := math.RoundToEven(math.Ldexp(v, 11-exponent))
	// fraction is 1024 to 2048; the implicit bit and a carry add to the exponent.
	return sign | uint16((exponent+13)<<10+int(fraction))
}

// brainBits is the nearest bfloat16.
func brainBits(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
