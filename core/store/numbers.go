package store

import (
	"encoding/binary"
	"fmt"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
)

// The numbers of the user's tensors, of any type.

// DecodeFloats turns numbers of a type, as many as out is long, into float64. Integers beyond 2^53 are rounded.
func DecodeFloats(dtype manifest.DType, data []byte, out []float64) {
	switch dtype {
	case manifest.DType_FLOAT16:
		for i, h := range mem.View[uint16](data) {
			out[i] = float64(narrow.FromFloat16(h))
		}
	case manifest.DType_BFLOAT16:
		for i, h := range mem.View[uint16](data) {
			out[i] = float64(narrow.FromBFloat16(h))
		}
	case manifest.DType_FLOAT32:
		convertNumbers(mem.View[float32](data), out)
	case manifest.DType_FLOAT64:
		copy(out, mem.View[float64](data))
	default:
		DecodeIntegers(dtype, data, out)
	}
}

// GatherFloats turns the numbers of a type at the given places of data into float64.
func GatherFloats(dtype manifest.DType, data []byte, places []int64, out []float64) {
	switch dtype {
	case manifest.DType_FLOAT32:
		gatherNumbers(mem.View[float32](data), places, out)
	case manifest.DType_FLOAT64:
		gatherNumbers(mem.View[float64](data), places, out)
	default:
		width := int64(dtype.Size())
		for i, at := range places {
			DecodeFloats(dtype, data[at*width:(at+1)*width], out[i:i+1])
		}
	}
}

func gatherNumbers[N float32 | float64](numbers []N, places []int64, out []float64) {
	out = out[:len(places)]
	for i, at := range places {
		out[i] = float64(numbers[at])
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
	case manifest.DType_UINT40:
		convertUint40(data, out)
	default:
		panic(fmt.Sprintf("store: %s holds no integers", dtype.Label()))
	}
}

// Uint40 returns the number of five bytes that data begins with.
func Uint40(data []byte) int64 {
	_ = data[4] // one check
	return int64(binary.LittleEndian.Uint32(data)) | int64(data[4])<<32
}

// convertUint40 is DecodeIntegers of numbers of five bytes.
func convertUint40[T int64 | float64](data []byte, out []T) {
	// Eight bytes are one load, and what follows a number is masked. Behind the last there may be nothing.
	i := 0
	for ; i < len(out) && len(data) >= 8; i++ {
		out[i] = T(int64(binary.LittleEndian.Uint64(data) & (1<<40 - 1)))
		data = data[5:]
	}
	for ; i < len(out); i++ {
		out[i] = T(Uint40(data))
		data = data[5:]
	}
}

// putUint40 writes a number of five bytes.
func putUint40(data []byte, v uint64) {
	data[4] = byte(v >> 32)
	binary.LittleEndian.PutUint32(data, uint32(v))
}

func convertNumbers[S int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32, T int64 | float64](
	data []S, out []T,
) {
	for i, v := range data[:len(out)] {
		out[i] = T(v)
	}
}

// EncodeFloats turns float64 into numbers of a floating type, rounded to the nearest, ties to even. Integers are none.
func EncodeFloats(dtype manifest.DType, values []float64, out []byte) {
	switch dtype {
	case manifest.DType_FLOAT16:
		narrow.Round(narrow.Float16, out, values)
	case manifest.DType_BFLOAT16:
		narrow.Round(narrow.BFloat16, out, values)
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

// encodeIntegers turns int64 into numbers of a type in which ids are stored, which holds them.
func encodeIntegers(dtype manifest.DType, values []int64, out []byte) {
	switch dtype {
	case manifest.DType_INT32:
		for i, narrow := 0, mem.View[int32](out); i < len(values); i++ {
			narrow[i] = int32(values[i])
		}
	case manifest.DType_UINT32:
		for i, narrow := 0, mem.View[uint32](out); i < len(values); i++ {
			narrow[i] = uint32(values[i])
		}
	case manifest.DType_INT64:
		copy(mem.View[int64](out), values)
	case manifest.DType_UINT40:
		for i, v := range values {
			putUint40(out[5*i:], uint64(v))
		}
	default:
		panic(fmt.Sprintf("store: no ids are stored as %s", dtype.Label()))
	}
}
