package draw

import (
	"context"
	"errors"
	"sync/atomic"

	"freshgo/core/internal/guard"
)

// threads are the tokens of the threads that a loader computes with, num_workers of them, for all batches together.
type threads struct {
	busy    chan struct{} // a token for each thread that computes
	several chan struct{} // of the only one who waits for more threads while it has some, so that nobody waits for it
}

func newThreads(n int) threads { return threads{make(chan struct{}, n), make(chan struct{}, 1)} }

// run runs fn with n threads, or with all, when they are free.
func (t threads) run(ctx context.Context, n int, fn func()) error {
	held, err := t.wait(ctx, min(n, cap(t.busy)))
	defer func() {
		for range held {
			<-t.busy
		}
	}()
	if err == nil {
		fn()
	}
	return err
}

// wait takes n threads. It returns how many it has taken.
func (t threads) wait(ctx context.Context, n int) (held int, err error) {
	if n > 1 {
		select {
		case <-ctx.Done():
			return 0, ErrStopped
		case t.several <- struct{}{}:
			defer func() { <-t.several }()
		}
	}
	for ; held < n; held++ {
		select {
		case <-ctx.Done():
			return held, ErrStopped
		case t.busy <- struct{}{}:
		}
	}
	return held, nil
}

// share runs fn for pieces of [0, n), by the caller, who has a thread, and by threads that are idle. They join and
// leave between pieces, so that nobody waits longer than for a piece. A panic of one of them is a panic of the caller.
func (t threads) share(n, piece int, fn func(lo, hi int)) {
	var next atomic.Int64
	var helpers guard.Group
	take := func() (more bool) {
		lo := int(next.Add(int64(piece))) - piece
		if lo < n {
			fn(lo, min(lo+piece, n))
		}
		return lo+piece < n
	}
	err := guard.Run(func() error {
		for more := n > 0; more; more = take() {
			for left := n - int(next.Load()) - piece; left > 0 && t.idle(); left -= piece {
				helpers.Start(func() error { t.help(take); return nil })
			}
		}
		return nil
	})
	if err = errors.Join(err, helpers.Wait()); err != nil {
		panic(err)
	}
}

// Spread runs fn within Sampling.Compute for pieces of [0, n), also with threads that are idle.
func Spread(m *Sampling, n, piece int, fn func(lo, hi int)) { m.threads.share(n, piece, fn) }

// idle takes a thread if one is idle.
func (t threads) idle() bool {
	select {
	case t.busy <- struct{}{}:
		return true
	default:
		return false
	}
}

// help takes pieces with a thread that the caller has taken, until none is left or somebody waits for the thread.
func (t threads) help(take func() (more bool)) {
	held := true
	defer func() {
		if held {
			<-t.busy
		}
	}()
	for held && take() {
		<-t.busy // whoever waits has it now
		held = t.idle()
	}
}
