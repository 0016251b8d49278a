package loader

import (
	"context"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/prune"
	"freshgo/core/sample"
)

// drawer makes the batches of an epoch, each in a preparer: it draws them now (drawNow), takes them from a window
// (windowDrawer), or draws them for their nodes alone (traceDrawer). The cache chooses it when the epoch begins.
type drawer interface {
	// lease waits for what drawing a batch takes. A preparer leases before it takes its ticket, so that the oldest batch
	// always has a worker, and the gate's order cannot starve it. nil: batches need no worker.
	lease(ctx context.Context) (*sample.Worker, error)
	// make makes batch b and gives the worker back.
	make(p *preparer, b *batch.Batch, worker *sample.Worker) error
	// awaits records that the consumer waits for a batch, until it calls the result.
	awaits(i int64) (arrived func())
	// abandon tells that no more batches will be asked for.
	abandon()
	// end frees what the batches were drawn from. whole: the consumer has taken all of them. Nobody makes one any more.
	end(whole bool)
}

// drawNow returns the drawer that draws each batch when a preparer asks for it.
func drawNow(e *epoch) (drawer, error) {
	order, err := e.loader.draw.NewSeedOrder(context.Background(), e.loader.draw.EpochKey(e.index))
	if err != nil {
		return nil, err
	}
	d := nowDrawer{epoch: e, order: order}
	if e.pruner.Prunes() {
		return &pruningDrawer{d}, nil
	}
	return &d, nil
}

// nowDrawer draws each batch when a preparer asks for it.
type nowDrawer struct {
	epoch *epoch
	order *draw.SeedOrder
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
	number := e.shareSchedule.Number(b.Index)
	if err := d.order.Batch(e.ctx, number, r); err != nil {
		return err
	}
	r.LastHop = lastHop
	var drawn sample.Subgraph
	start := time.Now()
	err := l.draw.Draw(e.ctx, worker, d.order.BatchKey(number), r, &drawn)
	l.counters.Sampling.Since(start)
	if err != nil {
		return err
	}
	return use(&drawn)
}

// pruningDrawer draws each batch when a preparer asks for it, and takes out of it what the history makes needless.
type pruningDrawer struct{ nowDrawer }

// make copies what was drawn, so that the worker is given back: batches that come later may have to be pruned before
// there is room for this one.
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
	if places := p.drawn.TakeCut(); places != nil {
		p.drawn.BatchRows.Cut(places)
	}
	if err := p.makeTensors(b); err != nil {
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
	return &traceDrawer{nowDrawer{e, order}}, nil
}

func (d *traceDrawer) make(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	return d.draw(p, b, worker, nil, func(drawn *sample.Subgraph) error {
		p.drawn.Take(drawn)
		return p.makeTrace(b)
	})
}

var _ pruner = prune.None{}
