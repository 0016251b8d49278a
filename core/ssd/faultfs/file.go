package faultfs

import (
	"syscall"

	"freshgo/core/ssd"
)

// file passes Fd and Name on as they are.
type file struct {
	ssd.File
	fs *FS
}

var _ ssd.CompletionFilter = (*file)(nil)

// pagesFor cuts p to n bytes, rounded up to a whole page because O_DIRECT takes nothing else. A short transfer moves
// these and reports n: what lies beyond is moved again by the retry.
func pagesFor(p []byte, n int) []byte {
	return p[:min(len(p), (n+ssd.PageBytes-1)/ssd.PageBytes*ssd.PageBytes)]
}

func (f *file) Pread(p []byte, off int64) (int, error) {
	n := len(p)
	if fault := f.fs.enter(Read, f.Name()); fault != nil {
		if fault.Errno != 0 {
			return 0, failure(Read, f.Name(), off, fault.Errno)
		}
		n = min(n, fault.Short)
	}
	got, err := f.File.Pread(pagesFor(p, n), off)
	return min(got, n), err
}

// FilterCompletion implements ssd.CompletionFilter.
func (f *file) FilterCompletion(_ int64, _ int, result int32) int32 {
	fault := f.fs.enter(Read, f.Name())
	switch {
	case fault == nil || result < 0:
		return result
	case fault.Errno != 0:
		return -int32(fault.Errno)
	default:
		return min(result, int32(fault.Short))
	}
}

func (f *file) Pwrite(p []byte, off int64) (int, error) {
	n := len(p)
	if fault := f.fs.enter(Write, f.Name()); fault != nil {
		if fault.Errno != 0 {
			return 0, failure(Write, f.Name(), off, fault.Errno)
		}
		n = min(n, fault.Short)
	}
	room := f.fs.takeSpace(n)
	if room == 0 && n > 0 {
		return 0, failure(Write, f.Name(), off, syscall.ENOSPC)
	}
	got, err := f.File.Pwrite(pagesFor(p, room), off)
	return min(got, room), err
}

// ringFile is a file that may be written by descriptor.
type ringFile struct{ *file }

var _ ssd.WriteFilter = ringFile{}

// FilterWrite implements ssd.WriteFilter. What it refuses is in the file, where a ring has put it.
func (f ringFile) FilterWrite(_ int64, _ int, result int32) int32 {
	fault := f.fs.enter(Write, f.Name())
	switch {
	case result < 0:
		return result
	case fault != nil && fault.Errno != 0:
		return -int32(fault.Errno)
	case fault != nil:
		result = min(result, int32(fault.Short))
	}
	room := int32(f.fs.takeSpace(int(result)))
	if room == 0 && result > 0 {
		return -int32(syscall.ENOSPC)
	}
	return room
}

// takeSpace returns how many of n bytes there is space for.
func (f *FS) takeSpace(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space >= 0 {
		n = int(min(int64(n), f.space))
		f.space -= int64(n)
	}
	return n
}

func (f *file) Sync() error { return f.fs.run(Sync, f.Name(), f.File.Sync) }

func (f *file) Truncate(size int64) error {
	return f.fs.run(Truncate, f.Name(), func() error { return f.File.Truncate(size) })
}

func (f *file) Allocate(off, n int64) error {
	return f.fs.run(Allocate, f.Name(), func() error { return f.File.Allocate(off, n) })
}

func (f *file) Size() (size int64, err error) {
	err = f.fs.run(Size, f.Name(), func() (err error) {
		size, err = f.File.Size()
		return err
	})
	return size, err
}

func (f *file) Lock(exclusive bool) (taken bool, err error) {
	err = f.fs.run(Lock, f.Name(), func() (err error) {
		taken, err = f.File.Lock(exclusive)
		return err
	})
	return taken, err
}

// Close closes the file even when a fault makes it fail, as close(2) does.
func (f *file) Close() error {
	f.fs.mu.Lock()
	f.fs.open--
	f.fs.mu.Unlock()
	err := f.File.Close()
	if fault := f.fs.enter(Close, f.Name()); fault != nil && fault.Errno != 0 {
		return failure(Close, f.Name(), -1, fault.Errno)
	}
	return err
}
