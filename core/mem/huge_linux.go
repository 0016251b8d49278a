package mem

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adviseHuge requests huge pages. A kernel without them refuses; the block is then only slower.
func adviseHuge(data []byte) { _ = syscall.Madvise(data, syscall.MADV_HUGEPAGE) }

// Populate has the system give zeroed pages their memory before they are used. It says whether it could, which older
// kernels cannot.
func Populate(p []byte) bool { return unix.Madvise(p, unix.MADV_POPULATE_WRITE) == nil }
