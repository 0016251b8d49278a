package mem

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adviseHuge requests huge pages. A kernel without them refuses; the block is then only slower.
func adviseHuge(data []byte) { _ = syscall.Madvise(data, syscall.MADV_HUGEPAGE) }

// discard gives whole pages back to the system. A refusal leaves them as they are until the map ends.
func discard(data []byte) { _ = syscall.Madvise(data, syscall.MADV_DONTNEED) }

// Populate has the system give zeroed pages their memory before they are used. It says whether it could, which older
// kernels cannot.
func Populate(p []byte) bool { return unix.Madvise(p, unix.MADV_POPULATE_WRITE) == nil }
