package store

import (
	"math"
	"math/bits"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

// maxWaste is the share of a page, 1/maxWaste, that padding may take so that no row straddles two pages. A straddling
// row costs a second page of a random read; beyond an eighth, the larger file costs the cache and a scan more than
// that.
const maxWaste = 8

// maxRowBytes bounds a row, so that its size and that of a buffer with a few rows fit in an int32.
const maxRowBytes = 1 << 28

// LayoutFor places rows: whole rows per page where that wastes little, else back to back.
func LayoutFor(rowBytes int, rows int64) ssd.Layout {
	perPage := ssd.PageBytes / rowBytes
	if perPage == 0 || (ssd.PageBytes-perPage*rowBytes)*maxWaste > ssd.PageBytes {
		perPage = 0
	}
	return ssd.Layout{RowBytes: rowBytes, RowsPerPage: perPage, NumRows: rows}
}

// fileBytes returns the size of a file in this layout, whole pages; false where it exceeds an int64. Rows must not be
// negative.
func fileBytes(l ssd.Layout) (int64, bool) {
	if l.RowsPerPage > 0 {
		perPage := int64(l.RowsPerPage)
		return product(l.NumRows/perPage+min(1, l.NumRows%perPage), ssd.PageBytes)
	}
	n, ok := product(l.NumRows, int64(l.RowBytes))
	if !ok || n > math.MaxInt64-ssd.PageBytes {
		return 0, false
	}
	return roundUp(n, ssd.PageBytes), true
}

// rowBytesOf returns the size of a row of this shape; false where it is not within [1, maxRowBytes].
func rowBytesOf(dtype manifest.DType, shape []int64) (int, bool) {
	n := int64(dtype.Size())
	for _, d := range shape {
		if d < 1 || d > maxRowBytes {
			return 0, false
		}
		if n *= d; n > maxRowBytes {
			return 0, false
		}
	}
	return int(n), true
}

// product returns a*b for factors that are not negative; false on overflow.
func product(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
