package sample

import (
	"sync"
	"sync/atomic"

	"freshgo/core/internal/guard"
)

// minThreadPieces is the least work worth a thread: starting one takes a few microseconds, a piece three to ten.
const minThreadPieces = 8

// share runs work on the Worker's threads, or on fewer where there are few pieces. Each takes pieces by taken.Add until they
// are used up. The result is an error of one of the threads; a panic is one. All have ended when it returns.
func (w *Worker) share(taken *atomic.Int64, pieces int, work func(t *thread) error) error {
	threads := min(len(w.threads), max(1, pieces/minThreadPieces))
	if threads == 1 {
		return work(&w.threads[0])
	}
	errs := make([]error, threads)
	end := func(thread int, err error) {
		if err != nil {
			errs[thread] = err
			taken.Store(int64(pieces)) // the others need not go on
		}
	}
	var others sync.WaitGroup
	for thread := 1; thread < threads; thread++ {
		others.Add(1)
		guard.Go(func() {
			end(thread, work(&w.threads[thread]))
			others.Done()
		}, func(e *guard.PanicError) {
			end(thread, e)
			others.Done()
		})
	}
	end(0, guard.Run(func() error { return work(&w.threads[0]) }))
	others.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
