package narrow

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// kernels lists the kernels that this processor runs, the best first. Every processor with AVX2 has F16C.
func kernels() []kernel {
	var ks []kernel
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW {
		ks = append(ks, vector("avx512", 16, float16AVX512, bfloat16AVX512, int8AVX512, columnsAVX512))
	}
	if cpu.X86.HasAVX2 {
		ks = append(ks, vector("avx2", 8, float16AVX2, bfloat16AVX2, int8AVX2, columnsAVX2))
	}
	return append(ks, portable)
}

// vector makes a kernel of routines that widen a multiple of lanes; the portable one does what is left.
func vector(
	name string, lanes int,
	float16, bfloat16 func(dst, src unsafe.Pointer, n int),
	int8 func(dst, src unsafe.Pointer, n int, scale, offset float32),
	columns func(dst, src, scales, offsets unsafe.Pointer, n int),
) kernel {
	// unsafe: p has the n bytes that a routine reads or writes, and the n numbers.
	data := func(p []byte, n int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p[:n])) }
	// unsafe: likewise.
	floats := func(p []float32, n int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p[:n])) }
	halves := func(routine func(dst, src unsafe.Pointer, n int), rest widenHalves) widenHalves {
		return func(dst, src []byte, n int) {
			whole := n &^ (lanes - 1)
			routine(data(dst, 4*whole), data(src, 2*whole), whole)
			rest(dst[4*whole:], src[2*whole:], n-whole)
		}
	}
	return kernel{
		name:     name,
		float16:  halves(float16, widenFloat16),
		bfloat16: halves(bfloat16, widenBFloat16),
		int8: func(dst, src []byte, n int, scale, offset float32) {
			whole := n &^ (lanes - 1)
			int8(data(dst, 4*whole), data(src, whole), whole, scale, offset)
			widenInt8(dst[4*whole:], src[whole:], n-whole, scale, offset)
		},
		columns: func(dst, src []byte, scales, offsets []float32) {
			n := len(scales)
			whole := n &^ (lanes - 1)
			columns(data(dst, 4*whole), data(src, whole), floats(scales, n), floats(offsets, n), whole)
			widenColumns(dst[4*whole:], src[whole:], scales[whole:], offsets[whole:])
		},
	}
}

// The routines of widen_amd64.s. n is a multiple of their lanes. dst may begin before src in the same memory: a vector
// is read before it is written.

//go:noescape
func float16AVX2(dst, src unsafe.Pointer, n int)

//go:noescape
func bfloat16AVX2(dst, src unsafe.Pointer, n int)

//go:noescape
func int8AVX2(dst, src unsafe.Pointer, n int, scale, offset float32)

//go:noescape
func columnsAVX2(dst, src, scales, offsets unsafe.Pointer, n int)

//go:noescape
func float16AVX512(dst, src unsafe.Pointer, n int)

//go:noescape
func bfloat16AVX512(dst, src unsafe.Pointer, n int)

//go:noescape
func int8AVX512(dst, src unsafe.Pointer, n int, scale, offset float32)

//go:noescape
func columnsAVX512(dst, src, scales, offsets unsafe.Pointer, n int)
