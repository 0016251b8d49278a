package ssd

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Direct is the flag of Open for reads and writes that bypass the page cache. Without support, Open returns EINVAL.
const Direct = unix.O_DIRECT

func openFile(path string, flag int, perm uint32) (int, error) { return unix.Open(path, flag, perm) }

func exchange(one, other string) error {
	return unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
}

// clone makes a durable file that shares the blocks of another. After an error there is none.
func clone(from, to string) error {
	source, err := unix.Open(from, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(source) // nothing was written
	target, err := unix.Open(to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	if err = unix.IoctlFileClone(target, source); err == nil {
		err = unix.Fsync(target)
	}
	if err = errors.Join(err, unix.Close(target)); err != nil {
		return errors.Join(err, unix.Unlink(to))
	}
	return nil
}

func allocate(fd int, off, n int64) error { return unix.Fallocate(fd, 0, off, n) }
