package ssd

import (
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReadPipe fills p from the caller's open pipe. It blocks until the writer has written or closed, which the owner of
// the pipe ensures. A pipe that ends before is io.ErrUnexpectedEOF, in a *PathError like all failures, whose offset
// counts from the start of p.
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
