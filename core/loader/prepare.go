package loader

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/prune"
	"freshgo/core/sample"
	"freshgo/core/window"
)

// preparer makes one batch after the other.
type preparer struct {
	loader *Loader
	drawn  batch.Drawn
	epoch  *epoch
	filler fetch.Filler
	window window.Batch // of a planned batch
}

// open prepares a preparer that lists the rows of these types, prunes with cut and takes rows from a source.
func (p *preparer) open(l *Loader, cached *draw.CachedTypes, cut *prune.Cut, rows fetch.Source) {
	p.loader = l
	p.drawn = batch.Drawn{Parts: &l.draw.Parts, Counters: &l.counters, CachedTypes: cached, Cut: cut}
	p.filler = fetch.Filler{
		Sampling: &l.draw, Features: &l.rows, Counters: &l.counters, Drawn: &p.drawn, Source: rows,
	}
}

// begin assigns the following batches to an epoch.
func (p *preparer) begin(e *epoch) { p.epoch, p.filler.Turns = e, e.turns }

// prepare takes the next ticket and makes that batch. Past the end of the epoch
// it returns the ticket alone.
func (p *preparer) prepare() (int64, *batch.Batch, error) {
	e := p.epoch
	worker, err := e.drawer.lease(e.ctx)
	if err != nil {
		return 0, nil, err
	}
	i := e.ticket.Add(1) - 1
	if i >= e.count {
		p.loader.draw.GiveBack(worker)
		return i, nil, nil
	}
	b := batch.NewBatch(i, p.loader.alloc)
	whole := false
	defer func() { // also when a broken invariant panics
		if !whole {
			b.Release()
			p.filler.Forget()
		}
	}()
	if err := e.drawer.make(p, b, worker); err != nil {
		e.pruner.Fail(i)
		return i, nil, fmt.Errorf("loader: batch %d: %w", i, err)
	}
	whole = true
	return i, b, nil
}

// takeWhole takes a subgraph as it was drawn, lists the rows that it needs, and pads it.
func (p *preparer) takeWhole(g *sample.Subgraph) error {
	p.drawn.Take(g)
	return p.loader.draw.Compute(p.epoch.ctx, func() {
		p.drawn.BatchRows.Fill(p.drawn.CachedTypes, g.Nodes, &p.drawn.TypeOffsets)
		p.drawn.Padding.Pad(&p.drawn)
	})
}

// makeTensors waits for room and copies the sampled batch into tensors.
func (p *preparer) makeTensors(b *batch.Batch) error {
	parts := &p.loader.draw.Parts
	b.NumSeeds = int64(len(p.drawn.Request.Inputs))
	bytes := batch.TensorBytes(&p.drawn.TypeOffsets, parts, b.NumSeeds) + p.drawn.Cut.LevelBytes(parts.Transposed)
	return p.copyWhenRoom(b, bytes, p.drawn.CopyOut)
}

// makeTrace waits for room and copies the ids of nodes and inputs into tensors.
func (p *preparer) makeTrace(b *batch.Batch) error {
	b.NumSeeds = int64(len(p.drawn.Request.Inputs))
	return p.copyWhenRoom(b, int64(len(p.drawn.Delivered.Nodes))*8+b.NumSeeds*8, p.drawn.CopyIDs)
}

func (p *preparer) copyWhenRoom(b *batch.Batch, bytes int64, copyOut func(*batch.Batch) error) (err error) {
	if err := p.epoch.gate.acquire(b.Index, bytes); err != nil {
		return err
	}
	b.Reserved = bytes
	stopped := p.loader.draw.Compute(p.epoch.ctx, func() { err = copyOut(b) })
	return cmp.Or(stopped, err)
}

// drawer makes the batches of an epoch, each in a preparer: it draws them now (drawNow), takes them from a window
// (windowDrawer), leaves them to the consumer (seedDrawer), or draws them for their nodes alone (traceDrawer). The
// cache chooses it when the epoch begins.
type drawer interface {
	// lease waits for what drawing a batch takes. A preparer leases before it takes its ticket, so that the oldest batch
	// always has a worker, and the gate's order cannot starve it. nil: batches need no worker.
	lease(ctx context.Context) (*sample.Worker, error)
	// make makes batch b and gives the worker back.
	make(p *preparer, b *batch.Batch, worker *sample.Worker) error
	// awaits records that the consumer waits for a batch, until it calls the result.
	awaits(i int64) (arrived func())
	// abandon says that no more batches will be requested.
	abandon()
	// end frees the inputs of the batches. whole: the consumer has taken all of them. No batch is being made any more.
	end(whole bool)
}

// drawNow returns the drawer that draws each batch on a preparer's request.
func drawNow(e *epoch) (drawer, error) {
	order, err := e.loader.draw.NewSeedOrder(context.Background(), e.loader.draw.EpochKey(e.index))
	if err != nil {
		return nil, err
	}
	d := nowDrawer{epoch: e, order: order, blocks: newBlockOrder(e, order)}
	switch {
	case e.pruner.Prunes():
		return &pruningDrawer{d}, nil
	case e.loader.draw.Options.SeedsOnly:
		return &seedDrawer{d}, nil
	}
	return &d, nil
}

// nowDrawer draws each batch on a preparer's request.
type nowDrawer struct {
	epoch  *epoch
	order  *draw.SeedOrder
	blocks *blockOrder // nil: batches keep their places
}

func (d *nowDrawer) lease(ctx context.Context) (*sample.Worker, error) {
	return d.epoch.loader.draw.Lease(ctx)
}

func (d *nowDrawer) awaits(int64) (arrived func()) { return func() {} }

func (d *nowDrawer) abandon() {}

func (d *nowDrawer) end(bool) { d.order.Free() }

func (d *nowDrawer) make(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	err := d.draw(p, b, worker, nil, func(drawn *sample.Subgraph) error {
		if err := p.takeWhole(drawn); err != nil {
			return err
		}
		return p.makeTensors(b)
	})
	if err != nil {
		return err
	}
	return p.filler.Fill(b)
}

// draw draws a batch, passes it to use in the worker's memory, and then gives the worker back.
func (d *nowDrawer) draw(p *preparer, b *batch.Batch, worker *sample.Worker, lastHop sample.LastHop,
	use func(drawn *sample.Subgraph) error) error {
	e, l, r := d.epoch, d.epoch.loader, &p.drawn.Request
	defer l.draw.GiveBack(worker)
	number, err := d.blocks.number(p, e.shareSchedule.Number(b.Index), worker)
	if err != nil {
		return err
	}
	if err := d.order.Batch(e.ctx, number, r); err != nil {
		return err
	}
	r.LastHop = lastHop
	var drawn sample.Subgraph
	start := time.Now()
	err = l.draw.Draw(e.ctx, worker, d.order.BatchKey(number), r, &drawn)
	l.counters.Sampling.Since(start)
	if err != nil {
		return err
	}
	return use(&drawn)
}

// pruningDrawer draws each batch on a preparer's request, and removes the part that the history replaces.
type pruningDrawer struct{ nowDrawer }

// make copies the drawn batch, so that the worker is free: later batches may have to be pruned before there is room for
// this one.
func (d *pruningDrawer) make(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	var lastHop sample.LastHop
	if p.loader.history.sparesLists {
		lastHop = p.drawn.Cut.LastHop(b.Index)
	}
	err := d.draw(p, b, worker, lastHop, func(drawn *sample.Subgraph) error {
		p.drawn.Graph.CopyFrom(drawn)
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.drawn.Cut.Prune(p.epoch.ctx, b.Index, &p.drawn.Graph, int64(len(p.drawn.Request.Inputs)),
		func() {}); err != nil {
		return err
	}
	p.drawn.TakeCut()
	p.drawn.BatchRows.DropPruned()
	if err := p.makeTensors(b); err != nil {
		return err
	}
	return p.filler.Fill(b)
}

// seedDrawer makes batches that are their seeds and a key, for a consumer that draws.
type seedDrawer struct{ nowDrawer }

func (*seedDrawer) lease(context.Context) (*sample.Worker, error) { return nil, nil }

func (d *seedDrawer) make(p *preparer, b *batch.Batch, _ *sample.Worker) error {
	number, schema := d.epoch.shareSchedule.Number(b.Index), d.epoch.loader.draw.Parts.Schema
	if err := d.order.Batch(d.epoch.ctx, number, &p.drawn.Request); err != nil {
		return err
	}
	draw.OnlySeeds(schema, &p.drawn.Graph, p.drawn.Request.Seeds)
	if err := p.takeWhole(&p.drawn.Graph); err != nil {
		return err
	}
	if err := p.makeTensors(b); err != nil {
		return err
	}
	if err := b.AddKeys(d.epoch.loader.draw.Sampler, d.order.BatchKey(number)); err != nil {
		return err
	}
	return p.filler.Fill(b)
}

// traceDrawer makes batches that have the ids of their nodes and inputs alone.
type traceDrawer struct{ nowDrawer }

// drawTraces returns the drawer of the traces of an epoch. It changes no cache.
func drawTraces(e *epoch) (drawer, error) {
	order, err := e.loader.draw.NewSeedOrder(context.Background(), e.loader.draw.EpochKey(e.index))
	if err != nil {
		return nil, err
	}
	return &traceDrawer{nowDrawer{epoch: e, order: order}}, nil
}

func (d *traceDrawer) make(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	return d.draw(p, b, worker, nil, func(drawn *sample.Subgraph) error {
		p.drawn.Take(drawn)
		return p.makeTrace(b)
	})
}

// windowDrawer takes the batches of an epoch from the windows that are sampled and planned ahead.
type windowDrawer struct {
	epoch  *epoch
	window *window.Epoch
	take   func(p *preparer, b *batch.Batch) error
}

// lease returns no worker: the batches have been sampled.
func (d *windowDrawer) lease(context.Context) (*sample.Worker, error) { return nil, nil }

func (d *windowDrawer) awaits(i int64) (arrived func()) { return d.window.Awaits(i) }

func (d *windowDrawer) abandon() { d.window.Abandon() }

func (d *windowDrawer) end(whole bool) { d.window.End(whole) }

// make waits for the plan of a batch, and makes the batch from its trace. The first batch of a window runs the window's
// prologue, once all batches before it have changed the cache.
func (d *windowDrawer) make(p *preparer, b *batch.Batch, _ *sample.Worker) error {
	e, w := d.epoch, &p.window
	if err := w.Begin(&p.filler, d.window, b.Index, int64(len(e.slots))); err != nil {
		return err
	}
	if err := d.take(p, b); err != nil {
		return err
	}
	if err := w.Prologue(&p.filler, b.Index); err != nil {
		return err
	}
	if err := p.makeTensors(b); err != nil {
		return err
	}
	return p.filler.Fill(b)
}

func (d *windowDrawer) takeWhole(p *preparer, _ *batch.Batch) error {
	return p.takeWhole(&p.drawn.Graph)
}

// takePruned prunes a batch and adapts its step of the plan in the batch's turn, as the content of the cache depends on
// it, batch by batch.
func (d *windowDrawer) takePruned(p *preparer, b *batch.Batch) error {
	var failed error
	err := p.drawn.Cut.Prune(p.epoch.ctx, b.Index, &p.drawn.Graph, int64(len(p.drawn.Request.Inputs)), func() {
		p.drawn.TakeCut()
		failed = p.window.Adapt(&p.filler)
	})
	return cmp.Or(err, failed)
}
