//go:build !linux

package ssd

import "golang.org/x/sys/unix"

// Direct is the flag of Open for reads and writes that bypass the page cache, which this system lacks: Open returns
// EINVAL.
const Direct = 1 << 40

func openFile(path string, flag int, perm uint32) (int, error) {
	if flag&Direct != 0 {
		return -1, unix.EINVAL
	}
	return unix.Open(path, flag, perm)
}

func exchange(string, string) error { return unix.ENOSYS }

func clone(string, string) error { return unix.ENOSYS }

func allocate(int, int64, int64) error { return unix.EOPNOTSUPP }
