package window

import (
	"context"
	"sync"
	"time"

	"freshgo/core/draw"
	"freshgo/core/internal/guard"
)

// The prologue of a superbatch runs early where its plan allows that: while the superbatch before is executed, whenever
// no batch is being filled. When the superbatch begins, the rest of the prologue runs at once.

// earlyChunk is the number of rows that are read between two checks that the loader is idle: some milliseconds of a
// disk. Arbitrary.
const earlyChunk = 1 << 12

// buffersPause is the delay between polls for free buffers in an early prologue: some batches. Arbitrary.
const buffersPause = 10 * time.Millisecond

// idleGate counts the batches that are being filled, and tells an early prologue when there are none.
type idleGate struct {
	mu      sync.Mutex
	filling int           // batches, and prologues of superbatches that have begun; guarded by mu, as is over
	over    chan struct{} // closed when there are none any more; nil: nobody waits for that
}

func (q *idleGate) enter() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.filling++
}

func (q *idleGate) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.filling--; q.filling == 0 && q.over != nil {
		close(q.over)
		q.over = nil
	}
}

// busy returns a channel that is closed when no batch is being filled; nil: none is.
func (q *idleGate) busy() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.filling > 0 && q.over == nil {
		q.over = make(chan struct{})
	}
	return q.over
}

// earlyPrologue is a prologue that runs early. Its goroutine is the inspector's.
type earlyPrologue struct {
	begun chan struct{} // closed when the superbatch begins
	over  chan struct{} // closed when the prologue has ended
	err   error         // why it failed; set before over is closed, as is moved
	moved moved         // the rows and bytes that it moved
}

// runEarly executes the prologue before the superbatch begins.
func (s *superbatch) runEarly(ctx context.Context) {
	a, in := s.early, s.inspector
	defer close(a.over)
	if from := in.before(s); from != nil { // whose prologue brings the files up to date, see trained
		_ = from.await(ctx) // its batches say what failed
	}
	s.awaitBuffers(ctx)
	s.openPacks(0, len(s.batches))
	work := earlyWork{superbatch: s}
	work.resume()
	a.err = guard.Run(func() error {
		err := s.readAhead(ctx, &in.merger, earlyChunk, func() { work.yield(ctx) })
		return in.markPlanLost(s.first, err)
	})
	work.pause()
}

// awaitBuffers waits until the previous superbatch has freed buffers for the packs that are opened early, or the
// superbatch begins.
func (s *superbatch) awaitBuffers(ctx context.Context) {
	packs := len(s.packSizes(0, len(s.batches))) * len(s.inspector.cache.features.Columns)
	again := time.NewTicker(buffersPause)
	defer again.Stop()
	for !s.inspector.cache.pool.Fits(packs) {
		select {
		case <-again.C:
		case <-s.early.begun:
			return
		case <-ctx.Done():
			return
		}
	}
}

// earlyWork counts what runEarly does between its pauses.
type earlyWork struct {
	*superbatch
	start time.Time
	from  moved
}

func (w *earlyWork) resume() {
	c := w.inspector.cache
	w.start, w.from = time.Now(), c.moved()
	c.windows.beginEarly(w.from)
}

func (w *earlyWork) pause() {
	c := w.inspector.cache
	c.timeline.add(spanScanning, w.first, w.start)
	took := c.moved().minus(w.from)
	c.windows.endEarly(took)
	w.early.moved = w.early.moved.plus(took)
}

// yield waits until no batch is being filled, or the superbatch begins.
func (w *earlyWork) yield(ctx context.Context) {
	for {
		busy := w.inspector.cache.idleGate.busy()
		if busy == nil || isClosed(w.early.begun) || ctx.Err() != nil {
			return
		}
		w.pause()
		select {
		case <-busy:
		case <-w.early.begun:
		case <-ctx.Done():
		}
		w.resume()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// awaitEarly tells the prologue that the superbatch begins, and waits until it has ended.
func (s *superbatch) awaitEarly(ctx context.Context) error {
	close(s.early.begun)
	select {
	case <-s.early.over:
		return s.early.err
	case <-ctx.Done():
		return draw.ErrStopped
	}
}
