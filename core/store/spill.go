package store

import (
	"errors"
	"sync"
	"syscall"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// spillWriters is the number of writes to a spill file in flight. Partitions lie apart, so the disk needs a few at
// once.
const spillWriters = 4

// spill keeps the records of the edges between the two sorting passes, in memory or in a file. Offsets and lengths of
// accesses to a file are whole pages. write and read are safe for concurrent use; a pass of writing ends with flush.
type spill struct {
	block *mem.Block // the records, when they are in memory
	file  ssd.File   // else where they are
	jobs  chan spillJob
	free  chan []byte // buffers not in use
	wait  sync.WaitGroup

	mu  sync.Mutex
	err error // the first failure of a writer; guarded by mu
}

type spillJob struct {
	data []byte
	off  int64
}

// newMemorySpill returns a spill of n bytes of the budget.
func newMemorySpill(n int64, budget *mem.Budget) (*spill, error) {
	block, err := budget.Alloc(mem.Convert, n)
	if err != nil {
		return nil, err
	}
	return &spill{block: block}, nil
}

// newFileSpill returns a spill of n bytes in a new file. spare are buffers that it gives out in exchange for full ones.
func newFileSpill(fs ssd.FS, path string, n int64, spare [][]byte) (*spill, error) {
	flags := syscall.O_RDWR | syscall.O_CREAT | syscall.O_TRUNC | syscall.O_NOFOLLOW
	file, err := ssd.OpenDirect(fs, path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	// Some file systems take O_DIRECT at open and refuse it here.
	if err := ssd.WriteFull(file, spare[0][:ssd.PageBytes], 0); errors.Is(err, syscall.EINVAL) {
		_ = file.Close() // nothing in it is needed
		if file, err = fs.Open(path, flags, 0o600); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := ssd.Reserve(file, 0, max(n, ssd.PageBytes)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s := &spill{file: file, jobs: make(chan spillJob), free: make(chan []byte, len(spare))}
	for _, b := range spare {
		s.free <- b
	}
	for range spillWriters {
		s.wait.Add(1)
		guard.Go(func() { s.drain(); s.wait.Done() }, func(p *guard.PanicError) { s.fail(p); s.wait.Done() })
	}
	return s, nil
}

// write stores data and returns a buffer of the same capacity for what comes next; data is then no longer the caller's.
func (s *spill) write(data []byte, off int64) ([]byte, error) {
	if s.block != nil {
		copy(s.block.Bytes()[off:], data)
		return data, nil
	}
	s.jobs <- spillJob{data, off}
	return <-s.free, s.failed()
}

func (s *spill) drain() {
	for job := range s.jobs {
		// After a failure buffers still circulate, so that nobody waits for ever.
		if s.failed() == nil {
			if err := ssd.WriteFull(s.file, job.data, job.off); err != nil {
				s.fail(err)
			}
		}
		s.free <- job.data[:cap(job.data)]
	}
}

// flush waits until everything is written. Nothing is written afterwards.
func (s *spill) flush() error {
	if s.jobs != nil {
		close(s.jobs)
		s.wait.Wait()
		s.jobs = nil
	}
	return s.failed()
}

// read returns n bytes at off: in place, or in dst.
func (s *spill) read(dst []byte, off, n int64) ([]byte, error) {
	if s.block != nil {
		return s.block.Bytes()[off : off+n], nil
	}
	return dst[:n], ssd.ReadFull(s.file, dst[:roundUp(n, ssd.PageBytes)], off)
}

// close gives memory and descriptor back. The file is removed with its directory.
func (s *spill) close() error {
	err := s.flush()
	if s.block != nil {
		s.block.Free()
		return err
	}
	return errors.Join(err, s.file.Close())
}

func (s *spill) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *spill) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
