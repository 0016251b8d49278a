//go:build !amd64

package rows

import "unsafe"

// kernels lists the kernels that this processor runs, the best first. The runtime's copy already uses the vector
// registers of arm64, so there prefetch alone is added.
func kernels() []kernel { return []kernel{portable} }

func (kernel) copy(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int) {
	copyPortable(dst, src, dstOff, srcOff, rowBytes, n, m)
}
