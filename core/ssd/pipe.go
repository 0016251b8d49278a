package ssd

import (
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReadPipe fills p with what comes next through a pipe that the caller has open, and waits for it. It does not return
// before its writer has written or closed: who owns the pipe sees to that. A pipe that ends earlier is
// io.ErrUnexpectedEOF, in a *PathError like all failures, whose offset counts from the beginning of p.
func ReadPipe(fd int, p []byte) error {
	for done := 0; done < len(p); {
		n, err := unix.Read(fd, p[done:])
		if n == 0 && err == nil {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && !transient(err) {
			return &PathError{Op: "read", Path: "pipe " + strconv.Itoa(fd), Off: int64(done), Err: err}
		}
		done += max(n, 0)
	}
	return nil
}
