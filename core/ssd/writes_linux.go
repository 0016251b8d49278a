package ssd

import (
	"runtime"
	"syscall"
	"time"
)

const (
	opWrite = 23
	// awaited is the divisor of the writes in flight whose completions are awaited together. Arbitrary.
	awaited = 4
)

// uringWrites makes writes by an io_uring of its own.
type uringWrites struct {
	ring   *ring
	file   File
	filter WriteFilter // nil: results are used as the kernel returns them
	writes []uringWrite
	free   []int
}

// uringWrite is a write in flight.
type uringWrite struct {
	data []byte
	off  int64
	done func(error) // nil: the entry is free
}

// openWriteRing returns a ring for writes to a file, or nil if the kernel refuses.
func (e *Engine) openWriteRing(f File, depth int) writeRing {
	runtime.LockOSThread() // the kernel checks who submits
	r, err := openRing(e.kernel, depth)
	if err != nil {
		runtime.UnlockOSThread()
		return nil
	}
	u := &uringWrites{ring: r, file: f, writes: make([]uringWrite, depth)}
	u.filter, _ = f.(WriteFilter)
	for i := range depth {
		u.free = append(u.free, i)
	}
	return u
}

func (u *uringWrites) begin(p []byte, off int64, done func(error)) {
	i := u.free[len(u.free)-1]
	u.free = u.free[:len(u.free)-1]
	u.writes[i] = uringWrite{p, off, done}
	s := u.ring.submission()
	s.opcode, s.fd, s.off = opWrite, int32(u.file.Fd()), uint64(off)
	s.addr, s.length, s.userData = address(p), uint32(len(p)), uint64(i)
	u.ring.push()
}

func (u *uringWrites) await() (ended int, _ error) {
	wait := 1 + (len(u.writes)-len(u.free))/awaited
	for attempt := 0; ; attempt++ {
		err := u.ring.enter(uint32(wait))
		u.ring.reap(func(c completion) {
			w := &u.writes[c.userData]
			err := u.finish(w, c.result)
			ended += u.end(int(c.userData), err)
		})
		again := err == syscall.EINTR || (err == syscall.EAGAIN || err == syscall.EBUSY) && attempt < maxRetries
		switch {
		case ended > 0 && (err == nil || again):
			return ended, nil
		case err == nil:
		case !again:
			// Writes in flight keep their pages, and may still reach the file, at positions that are not read.
			err = &PathError{Op: "write", Path: u.file.Name(), Off: -1, Err: err}
			for i := range u.writes {
				ended += u.end(i, err)
			}
			return ended, err
		case err != syscall.EINTR:
			time.Sleep(pause)
		}
	}
}

// end reports the result of a write to its caller.
func (u *uringWrites) end(i int, err error) (ended int) {
	done := u.writes[i].done
	if done == nil {
		return 0
	}
	u.writes[i] = uringWrite{}
	u.free = append(u.free, i)
	done(err)
	return 1
}

// finish takes the result of a write, and writes the rest.
func (u *uringWrites) finish(w *uringWrite, result int32) error {
	if u.filter != nil {
		result = u.filter.FilterWrite(w.off, len(w.data), result)
	}
	written := int(max(result, 0)) / PageBytes * PageBytes
	err := syscall.Errno(max(-result, 0))
	switch {
	case int(result) == len(w.data):
		return nil
	case result < 0 && !transient(err):
		return &PathError{Op: "write", Path: u.file.Name(), Off: w.off, Err: err}
	}
	return WriteFull(u.file, w.data[written:], w.off+int64(written))
}

func (u *uringWrites) close() {
	u.ring.close()
	runtime.UnlockOSThread()
}
