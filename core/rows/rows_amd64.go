package rows

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

const (
	avx2   kernel = "avx2"
	avx512 kernel = "avx512"
)

// kernels lists the kernels that this processor runs, the best first.
func kernels() []kernel {
	var ks []kernel
	if cpu.X86.HasAVX512F {
		ks = append(ks, avx512)
	}
	if cpu.X86.HasAVX2 {
		ks = append(ks, avx2)
	}
	return append(ks, portable)
}

func (k kernel) copy(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int) {
	switch k {
	case avx512:
		copyAVX512(dst, src, dstOff, srcOff, rowBytes, n, m)
	case avx2:
		copyAVX2(dst, src, dstOff, srcOff, rowBytes, n, m)
	default:
		copyPortable(dst, src, dstOff, srcOff, rowBytes, n, m)
	}
}

func copyAVX2(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int) {
	if rowBytes < 32 { // the kernel ends a row with one overlapping vector
		copyPortable(dst, src, dstOff, srcOff, rowBytes, n, m)
		return
	}
	// unsafe: only the alignment of the address is looked at.
	if (uintptr(dst)|uintptr(rowBytes))%32 == 0 {
		streamRowsAVX2(dst, src, dstOff, srcOff, rowBytes, n, m)
		return
	}
	copyRowsAVX2(dst, src, dstOff, srcOff, rowBytes, n, m)
}

func copyAVX512(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int) {
	if rowBytes < 64 {
		copyAVX2(dst, src, dstOff, srcOff, rowBytes, n, m)
		return
	}
	// unsafe: only the alignment of the address is looked at.
	if (uintptr(dst)|uintptr(rowBytes))%64 == 0 {
		streamRowsAVX512(dst, src, dstOff, srcOff, rowBytes, n, m)
		return
	}
	copyRowsAVX512(dst, src, dstOff, srcOff, rowBytes, n, m)
}

//go:noescape
func copyRowsAVX2(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)

// streamRowsAVX2 writes past the caches: dst and rowBytes must be multiples of 32.
//
//go:noescape
func streamRowsAVX2(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)

//go:noescape
func copyRowsAVX512(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)

// streamRowsAVX512 writes past the caches: dst and rowBytes must be multiples of 64.
//
//go:noescape
func streamRowsAVX512(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)
