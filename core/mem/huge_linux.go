package mem

import "syscall"

// adviseHuge asks for huge pages. A kernel without them refuses; the block is then only slower.
func adviseHuge(data []byte) { _ = syscall.Madvise(data, syscall.MADV_HUGEPAGE) }
