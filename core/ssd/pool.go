package ssd

import (
	"errors"

	"freshgo/core/internal/guard"
)

// maxWorkers bounds the goroutines, and so the threads, that block in pread. More gave no more IOPS on the disk
// measured.
const maxWorkers = 64

// errEnded is the error of Reads after a thread of the engine ended without a panic, because the receiver of data
// called runtime.Goexit.
var errEnded = errors.New("ssd: a thread of the engine has ended")

// startWorkers starts the pread and buffered engines: each slot has a goroutine that reads one range at a time.
func (e *Engine) startWorkers() {
	slots := e.slots()
	for i := range slots {
		t := &slots[i]
		e.spawn(func() error { return work(e.queue, t) }, func(err error) {
			if t.job != nil {
				e.queue.finish(t, err)
			}
		})
	}
}

// spawn runs a thread of the engine. When the thread ends in any way, release returns its tasks and the queue stops, so
// that no Read waits for ever.
func (e *Engine) spawn(loop func() error, release func(error)) {
	e.threads.Add(1)
	guard.Go(func() {
		defer e.threads.Done()
		err := errEnded
		defer func() {
			e.queue.stop(err)
			release(err)
		}()
		err = guard.Run(loop)
	}, func(p *guard.PanicError) { e.queue.stop(p) })
}

// work reads task after task until the queue stops. While t.job is set, the task is in progress.
func work(q *queue, t *transfer) error {
	for {
		next, ok := q.take()
		if !ok {
			return ErrClosed
		}
		t.begin(next)
		err := t.read()
		q.finish(t, err)
		t.job = nil
	}
}

func (t *transfer) read() error {
	for {
		p, off := t.rest()
		if over, err := t.advance(t.job.handle.file.Pread(p, off)); err != nil {
			return err
		} else if over {
			return t.deliver()
		}
		if t.job.failed.Load() {
			return nil
		}
	}
}
