// Package rows copies rows of one table to rows of another: features from memory or from a cache into a batch.
//
// It guarantees that no index reaches memory unchecked. The copy is bound by memory: rows are prefetched ahead of their
// turn, and where rows and destination are aligned to the vector they are written past the caches, which saves reading
// the destination, for a batch is larger than the caches by the time it is used. The best of the kernels that the
// processor runs (AVX-512, AVX2, portable) is chosen once; tests compare each with the portable one. core/loader calls
// it.
package rows

import (
	"fmt"
	"unsafe"

	"freshgo/core/internal/asm"
)

const (
	// aheadRows is the distance of prefetches from the copy, in rows. 16 is the knee for rows of 512 bytes: fewer leave
	// the memory idle, more evict lines before their use.
	aheadRows = 16
	// blockRows offsets are computed at a time, on the stack: rows that leave a cache come a dozen to a call, which must
	// not allocate or clear much. Arbitrary.
	blockRows = 64
)

// offsets are byte offsets of the rows of one block and of those that follow, which are only prefetched.
type offsets [blockRows + aheadRows]uintptr

// kernel names a routine. Its copy copies rowBytes bytes from src+srcOff[i] to dst+dstOff[i] for the first n offsets,
// and prefetches sources up to the m-th, n <= m. All offsets are in range. Rejected: a variable with a function, by
// which the offsets of each call went to the heap.
type kernel string

const portable kernel = "portable"

// best is chosen once and never written again.
var best = kernels()[0]

// Gather copies row idx[i] of src to row i of dst, for all i. Rows are rowBytes long. See Copy.
func Gather[I int64 | int32](dst, src []byte, rowBytes int, idx []I) {
	copyRows(best, dst, nil, src, idx, rowBytes)
}

// Copy copies row srcRow[i] of src to row dstRow[i] of dst, for all i. Rows are rowBytes long. dst and src must not
// overlap; where a destination row is named twice it ends as one of the two. An index that is out of range is a broken
// invariant of the caller: it panics before its row is touched.
func Copy[I int64 | int32](dst []byte, dstRow []int32, src []byte, srcRow []I, rowBytes int) {
	if len(dstRow) != len(srcRow) {
		panic(fmt.Sprintf("rows: %d destination rows for %d source rows", len(dstRow), len(srcRow)))
	}
	copyRows(best, dst, dstRow, src, srcRow, rowBytes)
}

// copyRows is Copy by a given kernel; without dstRow the destination is row i.
func copyRows[I int64 | int32](k kernel, dst []byte, dstRow []int32, src []byte, srcRow []I, rowBytes int) {
	if rowBytes == 0 || len(srcRow) == 0 {
		return
	}
	dstRows, srcRows := uint64(len(dst)/rowBytes), uint64(len(src)/rowBytes)
	if dstRow == nil && uint64(len(srcRow)) > dstRows {
		panic(fmt.Sprintf("rows: %d rows do not fit a destination of %d", len(srcRow), dstRows))
	}
	// unsafe: every offset computed below is the start of a whole row inside dst or src.
	to, from := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	var dstOff, srcOff offsets
	for first := 0; first < len(srcRow); first += blockRows {
		block := srcRow[first:min(first+len(srcOff), len(srcRow))]
		for i, r := range block {
			if uint64(r) >= srcRows {
				panic(fmt.Sprintf("rows: source row %d of index %d is not in [0, %d)", r, first+i, srcRows))
			}
			srcOff[i] = uintptr(r) * uintptr(rowBytes)
		}
		for i := range block {
			d := uint64(first + i)
			if dstRow != nil {
				if d = uint64(dstRow[first+i]); d >= dstRows {
					panic(fmt.Sprintf("rows: destination row %d of index %d is not in [0, %d)", dstRow[first+i], first+i, dstRows))
				}
			}
			dstOff[i] = uintptr(d) * uintptr(rowBytes)
		}
		if first == 0 {
			for _, off := range srcOff[:min(aheadRows, len(block))] {
				asm.PrefetchRange(unsafe.Add(from, off), rowBytes) // a row of src
			}
		}
		k.copy(to, from, &dstOff, &srcOff, rowBytes, min(blockRows, len(block)), len(block))
	}
}

func copyPortable(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int) {
	// unsafe: copyRows proved every row to lie inside its slice.
	row := func(base unsafe.Pointer, off uintptr) []byte {
		return unsafe.Slice((*byte)(unsafe.Add(base, off)), rowBytes)
	}
	for i := range n {
		if i+aheadRows < m {
			asm.PrefetchRange(unsafe.Add(src, srcOff[i+aheadRows]), rowBytes)
		}
		copy(row(dst, dstOff[i]), row(src, srcOff[i]))
	}
}
