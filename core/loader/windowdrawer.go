package loader

import (
	"cmp"
	"context"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/plan"
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

// windowBatch is a batch of a window in a preparer. As a source of rows it executes the step of the plan.
type windowBatch struct {
	cache   *plannedCache
	number  int64 // the inspector's
	super   *superbatch
	planned plan.Step
	adapted plan.Adapted
	moved   bool    // positions are not those of the plan:
	now     []int32 // where each of the plan is
}

func newWindowDrawer(e *epoch, c *plannedCache, in *inspector, first int64) *windowDrawer {
	d := &windowDrawer{epoch: e, cache: c, inspector: in, first: first}
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
	return func() { d.cache.timeline.add(spanWaiting, d.first+i, start) }
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
	w.number = d.first + b.Index
	s, err := d.inspector.superbatchOf(w.number)
	if err != nil {
		return err
	}
	w.super, w.moved = s, false
	d.inspector.fetch(w.number + int64(len(e.slots)))
	if err := s.step(e.ctx, w.number, &w.planned); err != nil {
		return err
	}
	p.filler.Step = w.planned
	if err := d.unpack(p, s.batches[w.number-s.first]); err != nil {
		return err
	}
	if err := d.take(p, b); err != nil {
		return err
	}
	if w.number == s.first {
		if err := e.turns.Cache.Enter(b.Index); err != nil {
			return err
		}
		s.run(e.ctx, &p.filler.Scratch.Merger)
	}
	if err := s.await(e.ctx); err != nil {
		return err
	}
	if err := p.makeTensors(b); err != nil {
		return err
	}
	return p.filler.Fill(b)
}

// unpack loads the trace of a batch, or samples the batch again.
func (d *windowDrawer) unpack(p *preparer, t *sampled) error {
	e := d.epoch
	if t.trace != nil {
		data, release, err := t.trace.Load(e.ctx)
		if err == nil {
			t.unpack(data, &p.drawn.Graph, &p.drawn.Request)
			release()
			t.dropTrace()
			return nil
		}
		if e.ctx.Err() != nil {
			return draw.ErrStopped
		}
	}
	return t.again(e.ctx, &p.drawn.Request, func(g *sample.Subgraph) { p.drawn.Graph.CopyFrom(g) })
}

func (d *windowDrawer) takeWhole(p *preparer, _ *batch.Batch) error {
	return p.takeWhole(&p.drawn.Graph)
}

// takePruned prunes a batch and adapts its step of the plan in the batch's turn: what the cache will hold depends on
// it, batch by batch.
func (d *windowDrawer) takePruned(p *preparer, b *batch.Batch) error {
	var failed error
	err := p.drawn.Cut.Prune(p.epoch.ctx, b.Index, &p.drawn.Graph, int64(len(p.drawn.Request.Inputs)), func() {
		d.cutToPlan(p, p.drawn.TakeCut())
		failed = d.adapt(p)
	})
	return cmp.Or(err, failed)
}

// cutToPlan lists the rows that are planned, and the rows that were not foreseen. places are the places of nodes after
// pruning; nil: the batch stays whole.
func (d *windowDrawer) cutToPlan(p *preparer, places []int32) {
	w := &p.window
	if places != nil {
		p.drawn.BatchRows.MoveTo(places)
	}
	batch := w.super.batches[w.number-w.super.first]
	if !batch.planned.known {
		return // all that were drawn are planned
	}
	var needed, wrong int64
	w.now, w.moved, needed, wrong = p.drawn.BatchRows.CutToPlan(batch.planned.set(), w.now)
	batch.planned.free()
	d.inspector.unforeseen.Add(wrong)
	d.cache.foreknown.add(Foreseen{Epoch: batch.epoch, ReadRows: needed, UnforeseenRows: wrong})
	if w.moved {
		w.planned.MoveTo(w.now, len(p.drawn.BatchRows.Rows))
		p.filler.Step = w.planned
	}
}

// adapt makes the planned step what this batch does of it.
func (d *windowDrawer) adapt(p *preparer) error {
	w, presence := &p.window, d.cache.presence
	if d.inspector.isPlanLost(w.number) {
		return nil
	}
	if w.number == w.super.first { // rows that are read before this batch
		err := w.super.plan.ReadAhead(p.epoch.ctx, fetch.FillChunk, func(fills []plan.Fill, _ []plan.Extra) error {
			presence.Filled(fills)
			return nil
		})
		if err := d.inspector.markPlanLost(w.number, err); err != nil {
			return err
		}
	}
	needs := func(pos int32) bool { return p.drawn.BatchRows.TensorRow(pos) >= 0 }
	presence.Adapt(&w.planned, needs, &w.adapted)
	p.filler.Step = w.adapted.Step
	return nil
}
