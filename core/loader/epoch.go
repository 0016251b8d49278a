package loader

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/internal/guard"
	"freshgo/core/prune"
)

// epoch is one pass over the seeds. Preparers, one per batch in flight, take
// batches in order and deliver each into the slot of its index; the consumer
// takes them from there in order.
//
//	ask ──► preparer: lease ─► ticket ─► draw ─► gate ─► tensors ─► rows ──► slot ──► next
type epoch struct {
	loader        *Loader
	index         int64
	shareSchedule draw.ShareSchedule // batches are counted by the positions in them
	first         int64
	count         int64
	drawer        drawer
	pruner        pruner // the loader's, or none

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	gate   *gate
	turns  fetch.Turns
	ask    chan struct{} // a token for each batch that may be started
	ticket atomic.Int64  // the next batch to begin
	slots  []chan result // by index modulo their number
	// commits is nil where training changes no rows.
	commits *commits

	started time.Time
	yielded int64 // batches handed over; the consumer's
	asked   bool  // whether the next batch's token has been given; the consumer's
	err     error // what ended the epoch; the consumer's
}

// result is a finished batch or why there is none.
type result struct {
	batch *batch.Batch
	err   error
}

func newEpoch(l *Loader, index, first int64, mode Mode) (*epoch, error) {
	if count := l.NumBatches(); index < 0 || first < 0 || first > count {
		return nil, fmt.Errorf("%w: epoch must be at least 0 and the first batch within [0, %d], got epoch %d, batch %d",
			draw.ErrOption, count, index, first)
	}
	shareSchedule, first := l.turnsFrom(first)
	e := &epoch{
		loader: l, index: index, shareSchedule: shareSchedule, first: first, count: shareSchedule.Count, yielded: first,
		pruner: l.history.pruner,
	}
	inFlight := max(l.draw.Split.Prefetch, 1)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.turns = fetch.Turns{Ctx: e.ctx, Cache: fetch.NewTurnstile(first), Policy: fetch.NewTurnstile(first)}
	e.gate = newGate(l.draw.Budget, l.draw.Split.Batches, first)
	e.gate.holds = max(l.draw.Options.Holds, 1)
	if l.draw.Options.Memory == 0 {
		e.gate.limit = 0
	}
	e.ask = make(chan struct{}, inFlight)
	e.slots = make([]chan result, inFlight)
	for i := range e.slots {
		e.slots[i] = make(chan result, 1)
	}
	e.ticket.Store(first)
	var err error
	if len(l.rows.Trained) > 0 && mode != Trace {
		e.commits = newCommits(first)
	}
	if mode == Trace {
		e.pruner = prune.None{}
		e.drawer, err = drawTraces(e)
	} else {
		l.history.pruner.Begin(e.first, e.count, mode == Plain) // before the inspector forecasts pruned batches
		e.drawer, err = l.cache.begin(e)
	}
	if err != nil {
		e.cancel()
		return nil, err
	}
	return e, nil
}

func (e *epoch) begin() {
	e.started = time.Now()
	for range e.loader.draw.Split.Prefetch {
		e.ask <- struct{}{}
	}
	for range e.slots {
		e.done.Add(1)
		guard.Go(func() {
			defer e.done.Done()
			e.prepareAll()
		}, e.loader.fail)
	}
}

// prepareAll makes batches until none is left: the life of a preparer.
func (e *epoch) prepareAll() {
	l := e.loader
	p := new(preparer)
	p.open(l, &l.rows.CachedTypes, e.pruner.Lend(), l.cache.source(&p.window))
	p.drawn.Padding = batch.NewPadding(&l.draw)
	p.begin(e)
	p.drawn.SetInputs(l.draw.Inputs())
	defer e.pruner.TakeBack(p.drawn.Cut)
	defer p.filler.Forget()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.ask:
		}
		i, b, err := p.prepare()
		if i >= e.count || e.ctx.Err() != nil {
			if b != nil {
				b.Release()
			}
			return
		}
		e.slots[i%int64(len(e.slots))] <- result{b, err}
		if err != nil || !e.takeBack(p, i) {
			return
		}
	}
}

// takeBack waits until the consumer is done with a batch whose rows training changes, and takes them back. It reports
// whether the preparer goes on.
func (e *epoch) takeBack(p *preparer, i int64) bool {
	if e.commits == nil {
		return true
	}
	defer p.filler.Forget()
	err := draw.ErrStopped // where the consumer never had the batch, and where something panics
	defer func() { e.commits.end(i, err) }()
	p.window.WriteBack()
	if !e.commits.await(i, p) {
		return false
	}
	err = p.window.Commit(&p.filler, e.shareSchedule.EndsStep(i))
	return err == nil
}

// finish ends the turn of the batch that the consumer has.
func (e *epoch) finish() error {
	if e.commits == nil || e.yielded == e.first {
		return nil
	}
	return e.commits.finish(e.yielded)
}

// next is Loader.Next.
func (e *epoch) next(ctx context.Context) (*batch.Batch, error) {
	if e.err == nil {
		e.err = e.finish()
	}
	if e.err != nil {
		return nil, e.err
	}
	if e.yielded == e.count {
		if e.first == 0 {
			e.loader.counters.Epoch.Set(time.Since(e.started))
		}
		e.err = io.EOF
		return nil, io.EOF
	}
	if e.loader.draw.Split.Prefetch == 0 && !e.asked {
		e.asked = true
		e.ask <- struct{}{}
	}
	e.gate.want(e.yielded)
	defer e.drawer.awaits(e.yielded)()
	slot := e.slots[e.yielded%int64(len(e.slots))]
	var r result
	select {
	case r = <-slot: // before ctx, so that polls get a finished batch
	default:
		select {
		case r = <-slot:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.ctx.Done():
			return nil, draw.ErrStopped
		}
	}
	if r.err != nil {
		e.err = r.err
		e.stop()
		return nil, r.err
	}
	if e.yielded == e.first {
		e.loader.counters.FirstBatch.Set(time.Since(e.started))
	}
	e.yielded++
	e.asked = false
	e.gate.handOver(r.batch.Reserved)
	if e.loader.draw.Split.Prefetch > 0 {
		e.ask <- struct{}{}
	}
	return r.batch, nil
}

// abandon makes everybody return, without waiting for them.
func (e *epoch) abandon() {
	if e.commits != nil {
		e.commits.shutdown()
	}
	e.cancel()
	e.gate.shutdown()
	e.turns.Cache.Shutdown()
	e.turns.Policy.Shutdown()
	e.pruner.Abandon()
}

// stop ends the work, waits for the preparers and frees their batches.
func (e *epoch) stop() {
	_ = e.finish() // the tables say what they have lost
	e.abandon()
	whole := e.yielded == e.count
	if !whole {
		e.drawer.abandon()
	}
	e.done.Wait()
	e.pruner.Stop()
	e.drawer.end(whole)
	for _, slot := range e.slots {
		select {
		case r := <-slot:
			if r.batch != nil {
				r.batch.Release()
			}
		default:
		}
	}
	e.gate.drain()
}
