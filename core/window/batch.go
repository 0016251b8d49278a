package window

import (
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/internal/bitset"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// Epoch is the batches of an epoch in the stream of an inspector.
type Epoch struct {
	inspector *inspector
	first     int64 // the inspector's number of the epoch's batch 0, which may lie before its start
	count     int64
}

// Awaits records that the consumer waits for batch i, until it calls the result.
func (e *Epoch) Awaits(i int64) (arrived func()) {
	start := time.Now()
	return func() { e.inspector.cache.timeline.add(spanWaiting, e.first+i, start) }
}

// Abandon says that no more batches will be requested.
func (e *Epoch) Abandon() { e.inspector.abandon() }

// End ends the inspection where the epoch was left in the middle: it was for the epoch's batches. Nobody executes one
// any more.
func (e *Epoch) End(whole bool) {
	_ = e.inspector.cache.trained.returnHand(nil) // the tables say what they have lost
	if whole {
		e.inspector.next = e.first + e.count
	} else {
		e.inspector.cache.Stop()
	}
}

// Batch is a batch of a window in a preparer. As a source of rows it executes the step of the plan. A preparer calls
// Begin, Adapt if the batch is pruned, Prologue and Fill.
type Batch struct {
	inspector *inspector
	number    int64 // the inspector's
	super     *superbatch
	planned   plan.Step
	adapted   plan.Adapted
	moved     bool    // positions differ from the plan's:
	now       []int32 // where each of the plan is

	// Of a loader with tables that training changes:
	refusing sync.Mutex // guards refused
	refused  []refusal
	stays    bitset.Set   // scratch
	taken    []bitset.Set // by table: the rows in hand that the batch took, by their places
	got      [][]uint64   // and where they are now: see handRows
	lacks    atomic.Bool  // changed rows wait in its packs that pruning has taken out of it
}

// Begin waits for the plan of batch i of an epoch, and takes its step and its trace. The plan and the trace of the
// batch that many batches ahead begin to load.
func (w *Batch) Begin(f *fetch.Filler, e *Epoch, i, ahead int64) error {
	in, n := e.inspector, e.first+i
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
func (w *Batch) isFirst() bool { return w.number == w.super.first }

// Prologue waits until the prologue of the window has ended. The first batch of the window runs it, once all batches
// before batch i, which this is, have changed the cache.
func (w *Batch) Prologue(f *fetch.Filler, i int64) error {
	if w.isFirst() {
		if err := f.Turns.Cache.Enter(i); err != nil {
			return err
		}
		w.super.run(f.Turns.Ctx, &f.Scratch.Merger)
	}
	return w.super.await(f.Turns.Ctx)
}

// unpack loads the trace of a batch, or samples the batch again.
func (w *Batch) unpack(f *fetch.Filler, t *sampled) error {
	ctx := f.Turns.Ctx
	if t.load(ctx, &f.Drawn.Graph, &f.Drawn.Request) == nil {
		t.dropTrace()
		return nil
	}
	if ctx.Err() != nil {
		return draw.ErrStopped
	}
	return t.again(ctx, &f.Drawn.Request, func(g *sample.Subgraph) { f.Drawn.Graph.CopyFrom(g) })
}

// cutToPlan lists the rows that are planned, and the rows that were not forecast.
func (w *Batch) cutToPlan(f *fetch.Filler) {
	batch := w.super.batches[w.number-w.super.first]
	if !batch.planned.known {
		return // all that were drawn are planned
	}
	var needed, wrong int64
	w.now, w.moved, needed, wrong = f.Drawn.BatchRows.CutToPlan(batch.planned.set(), w.now)
	batch.planned.free()
	w.inspector.unforeseen.Add(wrong)
	w.inspector.cache.forecasts.add(EpochForecast{Epoch: batch.epoch, ReadRows: needed, UnforeseenRows: wrong})
	if w.moved {
		w.planned.MoveTo(w.now, len(f.Drawn.BatchRows.Rows))
		f.Step = w.planned
	}
}

// Adapt reduces the planned step to the batch after pruning: see cutToPlan. Batches call it in their order.
func (w *Batch) Adapt(f *fetch.Filler) error {
	w.cutToPlan(f)
	presence := w.inspector.cache.presence
	if w.isFirst() { // rows that are read before this batch
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
