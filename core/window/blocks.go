package window

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// blocks is the stream of sampled batches, over the ends of epochs. Batches are
// sampled by several goroutines at a time. With Options.Reorder, blocks of that
// many batches, counted from the start of their epoch, are sampled together and
// put into the order that plan.Reorder finds (FastGL, section 4.1). The order is
// a function of the batches and of Options.ReorderRows alone, so a run that was
// resumed within a block repeats it.
type blocks struct {
	inspector   *inspector
	at          place // of the batch sampled next
	order       *draw.SeedOrder
	ready       []*sampled // of a reordered block, or of a group that shares reads, not yet taken
	scratch     []samplerScratch
	sharedReads sharedReads
}

func newBlocks(in *inspector, at place) blocks {
	return blocks{inspector: in, at: at, scratch: make([]samplerScratch, max(1, cap(in.cache.draw.Workers)))}
}

// samplerScratch is the memory of a goroutine that samples ahead.
type samplerScratch struct {
	graph     sample.Subgraph
	drawn     sample.Subgraph // a copy, where the batch waits to be forecast
	batchRows draw.BatchRows
	request   draw.Request
	trace     traceScratch
}

// take samples the next batches, at least one and at most n, or says why it
// cannot. With an error it may return those before the one that failed. Where
// batches share reads of lists, it samples as many as can if ahead is true, and
// keeps those beyond n ready: a group reads most of the file, however many
// batches it has.
func (s *blocks) take(n int64, ahead bool) ([]*sampled, error) {
	c, ctx := s.inspector.cache, s.inspector.ctx
	if len(s.ready) == 0 {
		if s.at.position == s.inspector.turnsOf(s.at.epoch).Count {
			s.at = place{epoch: s.at.epoch + 1}
			s.inspector.forecaster.nextEpoch(ctx, s.inspector.whole.Count)
			s.order.Free()
			s.order = nil
		}
		if s.order == nil {
			var err error
			if s.order, err = c.draw.NewSeedOrder(ctx, c.draw.EpochKey(s.at.epoch)); err != nil {
				return nil, err
			}
		}
		if c.draw.Split.Reorder == 0 {
			shareSchedule, first := s.inspector.turnsOf(s.at.epoch), s.at.position
			group, atOnce := n, s.sharedReads.most(c)
			switch {
			case atOnce < 2:
				atOnce = sampledAtOnce
			case ahead:
				group = atOnce
			}
			group = min(group, atOnce, shareSchedule.Count-first)
			batches, err := s.sample(group, func(i int64) int64 { return shareSchedule.Number(first + i) })
			s.at.position += int64(len(batches))
			if int64(len(batches)) <= n {
				return batches, err
			}
			s.ready = batches // if one failed behind them, it fails again in its turn
		} else if err := s.fillBlock(); err != nil {
			return nil, err
		}
	}
	n = min(n, int64(len(s.ready)))
	taken := s.ready[:n]
	s.ready = s.ready[n:]
	return taken, nil
}

// returnTo makes the stream go on at a place that it has passed. Nothing is reordered.
func (s *blocks) returnTo(at place) {
	freeAll(s.ready)
	s.ready = nil
	if at.epoch != s.at.epoch && s.order != nil {
		s.order.Free()
		s.order = nil
	}
	s.at = at
}

// sampledAtOnce is the number of batches that are sampled before their memory is
// looked at. Arbitrary: a few for each of several threads.
const sampledAtOnce = 16

// fillBlock samples the block that holds the next batch, orders it, and keeps this loader's batches. Blocks and their
// orders span all ranks, for any number of ranks, so that every batch has one place in the epoch.
func (s *blocks) fillBlock() error {
	c, shareSchedule := s.inspector.cache, s.inspector.turnsOf(s.at.epoch)
	size := c.draw.Split.Reorder
	first := shareSchedule.Number(s.at.position) / size * size
	var batches []*sampled
	for end := min(first+size, shareSchedule.Batches); first+int64(len(batches)) < end; {
		from := first + int64(len(batches))
		more, err := s.sample(end-from, func(i int64) int64 { return from + i })
		if batches = append(batches, more...); err != nil {
			freeAll(batches)
			return err
		}
	}
	order, err := s.reorder(batches)
	if err != nil {
		freeAll(batches)
		return err
	}
	for next := first; s.at.position < shareSchedule.Count; s.at.position++ {
		place := shareSchedule.Number(s.at.position)
		if place < next || place >= first+int64(len(batches)) {
			break // of another block
		}
		from := order[place-first]
		s.ready = append(s.ready, batches[from])
		batches[from] = nil
		next = place + 1
	}
	freeAll(compact(batches)) // of other ranks, and yielded before the run was resumed
	return nil
}

// reorder finds the order of the batches of a block, with the rows of all in memory.
func (s *blocks) reorder(batches []*sampled) ([]int32, error) {
	c, ctx := s.inspector.cache, s.inspector.ctx
	lists := make([]plan.Batch, len(batches))
	for i, b := range batches {
		rows, release, err := b.Load(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		lists[i] = rows
	}
	return plan.Reorder(ctx, c.draw.Budget, lists, draw.OrderedCache(c.draw))
}

// sample samples the first of count batches with the given numbers: as many as share reads, or else all. After an error
// it returns the batches before the first that failed.
func (s *blocks) sample(count int64, number func(i int64) int64) ([]*sampled, error) {
	c, wanted := s.inspector.cache, s.readShared(count, number)
	defer freeWanted(wanted)
	count = int64(len(wanted))
	if wanted[0] == nil {
		_, before := c.draw.NeighborCounts(0)
		defer func() {
			_, after := c.draw.NeighborCounts(0)
			s.sharedReads.learn(c, count, after-before)
		}()
	}
	batches, errs := make([]*sampled, count), make([]error, count)
	var next atomic.Int64 // the batch that nobody has taken
	turn := fetch.NewTurnstile(0)
	broken := guard.All(min(len(s.scratch), int(count)), func(i int) error {
		at := int64(0)
		defer func() { turn.EndAt(at) }() // after a failure or panic, later batches wait no more for this one
		for at = next.Add(1) - 1; at < count; at = next.Add(1) - 1 {
			batches[at], errs[at] = s.sampleOne(number(at), wanted[at], &s.scratch[i], func(forecast func()) error {
				if err := turn.Enter(at); err != nil {
					return err
				}
				defer turn.Leave()
				forecast()
				return nil
			})
			if errs[at] != nil {
				next.Store(count)
				break
			}
		}
		return nil
	})
	for i := range batches {
		if batches[i] == nil {
			freeAll(compact(batches[i:]))
			return batches[:i], cmp.Or(broken, errs[i])
		}
	}
	return batches, broken
}

func compact(batches []*sampled) (present []*sampled) {
	for _, b := range batches {
		if b != nil {
			present = append(present, b)
		}
	}
	return present
}

// sampleOne samples a batch of the current epoch; some of its neighbours may have been read. The function that it
// passes to inTurn is called after the functions of all previous batches.
func (s *blocks) sampleOne(
	index int64, wanted *graph.Wanted, own *samplerScratch, inTurn func(func()) error,
) (*sampled, error) {
	c := s.inspector.cache
	giveBack, err := s.draw(index, wanted, true, own)
	if err != nil {
		return nil, fmt.Errorf("loader: batch %d of epoch %d: %w", index, s.order.Key.Epoch, err)
	}
	defer giveBack()
	g := &own.graph
	b := &sampled{
		cache: c, epoch: int64(s.order.Key.Epoch), index: index,
		numSeeds: int64(len(own.request.Inputs)), ends: int64(len(own.request.Places.Ends)),
		rows: lost{}, trace: lost{},
	}
	own.batchRows.FillGraph(&c.features.CachedTypes, g)
	b.spans = c.trained.spans(own.batchRows.Rows)
	if s.inspector.forecasting {
		own.drawn.CopyFrom(g)
		g = &own.drawn
		giveBack() // training may have to go on before the batch can be forecast
		if err := s.forecast(b, g, &own.batchRows, inTurn); err != nil {
			return nil, err
		}
	}
	b.nodes, b.edges = int64(len(g.Nodes)), int64(len(g.Row))
	b.perHop = hopCounts{g.NodesPerHop, g.EdgesPerHop}
	b.numRows = len(own.batchRows.Rows)
	rows := own.batchRows.Rows
	switch kept, err := c.storage.Put(mem.Bytes(rows)); {
	case err == nil:
		b.rows = kept
	case errors.Is(err, mem.ErrBudget):
		rows = nil // the batch is sampled again where they are needed
	default:
		b.free()
		return nil, err
	}
	b.keep(c, rows, g, &own.request, &own.trace)
	s.inspector.progress.sampled(s.inspector)
	return b, nil
}

// draw draws a batch of the current epoch. Its subgraph is in the memory of a worker until that is given back.
func (s *blocks) draw(
	index int64, wanted *graph.Wanted, last bool, own *samplerScratch,
) (giveBack func(), err error) {
	c, ctx := s.inspector.cache, s.inspector.ctx
	if wanted != nil {
		ctx = wanted.With(ctx, last)
	}
	if err := s.order.Batch(ctx, index, &own.request); err != nil {
		return nil, err
	}
	var worker *sample.Worker
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case worker = <-c.draw.Workers:
	}
	giveBack = sync.OnceFunc(func() { c.draw.Workers <- worker })
	defer c.counters.Sampling.Since(time.Now())
	if err := c.draw.Draw(ctx, worker, s.order.BatchKey(index), &own.request, &own.graph); err != nil {
		giveBack()
		return nil, err
	}
	return giveBack, nil
}

// forecast reduces the rows of a batch to those that it will read, as far as pruning is known in advance.
func (s *blocks) forecast(b *sampled, g *sample.Subgraph, r *draw.BatchRows, inTurn func(func()) error) (err error) {
	in := s.inspector
	waited := inTurn(func() {
		drawn := int64(len(r.Rows))
		places, known := in.forecaster.next(in.ctx, g, b.numSeeds)
		b.planned, err = planForecast(r, in.cache.draw.Budget, places, known)
		if b.planned.known {
			in.cache.forecasts.add(EpochForecast{
				Epoch: b.epoch, Batches: 1, DrawnRows: drawn, PlannedRows: int64(len(r.Rows)),
			})
		}
	})
	return cmp.Or(waited, err)
}

func (s *blocks) free() {
	freeAll(s.ready)
	s.ready = nil
	if s.order != nil {
		s.order.Free()
		s.order = nil
	}
}
