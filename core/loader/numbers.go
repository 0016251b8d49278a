package loader

import (
	"context"
	"fmt"
	"math"
	"sync"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// Tensors of which the loader reads the numbers: weights and times.

// allRows is all rows of a tensor, in memory, until free, which may be called again.
func (l *Loader) allRows(ctx context.Context, t *tensor) (rows []byte, free func(), err error) {
	if t.onDisk == nil || t.numRows == 0 {
		return t.memory, func() {}, nil
	}
	block, err := l.parts.store.LoadTensor(ctx, &t.onDisk.Array, l.budget, mem.Staging)
	if err != nil {
		return nil, nil, err
	}
	return block.Bytes()[:t.bytes()], sync.OnceFunc(block.Free), nil
}

// hold allocates what stays until the loader is closed.
func (l *Loader) hold(n int64) (*mem.Block, error) {
	block, err := l.budget.Alloc(mem.Topology, n)
	if err == nil {
		l.onClose(block.Free)
	}
	return block, err
}

// decodeWeights turns numbers of a type, as many as out is long, into float64. Integers beyond 2^53 are rounded.
func decodeWeights(dtype manifest.DType, data []byte, out []float64) {
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
		widen(mem.View[float32](data), out)
	case manifest.DType_FLOAT64:
		copy(out, mem.View[float64](data))
	default:
		decodeIntegers(dtype, data, out)
	}
}

// decodeIntegers turns integers of a type, as many as out is long, into T.
func decodeIntegers[T int64 | float64](dtype manifest.DType, data []byte, out []T) {
	switch dtype {
	case manifest.DType_INT8:
		widen(mem.View[int8](data), out)
	case manifest.DType_INT16:
		widen(mem.View[int16](data), out)
	case manifest.DType_INT32:
		widen(mem.View[int32](data), out)
	case manifest.DType_INT64:
		widen(mem.View[int64](data), out)
	case manifest.DType_UINT8:
		widen(mem.View[uint8](data), out)
	case manifest.DType_UINT16:
		widen(mem.View[uint16](data), out)
	case manifest.DType_UINT32:
		widen(mem.View[uint32](data), out)
	case manifest.DType_UINT64:
		widen(mem.View[uint64](data), out)
	default:
		panic(fmt.Sprintf("loader: %s holds no integers", dtype.Label()))
	}
}

func widen[S int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32, T int64 | float64](data []S, out []T) {
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
