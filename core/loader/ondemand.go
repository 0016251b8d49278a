package loader

import (
	"context"
	"errors"
	"slices"
	"sync"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/prune"
	"freshgo/core/sample"
)

// onDemandWorkers makes batches on demand. It has its own worker and scratch, and uses no memory of the loader's
// budget, so running epochs keep all of theirs.
type onDemandWorkers struct {
	loader *Loader
	mu     sync.Mutex      // guards idle
	idle   *onDemandWorker // of the last batch; others are dropped
	asked  sync.WaitGroup
	closes context.Context // ends when the loader closes
	cancel context.CancelFunc
}

type onDemandWorker struct {
	preparer    preparer
	cachedTypes draw.CachedTypes
	worker      *sample.Worker
	memory      *mem.Budget // of worker
}

// keptOnDemand is the most memory of a worker that is kept for the next batch. Arbitrary: enough for some thousand
// seeds.
const keptOnDemand = 64 << 20

// Sample makes one batch on demand: the first batch of a loader over the seeds of ask, in their order, not pruned by a
// history. It may be called from any goroutine and does not affect a running epoch: it reads rows that are not
// permanently in memory, and its memory, in proportion to the batch, comes on top of the loader's budget. Close waits
// for it.
//
// It returns ErrOption and sample.ErrSeed for wrong seeds, ErrClosed, and the errors of Next.
func (l *Loader) Sample(ctx context.Context, ask OnDemand) (b *batch.Batch, err error) {
	if err := l.onDemand.begin(); err != nil {
		return nil, err
	}
	defer l.onDemand.asked.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.onDemand.closes, cancel)()

	err = guard.Run(func() error {
		b, err = l.onDemand.sample(ctx, &ask)
		return err
	})
	if p := (*guard.PanicError)(nil); errors.As(err, &p) {
		l.fail(p)
		return nil, p
	}
	switch {
	case err == nil:
		return b, nil
	case l.onDemand.closes.Err() != nil:
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, err
}

// begin counts a requested batch, unless the loader is closed.
func (a *onDemandWorkers) begin() error {
	l := a.loader
	if err := l.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	a.asked.Add(1)
	return nil
}

// end waits until no requested batch is being made; the loader is marked as closed.
func (a *onDemandWorkers) end() {
	a.cancel()
	a.asked.Wait()
	if a.idle != nil {
		a.idle.worker.Close()
		a.idle = nil
	}
}

func (a *onDemandWorkers) sample(ctx context.Context, ask *OnDemand) (made *batch.Batch, err error) {
	l := a.loader
	p, err := a.lease()
	if err != nil {
		return nil, err
	}
	defer func() { a.giveBack(p, err != nil) }()
	// The gate admits everything: the memory of the batch comes on top of the loader's.
	p.preparer.begin(&epoch{loader: l, ctx: ctx, turns: fetch.Turns{Ctx: ctx}, gate: newGate(mem.NewBudget(0), 0, 0)})
	if err := p.take(ctx, ask); err != nil {
		return nil, err
	}
	b, whole := batch.NewBatch(0, l.alloc), false
	defer func() { // also when a broken invariant panics
		if !whole {
			b.Release()
		}
	}()
	key := l.draw.EpochKey(0)
	if err := p.preparer.drawn.Inputs.Request(ctx, &l.draw, key, &p.preparer.drawn.Request); err != nil {
		return nil, err
	}
	var drawn sample.Subgraph
	if err := l.draw.Draw(ctx, p.worker, key, &p.preparer.drawn.Request, &drawn); err != nil {
		return nil, err
	}
	if err := p.preparer.takeWhole(&drawn); err != nil {
		return nil, err
	}
	if err := p.preparer.makeTensors(b); err != nil {
		return nil, err
	}
	if err := p.preparer.filler.Fill(b); err != nil {
		return nil, err
	}
	whole = true
	return b, nil
}

// lease returns the idle worker, or a new one.
func (a *onDemandWorkers) lease() (*onDemandWorker, error) {
	l := a.loader
	a.mu.Lock()
	p := a.idle
	a.idle = nil
	a.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p = &onDemandWorker{memory: mem.NewBudget(0)}
	p.preparer.open(l, &p.cachedTypes, new(prune.Cut), l.cache.readOnly())
	p.preparer.filler.Constant = true
	p.cachedTypes = l.rows.CachedTypes
	p.cachedTypes.Repeats = slices.Contains(l.rows.CachedTypes.Listed, true) // any may be requested twice
	var err error
	p.worker, err = l.draw.Sampler.NewWorker(p.memory, false, 1)
	return p, err
}

// giveBack keeps the memory for the next batch.
func (a *onDemandWorkers) giveBack(p *onDemandWorker, failed bool) {
	a.mu.Lock()
	keep := a.idle == nil && !failed && p.memory.Used() <= keptOnDemand
	if keep {
		p.preparer.epoch, p.preparer.drawn.Delivered = nil, nil
		a.idle = p
	}
	a.mu.Unlock()
	if !keep {
		p.worker.Close()
	}
}
