package guard

import (
	"context"
	"errors"
	"sync"
)

// Group runs goroutines and waits for all of them. Start and Wait belong to one goroutine. The zero value is an empty
// group.
type Group struct {
	running sync.WaitGroup
	errs    []*error // in the order of Start
}

// Start runs fn on a goroutine. A panic is an error like another.
func (g *Group) Start(fn func() error) {
	err := new(error)
	g.errs = append(g.errs, err)
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		*err = Run(fn)
	}()
}

// Wait returns once all have ended: with the error of the one that was started first, and a cancellation only where
// there is nothing else.
func (g *Group) Wait() (err error) {
	g.running.Wait()
	for _, of := range g.errs {
		switch {
		case *of == nil:
		case !errors.Is(*of, context.Canceled) && !errors.Is(*of, context.DeadlineExceeded):
			return *of
		case err == nil:
			err = *of
		}
	}
	return err
}

// All runs fn(0) to fn(n-1) at the same time, fn(0) on the caller's goroutine, and returns once all have ended, as Wait
// of a Group does.
func All(n int, fn func(i int) error) error {
	if n == 0 {
		return nil
	}
	first := new(error)
	g := Group{errs: append(make([]*error, 0, n), first)}
	for i := 1; i < n; i++ {
		g.Start(func() error { return fn(i) })
	}
	*first = Run(func() error { return fn(0) })
	return g.Wait()
}

// Each is All with a context that the first failure cancels for the others.
func Each(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return All(n, func(i int) error {
		err := Run(func() error { return fn(ctx, i) })
		if err != nil {
			cancel()
		}
		return err
	})
}

// Split runs fn for the parts of [0, n), which are alike in size, at the same time: one for each thread. It returns
// once all have ended. A panic of one of them is a panic of the caller.
func Split(threads, n int, fn func(lo, hi int)) {
	if threads = min(threads, n); threads <= 1 {
		fn(0, n)
		return
	}
	size := (n + threads - 1) / threads
	err := All((n+size-1)/size, func(i int) error {
		fn(i*size, min((i+1)*size, n))
		return nil
	})
	if err != nil {
		panic(err)
	}
}
