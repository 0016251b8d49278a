package loader

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"freshgo/core/graph"
	"freshgo/core/plan"
	"freshgo/core/prune"
	"freshgo/core/sample"
)

// preparer makes one batch after the other. Its scratch is its own.
type preparer struct {
	epoch       *epoch
	loader      *Loader
	of          inputs
	cachedTypes *cachedTypes
	onDemand    bool // not of an epoch, and moves nothing: see Loader.Sample
	scratch     graph.Scratch
	lookup      lookup
	batchRows   batchRows
	graph       sample.Subgraph  // as it was drawn
	batch       *sample.Subgraph // as it is delivered: what pruning has left of it
	deliveries  deliveries       // with the tag invariants
	request     request
	typeOffsets typeOffsets // of batch
	ids         batchIDs    // in the batch's tensors
	owning      owning      // of bidirectional edges
	cut         *prune.Cut  // what pruning leaves of the batch
	wide        [][]byte    // the tensors of the batch that the graph has rows for

	// Of a planned batch.
	number  int64 // the inspector's
	super   *superbatch
	planned plan.Step
	step    plan.Step // of any batch: where its rows are, and what moves after it
	adapted plan.Adapted
	moved   bool    // positions are not those of the plan:
	now     []int32 // where each of the plan is
}

// prunes reports whether batches have turns at a history.
func (p *preparer) prunes() bool { return !p.onDemand && p.loader.pruner.Prunes() }

// prepare takes the next ticket and makes that batch. Past the end of the epoch
// it returns the ticket alone.
func (p *preparer) prepare() (int64, *Batch, error) {
	e, l := p.epoch, p.loader
	var worker *sample.Worker // of a batch that is not planned
	if e.inspector == nil {
		select {
		case <-e.ctx.Done():
			return 0, nil, errStopped
		case worker = <-l.workers:
		}
	}
	i := e.ticket.Add(1) - 1
	if i >= e.count {
		if worker != nil {
			l.workers <- worker
		}
		return i, nil, nil
	}
	b := &Batch{Index: i}
	whole := false
	defer func() { // also when a broken invariant panics
		if !whole {
			b.Release()
		}
	}()
	var err error
	if worker == nil {
		err = p.takePlanned(b)
	} else {
		err = p.sample(b, worker)
	}
	if err == nil && !e.trace {
		err = p.fill(b)
	}
	if err != nil {
		l.pruner.Fail(i)
		return i, nil, fmt.Errorf("loader: batch %d: %w", i, err)
	}
	whole = true
	return i, b, nil
}

// sample makes a batch as far as the sampler takes it. The worker's output is
// copied out before it gives the worker back.
func (p *preparer) sample(b *Batch, worker *sample.Worker) error {
	e, l := p.epoch, p.loader
	giveBack := sync.OnceFunc(func() { l.workers <- worker })
	defer giveBack()
	number := e.shareSchedule.number(b.Index)
	if err := e.order.batch(e.ctx, number, &p.request); err != nil {
		return err
	}
	start := time.Now()
	var drawn sample.Subgraph
	p.request.LastHop = nil
	if l.sparesLists && !e.trace {
		p.request.LastHop = p.cut.LastHop(b.Index)
	}
	err := l.draw(e.ctx, worker, e.order.batchKey(number), &p.request, &drawn)
	since(&l.counters.sampling, start)
	if err != nil {
		return err
	}
	p.batch = &drawn
	if !p.prunes() || e.trace {
		return p.makeTensors(b)
	}
	keep(&p.graph, &drawn)
	giveBack() // batches that come later may have to be pruned before there is room for this one
	p.batch = &p.graph
	if err := p.prune(b); err != nil {
		return err
	}
	return p.makeTensors(b)
}

// takePlanned waits for the plan of a batch and makes it as far as it was sampled.
func (p *preparer) takePlanned(b *Batch) error {
	e := p.epoch
	p.number = e.firstNumber + b.Index
	s, err := e.inspector.superbatchOf(p.number)
	if err != nil {
		return err
	}
	p.super, p.moved = s, false
	e.inspector.fetch(p.number + int64(len(e.slots)))
	if err := s.step(e.ctx, p.number, &p.planned); err != nil {
		return err
	}
	p.step = p.planned
	if err := p.unpack(s.batches[p.number-s.first]); err != nil {
		return err
	}
	p.batch = &p.graph
	if p.prunes() {
		if err := p.prune(b); err != nil {
			return err
		}
	}
	if p.number == s.first {
		if err := e.turn.enter(b.Index); err != nil {
			return err
		}
		s.run(e.ctx, &p.scratch.Merger)
	}
	if err := s.await(e.ctx); err != nil {
		return err
	}
	return p.makeTensors(b)
}

// unpack loads the trace of a batch, or samples the batch again.
func (p *preparer) unpack(t *sampled) error {
	e, l := p.epoch, p.loader
	if t.trace != nil {
		data, release, err := t.trace.Load(e.ctx)
		if err == nil {
			t.unpack(data, &p.graph, &p.request)
			release()
			t.dropTrace()
			return nil
		}
		if e.ctx.Err() != nil {
			return errStopped
		}
	}
	return l.sampleAgain(e.ctx, t, &p.request, func(g *sample.Subgraph) { keep(&p.graph, g) })
}

// sampleAgain samples a batch whose trace is lost, and passes it to use in a worker's memory.
func (l *Loader) sampleAgain(ctx context.Context, t *sampled, r *request, use func(g *sample.Subgraph)) error {
	l.counters.resampled.Add(1)
	order, err := l.newSeedOrder(ctx, l.epochKey(t.epoch))
	if err != nil {
		return err
	}
	defer order.free()
	if err := order.batch(ctx, t.index, r); err != nil {
		return err
	}
	var worker *sample.Worker
	select {
	case <-ctx.Done():
		return errStopped
	case worker = <-l.workers:
	}
	defer func() { l.workers <- worker }()
	var g sample.Subgraph
	if err := l.draw(ctx, worker, order.batchKey(t.index), r, &g); err != nil {
		return err
	}
	use(&g)
	return nil
}

// makeTensors waits for room and copies what was sampled into tensors.
func (p *preparer) makeTensors(b *Batch) error {
	e, l := p.epoch, p.loader
	b.NumSeeds = int64(len(p.request.inputs))
	l.counters.edges.Add(int64(len(p.batch.Row)))
	p.typeOffsets.cut(l.parts.types, p.batch)
	if l.options.Held != nil && !e.trace {
		if err := l.compute(e.ctx, func() { p.batchRows.fill(p.cachedTypes, p.batch.Nodes, &p.typeOffsets) }); err != nil {
			return err
		}
		p.typeOffsets.rows = p.batchRows.bases
	}
	bytes := p.typeOffsets.bytes(&l.parts, b.NumSeeds)
	if e.trace {
		bytes = int64(len(p.batch.Nodes))*8 + b.NumSeeds*8
	} else if p.cut.On() {
		bytes += p.cut.Batch.LevelBytes(l.parts.transposed)
	}
	if !p.onDemand {
		if err := e.gate.acquire(b.Index, bytes); err != nil {
			return err
		}
	}
	b.bytes = bytes
	var err error
	stopped := l.compute(e.ctx, func() { err = p.copyOut(b) })
	return cmp.Or(stopped, err)
}
