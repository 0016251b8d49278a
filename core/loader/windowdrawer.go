package loader

import (
	"cmp"
	"context"
	"time"

	"freshgo/core/batch"
	"freshgo/core/sample"
)

// windowDrawer takes the batches of an epoch from the windows that the inspector has sampled and planned.
type windowDrawer struct {
	epoch     *epoch
	cache     *plannedCache
	inspector *inspector
	first     int64 // the inspector's number of the epoch's batch 0, which may lie before its start
	take      func(p *preparer, b *batch.Batch) error
}

func newWindowDrawer(e *epoch, c *plannedCache) *windowDrawer {
	in, n := c.begin(e.index, e.first, e.shareSchedule)
	d := &windowDrawer{epoch: e, cache: c, inspector: in, first: n - e.first}
	d.take = d.takeWhole
	if e.pruner.Prunes() {
		d.take = d.takePruned
	}
	return d
}

// lease returns no worker: the inspector's goroutines have sampled the batches.
func (d *windowDrawer) lease(context.Context) (*sample.Worker, error) { return nil, nil }

func (d *windowDrawer) awaits(i int64) (arrived func()) {
	start := time.Now()
	return func() { d.cache.waited(d.first+i, start) }
}

func (d *windowDrawer) abandon() { d.inspector.abandon() }

// end ends the inspection where the epoch was left in the middle: it was for the epoch's batches.
func (d *windowDrawer) end(whole bool) {
	if whole {
		d.inspector.next = d.first + d.epoch.count
	} else {
		d.cache.stop()
	}
}

// make waits for the plan of a batch, and makes the batch from its trace. The first batch of a window runs the window's
// prologue, once all batches before it have changed the cache.
func (d *windowDrawer) make(p *preparer, b *batch.Batch, _ *sample.Worker) error {
	e, w := d.epoch, &p.window
	if err := w.begin(&p.filler, d.inspector, d.first+b.Index, int64(len(e.slots))); err != nil {
		return err
	}
	if err := d.take(p, b); err != nil {
		return err
	}
	if w.isFirst() {
		if err := e.turns.Cache.Enter(b.Index); err != nil {
			return err
		}
		w.runPrologue(&p.filler)
	}
	if err := w.awaitPrologue(e.ctx); err != nil {
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
		failed = p.window.adapt(&p.filler, p.drawn.TakeCut())
	})
	return cmp.Or(err, failed)
}
