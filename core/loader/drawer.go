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
	if err := d.makeTensors(p, b, worker); err != nil {
		return err
	}
	return p.filler.Fill(b)
}

// makeTensors makes a batch but for its rows. The subgraph is in the worker's memory, which is copied out before the
// worker is given back.
func (d *nowDrawer) makeTensors(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	defer p.loader.draw.GiveBack(worker)
	var drawn sample.Subgraph
	p.drawn.Request.LastHop = nil
	if err := d.draw(p, b, worker, &drawn); err != nil {
		return err
	}
	if err := p.takeWhole(&drawn); err != nil {
		return err
	}
	return p.makeTensors(b)
}

// draw draws a batch. Its subgraph is in the worker's memory.
func (d *nowDrawer) draw(p *preparer, b *batch.Batch, worker *sample.Worker, drawn *sample.Subgraph) error {
	e, l := d.epoch, d.epoch.loader
	number := e.shareSchedule.Number(b.Index)
	if err := d.order.Batch(e.ctx, number, &p.drawn.Request); err != nil {
		return err
	}
	defer l.counters.Sampling.Since(time.Now())
	return l.draw.Draw(e.ctx, worker, d.order.BatchKey(number), &p.drawn.Request, drawn)
}

// pruningDrawer draws each batch when a preparer asks for it, and takes out of it what the history makes needless.
type pruningDrawer struct{ nowDrawer }

func (d *pruningDrawer) make(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	if err := d.drawAndKeep(p, b, worker); err != nil {
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

// drawAndKeep draws a batch and gives the worker back: batches that come later may have to be pruned before there is
// room for this one.
func (d *pruningDrawer) drawAndKeep(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	defer p.loader.draw.GiveBack(worker)
	var drawn sample.Subgraph
	p.drawn.Request.LastHop = nil
	if p.loader.history.sparesLists {
		p.drawn.Request.LastHop = p.drawn.Cut.LastHop(b.Index)
	}
	if err := d.draw(p, b, worker, &drawn); err != nil {
		return err
	}
	p.drawn.Graph.CopyFrom(&drawn)
	return nil
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
	defer p.loader.draw.GiveBack(worker)
	var drawn sample.Subgraph
	p.drawn.Request.LastHop = nil
	if err := d.draw(p, b, worker, &drawn); err != nil {
		return err
	}
	p.drawn.Take(&drawn)
	return p.makeTrace(b)
}

var _ pruner = prune.None{}
