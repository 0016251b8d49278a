package loader

import (
	"context"

	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// windowBatch is a batch of a window in a preparer. As a source of rows it executes the step of the plan.
type windowBatch struct {
	cache     *plannedCache
	inspector *inspector
	number    int64 // the inspector's
	super     *superbatch
	planned   plan.Step
	adapted   plan.Adapted
	moved     bool    // positions are not those of the plan:
	now       []int32 // where each of the plan is
}

// begin waits for the plan of batch number n, and takes its step and its trace. The plan and the trace of the batch
// that many batches ahead begin to load.
func (w *windowBatch) begin(f *fetch.Filler, in *inspector, n, ahead int64) error {
	s, err := in.superbatchOf(n)
	if err != nil {
		return err
	}
	w.inspector, w.number, w.super, w.moved = in, n, s, false
	in.fetch(n + ahead)
	if err := s.step(f.Turns.Ctx, n, &w.planned); err != nil {
		return err
	}
	f.Step = w.planned
	return w.unpack(f, s.batches[n-s.first])
}

// isFirst reports whether the batch is the first of its window, which runs the prologue.
func (w *windowBatch) isFirst() bool { return w.number == w.super.first }

func (w *windowBatch) runPrologue(f *fetch.Filler) { w.super.run(f.Turns.Ctx, &f.Scratch.Merger) }

// awaitPrologue waits until the prologue of the window has ended.
func (w *windowBatch) awaitPrologue(ctx context.Context) error { return w.super.await(ctx) }

// unpack loads the trace of a batch, or samples the batch again.
func (w *windowBatch) unpack(f *fetch.Filler, t *sampled) error {
	ctx := f.Turns.Ctx
	if t.trace != nil {
		data, release, err := t.trace.Load(ctx)
		if err == nil {
			t.unpack(data, &f.Drawn.Graph, &f.Drawn.Request)
			release()
			t.dropTrace()
			return nil
		}
		if ctx.Err() != nil {
			return draw.ErrStopped
		}
	}
	return t.again(ctx, &f.Drawn.Request, func(g *sample.Subgraph) { f.Drawn.Graph.CopyFrom(g) })
}

// cutToPlan lists the rows that are planned, and the rows that were not forecast. places are the places of nodes after
// pruning; nil: the batch stays whole.
func (w *windowBatch) cutToPlan(f *fetch.Filler, places []int32) {
	if places != nil {
		f.Drawn.BatchRows.MoveTo(places)
	}
	batch := w.super.batches[w.number-w.super.first]
	if !batch.planned.known {
		return // all that were drawn are planned
	}
	var needed, wrong int64
	w.now, w.moved, needed, wrong = f.Drawn.BatchRows.CutToPlan(batch.planned.set(), w.now)
	batch.planned.free()
	w.inspector.unforeseen.Add(wrong)
	w.cache.forecasts.add(EpochForecast{Epoch: batch.epoch, ReadRows: needed, UnforeseenRows: wrong})
	if w.moved {
		w.planned.MoveTo(w.now, len(f.Drawn.BatchRows.Rows))
		f.Step = w.planned
	}
}

// adapt makes the planned step what the batch does of it after pruning: see cutToPlan.
func (w *windowBatch) adapt(f *fetch.Filler, places []int32) error {
	w.cutToPlan(f, places)
	presence := w.cache.presence
	if w.inspector.isPlanLost(w.number) {
		return nil
	}
	if w.number == w.super.first { // rows that are read before this batch
		err := w.super.plan.ReadAhead(f.Turns.Ctx, fetch.FillChunk, func(fills []plan.Fill, _ []plan.Extra) error {
			presence.Filled(fills)
			return nil
		})
		if err := w.inspector.markPlanLost(w.number, err); err != nil {
			return err
		}
	}
	needs := func(pos int32) bool { return f.Drawn.BatchRows.TensorRow(pos) >= 0 }
	presence.Adapt(&w.planned, needs, &w.adapted)
	f.Step = w.adapted.Step
	return nil
}
