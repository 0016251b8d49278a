package main

import (
	"context"
	"sync"
	"time"
	"unsafe"
)

// job is one long operation on a goroutine of its own.
type job struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed after result and err are set

	mu       sync.Mutex // guards what follows
	progress progress
	result   result
	err      error
}

func (*job) kind() string { return "job" }

// progress is the progress of a job; total 0 means unknown.
type progress struct {
	stage       string
	done, total int64
}

// result is the result of a job until the caller takes it: a pointer for C, and the function that undoes it. Zero for
// jobs without a result.
type result struct {
	pointer unsafe.Pointer
	discard func()
}

// work is the body of a job; it ends soon after ctx does.
type work func(ctx context.Context, report report) (result, error)

// report records the progress of a job. It may be called from any goroutine.
type report func(stage string, done, total int64)

// startJob runs fn.
func startJob(fn work) *job {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{cancel: cancel, ended: make(chan struct{})}
	go func() {
		var r result
		err := recovered(func() (err error) {
			r, err = fn(ctx, j.report)
			return err
		})
		if err != nil {
			notePanic(err)
		}
		j.end(r, err)
	}()
	return j
}

func (j *job) report(stage string, done, total int64) {
	j.mu.Lock()
	j.progress = progress{stage, done, total}
	j.mu.Unlock()
}

// end records how the work ended; with an error there is no result.
func (j *job) end(r result, err error) {
	j.mu.Lock()
	j.result, j.err = r, err
	j.mu.Unlock()
	j.cancel() // frees the context
	close(j.ended)
}

// wait waits for the end, for at most timeoutMS (see waitFor), and passes the result on once.
func (j *job) wait(timeoutMS int32) (progress, unsafe.Pointer, error) {
	ended := waitFor(j.ended, timeoutMS)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !ended:
		return j.progress, nil, errTimeout
	case j.err != nil:
		return j.progress, nil, j.err
	}
	taken := j.result
	j.result = result{}
	return j.progress, taken.pointer, nil
}

// close cancels the work, waits for its end and undoes a result that nobody took.
func (j *job) close() error {
	j.cancel()
	<-j.ended
	j.mu.Lock()
	left := j.result
	j.result = result{}
	j.mu.Unlock()
	if left.discard != nil {
		left.discard()
	}
	return nil
}

// waitFor reports whether done was closed within timeoutMS; 0 only looks, negative waits for ever.
func waitFor(done <-chan struct{}, timeoutMS int32) bool {
	if timeoutMS < 0 {
		<-done
		return true
	}
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(time.Duration(timeoutMS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// shared is something that is closed by the last of its users; whoever opens it is the first.
type shared struct {
	mu    sync.Mutex // guards users
	users int
	free  func()
}

func newShared(free func()) *shared { return &shared{users: 1, free: free} }

// use adds a user, who calls drop. It fails when the last is gone.
func (s *shared) use() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		return errClosed
	}
	s.users++
	return nil
}

func (s *shared) drop() {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if last {
		s.free()
	}
}

// end is drop for the handle of an owner.
func (s *shared) end() error {
	s.drop()
	return nil
}
