package loader

import (
	"cmp"
	"context"

	"freshgo/core/batch"
	"freshgo/core/sample"
	"freshgo/core/window"
)

// windowDrawer takes the batches of an epoch from the windows that are sampled and planned ahead.
type windowDrawer struct {
	epoch  *epoch
	window *window.Epoch
	take   func(p *preparer, b *batch.Batch) error
}

func newWindowDrawer(e *epoch, c *window.Cache) *windowDrawer {
	d := &windowDrawer{epoch: e, window: c.Begin(e.index, e.first, e.shareSchedule)}
	d.take = d.takeWhole
	if e.pruner.Prunes() {
		d.take = d.takePruned
	}
	return d
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

// takePruned prunes a batch and adapts its step of the plan in the batch's turn: what the cache will hold depends on
// it, batch by batch.
func (d *windowDrawer) takePruned(p *preparer, b *batch.Batch) error {
	var failed error
	err := p.drawn.Cut.Prune(p.epoch.ctx, b.Index, &p.drawn.Graph, int64(len(p.drawn.Request.Inputs)), func() {
		failed = p.window.Adapt(&p.filler, p.drawn.TakeCut())
	})
	return cmp.Or(err, failed)
}
