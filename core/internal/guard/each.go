package guard

import (
	"context"
	"errors"
	"sync"
)

// Each runs fn(ctx, 0) to fn(ctx, n-1) at the same time and returns once all have ended. The first failure cancels the
// context of the others. Of several errors it returns that of the lowest number, and a cancellation only where there is
// nothing else. A panic is an error like another.
func Each(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Add(1)
		done := func(err error) {
			if errs[i] = err; err != nil {
				cancel()
			}
			running.Done()
		}
		Go(func() { done(fn(ctx, i)) }, func(p *PanicError) { done(p) })
	}
	running.Wait()
	var cancelled error
	for _, err := range errs {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			cancelled = err
		} else if err != nil {
			return err
		}
	}
	return cancelled
}
