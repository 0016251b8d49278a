package loader

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// blockOrder finds which batch is at a place of an epoch whose batches change places within blocks (FastGL, section
// 4.1), where batches are drawn on request. Package window orders planned batches, which it has drawn before.
//
// The first preparers that come to a block draw all of its batches for their rows, each with its own worker, and the
// last of them finds the order. So no preparer waits for a worker. One block is ordered at a time.
type blockOrder struct {
	epoch *epoch
	order *draw.SeedOrder
	size  int64

	mu    sync.Mutex        // guards what follows
	known map[int64][]int32 // by block: the batch at each place, counted within the block
	found []int64           // the keys of known, the latest last: one for each batch in flight
	work  *orderWork        // nil: none
}

// orderWork is a block whose order is being found.
type orderWork struct {
	block, first int64
	next         atomic.Int64  // the batch that nobody has drawn
	rows         []*mem.Block  // by batch
	active       int           // preparers that draw; guarded by blockOrder.mu
	end          sync.Once     // the last of them ends the work
	ended        chan struct{} // closed afterwards
	failed       atomic.Pointer[error]
}

// newBlockOrder returns the order of an epoch; nil where batches keep their places.
func newBlockOrder(e *epoch, order *draw.SeedOrder) *blockOrder {
	size := e.loader.draw.Split.Reorder
	if size == 0 {
		return nil
	}
	return &blockOrder{epoch: e, order: order, size: size, known: map[int64][]int32{}}
}

// number returns the number of the batch at a place of the epoch, of all ranks. The preparer has the worker.
func (o *blockOrder) number(p *preparer, place int64, worker *sample.Worker) (int64, error) {
	if o == nil {
		return place, nil
	}
	block := place / o.size
	for {
		w, order := o.join(block)
		if w == nil {
			return block*o.size + int64(order[place%o.size]), nil
		}
		o.drawRows(p, w, worker)
		if o.leave(w) {
			w.end.Do(func() { o.finish(w) })
		}
		select {
		case <-w.ended:
		case <-o.epoch.ctx.Done():
			return 0, draw.ErrStopped
		}
		if err := w.failed.Load(); err != nil {
			return 0, fmt.Errorf("ordering batches %d to %d: %w", w.first, w.first+int64(len(w.rows))-1, *err)
		}
	}
}

// join returns the order of a block, or the work at hand, in which the caller takes part: on this block or one before.
func (o *blockOrder) join(block int64) (*orderWork, []int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if order, ok := o.known[block]; ok {
		return nil, order
	}
	if o.work == nil {
		first := block * o.size
		n := min(o.size, o.epoch.shareSchedule.Batches-first)
		o.work = &orderWork{block: block, first: first, rows: make([]*mem.Block, n), ended: make(chan struct{})}
	}
	o.work.active++
	return o.work, nil
}

// leave reports whether nobody draws any more.
func (o *blockOrder) leave(w *orderWork) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.active--
	return w.active == 0
}

// drawRows draws batches of a block until none is left.
func (o *blockOrder) drawRows(p *preparer, w *orderWork, worker *sample.Worker) {
	l := o.epoch.loader
	var lister draw.RowLister
	for i := w.next.Add(1) - 1; i < int64(len(w.rows)); i = w.next.Add(1) - 1 {
		start := time.Now()
		keep := func(rows []uint32) (err error) {
			l.counters.Sampling.Since(start)
			if len(rows) == 0 {
				return nil
			}
			if w.rows[i], err = l.draw.Budget.Alloc(mem.Trace, int64(len(rows))*4); err == nil {
				copy(mem.Slice[uint32](w.rows[i]), rows)
			}
			return err
		}
		err := lister.EachRows(o.epoch.ctx, o.order, []int64{w.first + i}, worker, p.drawn.CachedTypes, keep)
		if err != nil {
			w.failed.CompareAndSwap(nil, &err)
			w.next.Store(int64(len(w.rows)))
		}
	}
}

// finish finds the order of a block whose batches have been drawn.
func (o *blockOrder) finish(w *orderWork) {
	defer close(w.ended)
	var order []int32
	if w.failed.Load() == nil {
		var err error
		if order, err = o.find(o.epoch.ctx, w); err != nil {
			w.failed.Store(&err)
		}
	}
	for _, rows := range w.rows {
		if rows != nil {
			rows.Free()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.work = nil
	if order == nil {
		return
	}
	o.known[w.block] = order
	if o.found = append(o.found, w.block); len(o.found) > len(o.epoch.slots) {
		delete(o.known, o.found[0])
		o.found = o.found[1:]
	}
}

// find returns the order of a block.
func (o *blockOrder) find(ctx context.Context, w *orderWork) (order []int32, err error) {
	batches := make([]plan.Batch, len(w.rows))
	for i, rows := range w.rows {
		if rows != nil {
			batches[i] = mem.Slice[uint32](rows)
		}
	}
	m := &o.epoch.loader.draw
	stopped := m.Compute(ctx, func() { order, err = plan.Reorder(ctx, m.Budget, batches, draw.OrderedCache(m)) })
	if stopped != nil {
		return nil, stopped
	}
	return order, err
}
