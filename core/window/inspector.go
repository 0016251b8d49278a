package window

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/draw"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
)

// inspector samples and plans superbatches ahead of their execution (Ginex,
// section 3.2). It follows the stream of batches over the ends of epochs, since
// the next epoch's batches are a function of the seed as well: rows that the
// next epoch wants first are known when this one ends.
//
//	sample k+2 ─► plan k+1, knowing k+2 ─► publish ─► wait until k+1 begins ─► ...
//
// The first superbatches are planned without: see looksAhead.
//
// So at most three superbatches are held: one that is executed, one planned, one
// sampled. Batches are numbered by the inspector, from 0 where it began.
type inspector struct {
	cache         *Cache
	start         place              // of batch 0
	shareSchedule draw.ShareSchedule // of the epoch in which it began
	whole         draw.ShareSchedule // of those that follow
	ctx           context.Context
	cancel        context.CancelFunc
	done          sync.WaitGroup

	merger     ssd.Merger // of prologues that run early; run's
	blocks     blocks     // where the batches come from; run's
	forecaster forecaster // what will be read of them; run's
	sampledTo  int64      // number of the batch sampled next; run's
	failed     error      // why there are no more; run's
	progress   progress   // of sampling; run's, but for what is done

	mu        sync.Mutex
	changed   sync.Cond
	published []*superbatch // consecutive; those that are finished leave at the front
	begun     int64         // the highest number that was asked for
	err       error         // what ended the inspection, after the batches published
	shut      bool

	planLost    atomic.Int64 // the first batch whose plan is lost, or nonePlanLost
	forecasting bool         // whether it began with forecaster, or tried to
	unforeseen  atomic.Int64 // rows that were read and not forecast, or the other way round

	next int64 // the batch after those of the epochs that were consumed whole; the consumer's
}

// place is a position in the stream of the loader's own batches: see shareSchedule.
type place struct{ epoch, position int64 }

// number returns the inspector's number of the batch at a place, or false where the
// stream never passes it.
func (in *inspector) number(at place) (int64, bool) {
	n := (at.epoch-in.start.epoch)*in.whole.Count + at.position - in.start.position
	return n, n >= 0
}

// placeOf returns the place of a batch in the stream, by its number.
func (in *inspector) placeOf(n int64) place {
	n += in.start.position
	return place{in.start.epoch + n/in.whole.Count, n % in.whole.Count}
}

// inspect starts an inspector at a place of the stream. Of the planner's state it
// takes what is really in the cache.
func (c *Cache) inspect(at place, t draw.ShareSchedule) *inspector {
	in := &inspector{cache: c, start: at, shareSchedule: t, begun: -1}
	in.whole, _ = c.schedule(0)
	in.changed.L = &in.mu
	in.planLost.Store(nonePlanLost)
	in.blocks = newBlocks(in, at)
	c.forecasts.begin(at.epoch)
	in.forecasting, in.forecaster = c.forecasting(), c.forecast(&in.unforeseen)
	in.ctx, in.cancel = context.WithCancel(context.Background())
	c.planner.Reset(c.features.Resident.All)
	in.done.Add(1)
	guard.Go(func() {
		defer in.done.Done()
		in.fail(in.run())
	}, c.fail)
	return in
}

// run publishes superbatch after superbatch until the inspector is stopped or
// sampling fails, which ends the stream before the batch that failed.
func (in *inspector) run() error {
	defer in.forecaster.end(nil)
	current := in.sampleAhead(0, 0)
	var ahead []*sampled
	defer func() {
		freeAll(current)
		freeAll(ahead)
	}()
	for k := 0; len(current) > 0; k++ {
		known := looksAhead(k, &in.cache.draw.Split, len(in.cache.trained.tables) > 0)
		if known && len(ahead) == 0 && in.forecaster.free(1) > 0 {
			ahead = in.sampleAhead(k+1, len(current))
		}
		s, err := in.plan(&current, &ahead)
		if err != nil {
			return err
		}
		current, ahead = ahead, nil // the superbatch owns what was current
		if !in.publish(s) {
			return nil
		}
		if s.early != nil {
			s.runEarly(in.ctx)
		}
		if k == 0 && !in.waitRead(s) { // the consumer waits for its batch
			return nil
		}
		in.cache.populate.Do(in.cache.features.Slots.Populate) // beside nothing that is measured or waited for
		if len(current) == 0 {
			current = in.sampleAhead(k+1, 0)
		}
		if !in.waitBegun(s.first) {
			return nil
		}
	}
	return in.failed
}

func freeAll(batches []*sampled) {
	for _, b := range batches {
		b.free()
	}
}

// plan makes a superbatch of sampled batches. Where memory lacks for it, or the scratch file has no room or fails, it
// has fewer batches: the others become what is ahead. Where not even one batch can be planned, the plan is lost from
// there on.
func (in *inspector) plan(current, ahead *[]*sampled) (*superbatch, error) {
	c := in.cache
	start := time.Now()
	first := in.sampledTo - int64(len(*current)+len(*ahead))
	defer reportPlanning(in, first)()
	defer func() {
		c.counters.Planning.Since(start)
		in.cache.timeline.add(spanPlanning, first, start)
	}()
	for failures := 0; !in.isPlanLost(first); failures++ {
		known := *ahead
		if !c.draw.Options.Lookahead || failures > 0 {
			known = nil
		}
		device := in.cache.device.Device()
		in.cache.planner.SetDevice(device)
		_, packs := c.draw.Split.Within(c.fileRoom())
		in.cache.planner.SetPackFile(min(c.packFile, packs))
		in.cache.planner.SetLoad(in.cache.windows.load(len(*current), device))
		p, err := in.cache.planner.Plan(in.ctx, first, rowsOf(*current), rowsOf(known))
		if err == nil {
			for _, b := range *current {
				b.endPlanning()
			}
			return newSuperbatch(in, first, *current, known, p, device), nil
		}
		n := len(*current)
		if !in.fewer(err, failures, n) {
			if in.ctx.Err() == nil {
				err = in.markPlanLost(first, err)
			}
			if err != nil {
				return nil, fmt.Errorf("loader: planning batches %d to %d: %w", first, first+int64(n)-1, err)
			}
			break
		}
		half := max(n/2, 1)
		switch {
		case failures == 0, in.awaitRoom(int64(n)*c.draw.Split.RecordBytes()/planShare, first):
		case n <= leastWindow && len(*ahead) > 0 && in.returns(first+int64(n)):
			freeAll(*ahead)
			*ahead = nil
		case half < n:
			*ahead = append(slices.Clone((*current)[half:]), *ahead...)
			*current = (*current)[:half]
		}
	}
	lost := plan.Lost(first, len(*current))
	return newSuperbatch(in, first, *current, *ahead, lost, in.cache.device.Device()), nil
}

// mostFailures bounds how often a plan of one batch is tried again: without what is ahead, and once more after each of
// the ways in which a scratch file fails. Arbitrary.
const mostFailures = 4

// fewer reports whether it is worth while to plan fewer batches after an error.
func (in *inspector) fewer(err error, failures, batches int) bool {
	if in.ctx.Err() != nil || !errors.Is(err, mem.ErrBudget) && !errors.Is(err, scratch.ErrBroken) {
		return false
	}
	return batches > 1 || failures < mostFailures
}

func rowsOf(batches []*sampled) []plan.Rows {
	rows := make([]plan.Rows, len(batches))
	for i, b := range batches {
		rows[i] = b
	}
	return rows
}

// publish hands a superbatch to the executor.
func (in *inspector) publish(s *superbatch) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shut {
		s.free()
		return false
	}
	in.published = append(in.published, s)
	in.changed.Broadcast()
	return true
}

// waitBegun waits until the executor asks for batch n.
func (in *inspector) waitBegun(n int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.begun < n && !in.shut {
		in.changed.Wait()
	}
	return !in.shut
}

// waitRead waits until the rows of a superbatch have been read. It reports false where the inspector is stopped before.
func (in *inspector) waitRead(s *superbatch) bool {
	select {
	case <-s.read:
		return true
	case <-in.ctx.Done():
		return false
	}
}

// fail records why nothing more is published.
func (in *inspector) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
	}
	in.changed.Broadcast()
}

// turnsOf returns the batches of an epoch of the stream.
func (in *inspector) turnsOf(epoch int64) *draw.ShareSchedule {
	if epoch == in.start.epoch {
		return &in.shareSchedule
	}
	return &in.whole
}

// continues reports whether the stream goes on at a place, with these turns of its epoch.
func (in *inspector) continues(at place, t draw.ShareSchedule) bool {
	n, passed := in.number(at)
	in.mu.Lock()
	defer in.mu.Unlock()
	whole, _ := in.cache.schedule(0)
	return passed && n == in.next && t == *in.turnsOf(at.epoch) && whole == in.whole && !in.shut && in.err == nil &&
		!in.isPlanLost(n) && in.forecasting == in.cache.forecasting() && in.unforeseen.Load() == 0
}

// superbatchOf waits for the superbatch that holds batch n.
func (in *inspector) superbatchOf(n int64) (*superbatch, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n > in.begun {
		in.begun = n
		in.changed.Broadcast()
	}
	for {
		if in.shut {
			return nil, draw.ErrStopped
		}
		if s := in.holding(n); s != nil {
			return s, nil
		}
		if in.err != nil {
			return nil, in.err
		}
		in.changed.Wait()
	}
}

// holding returns the superbatch that holds batch n, or nil. The caller holds mu.
func (in *inspector) holding(n int64) *superbatch {
	for _, s := range in.published {
		if n >= s.first && n < s.end() {
			return s
		}
	}
	return nil
}

// fetch begins to load the plan and the trace of batch n, so that its preparer does not wait for the disk. That takes
// memory which only a division with plans in the scratch file has.
func (in *inspector) fetch(n int64) {
	if !in.cache.draw.Split.Stored {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if s := in.holding(n); s != nil {
		s.plan.Fetch(in.ctx, int(n-s.first))
		s.batches[n-s.first].fetch(in.ctx)
	}
}

// before returns the superbatch that ends where s begins, or nil.
func (in *inspector) before(s *superbatch) *superbatch {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, other := range in.published {
		if other.end() == s.first {
			return other
		}
	}
	return nil
}

// forget frees the superbatches whose packs nobody needs any more: those before
// the one that ended just before s.
func (in *inspector) forget(s *superbatch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.published) > 0 && in.published[0].end() < s.first {
		in.published[0].free()
		in.published = in.published[1:]
	}
}

// abandon makes everybody return, without waiting for them.
func (in *inspector) abandon() {
	in.cancel()
	in.mu.Lock()
	in.shut = true
	in.changed.Broadcast()
	in.mu.Unlock()
}

// stop ends the inspection and frees what it made. Nobody executes any more.
func (in *inspector) stop() {
	in.abandon()
	in.done.Wait()
	in.cache.trained.drain(in.published)
	for _, s := range in.published {
		s.free()
	}
	in.published = nil
	in.blocks.free()
}
