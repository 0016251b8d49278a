package window

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/internal/guard"
	"freshgo/core/plan"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
)

// superbatch is consecutive batches with their plan, as the executor sees them
// (Ginex, section 3.3). Its prologue is run by the preparer of its first batch,
// once all batches before it have been committed.
type superbatch struct {
	inspector *inspector
	first     int64
	batches   []*sampled
	plan      *plan.Superplan
	device    ssd.Device    // it was planned for
	packs     []*batchPacks // by batch from first on, those ahead included; nil: none
	spans     [][]span      // likewise

	ready   chan struct{}  // closed when the prologue has ended
	broken  error          // why it failed; set before ready is closed
	unread  atomic.Int64   // batches whose rows have not all been read
	read    chan struct{}  // closed when there are none
	started time.Time      // of the prologue; set before ready is closed, as is before
	before  moved          // by the loader until then
	waited  time.Duration  // by the consumer until then
	early   *earlyPrologue // nil: the prologue does not run early
}

func newSuperbatch(
	in *inspector, first int64, batches, ahead []*sampled, p *plan.Superplan, d ssd.Device,
) *superbatch {
	s := &superbatch{
		inspector: in, first: first, batches: batches, plan: p, device: d,
		packs: make([]*batchPacks, len(batches)+len(ahead)),
		ready: make(chan struct{}), read: make(chan struct{}),
	}
	for _, b := range slices.Concat(batches, ahead) {
		s.spans = append(s.spans, b.spans)
	}
	s.unread.Store(int64(len(batches)))
	if p.Early {
		s.early = &earlyPrologue{begun: make(chan struct{}), over: make(chan struct{})}
	}
	return s
}

func (s *superbatch) end() int64 { return s.first + int64(len(s.batches)) }

// free frees the memory of the superbatch, which is no longer executed.
func (s *superbatch) free() {
	for _, p := range s.packs {
		p.close()
	}
	freeAll(s.batches)
	s.plan.Release()
}

// packsFor returns the sealed packs of this superbatch and the one before it for batch n.
func (s *superbatch) packsFor(n int64) (found []*batchPacks) {
	for _, from := range []*superbatch{s.inspector.before(s), s} {
		if from == nil || n-from.first >= int64(len(from.packs)) {
			continue
		}
		if p := from.packs[n-from.first]; p != nil {
			p.seal()
			found = append(found, p)
		}
	}
	return found
}

// step loads the step of batch n, an empty one where it is lost.
func (s *superbatch) step(ctx context.Context, n int64, own *plan.Step) error {
	return s.inspector.markPlanLost(n, s.plan.Step(ctx, int(n-s.first), own))
}

// run executes the prologue: rows that leave go to their packs, then rows that several batches of the window need are
// read in file order. All batches before the superbatch have been committed.
func (s *superbatch) run(ctx context.Context, m *ssd.Merger) {
	c := s.inspector.cache
	s.inspector.forget(s)
	if from := s.inspector.before(s); from != nil { // no more rows leave, so they need no buffers
		for _, p := range from.packs[len(from.batches):] {
			p.seal()
		}
	}
	c.trained.step.all = true // the prologue may fill any slot
	s.started, s.before = time.Now(), s.inspector.cache.movedInTime()
	s.waited = c.counters.Waiting.Total()
	defer close(s.ready)
	s.inspector.cache.idleGate.enter()
	defer s.inspector.cache.idleGate.leave()
	// A prologue that reads nothing finds nothing outdated, and rows that are needed soon need not go by their files.
	idle := c.trained.inTurn && s.plan.Prologue.Empty()
	if !idle {
		s.broken = c.trained.settle(true)
	}
	if s.broken != nil {
		if s.early != nil {
			close(s.early.begun)
		}
		return
	}
	if s.early != nil {
		if s.broken = s.awaitEarly(ctx); s.broken == nil {
			s.openPacks(len(s.batches), len(s.packs))
		}
		return
	}
	if s.inspector.isPlanLost(s.first) {
		return
	}
	s.openPacks(0, len(s.packs))
	defer s.inspector.cache.timeline.add(spanScanning, s.first, time.Now())
	s.broken = guard.Run(func() error {
		var failed error
		err := s.plan.Forwards(ctx, func(forwards []plan.Forward) {
			for _, f := range forwards {
				if c.features.Resident.Rows[f.From] == fetch.Vacant {
					continue // it was not needed when it should have entered
				}
				failed = cmp.Or(failed, c.trained.forwardSlot(s.packs[f.Batch], f.Pos, f.From))
			}
		})
		if err = cmp.Or(err, failed); err == nil {
			err = s.readAhead(ctx, m, fetch.FillChunk, func() {})
		}
		return s.inspector.markPlanLost(s.first, err)
	})
}

// packSizes returns the packs that this plan leaves for the batches from lo to before hi, counted from its first.
func (s *superbatch) packSizes(lo, hi int) []plan.PackSize {
	sizes := s.plan.Packs
	from := func(batch int) int {
		return sort.Search(len(sizes), func(i int) bool { return int(sizes[i].Dest) >= batch })
	}
	return sizes[from(lo):from(hi)]
}

// openPacks makes room for the rows that this plan leaves for the batches from lo to
// hi, counted from its first, the nearest first. What finds none is read when it is needed.
func (s *superbatch) openPacks(lo, hi int) {
	c := s.inspector.cache
	for _, size := range s.packSizes(lo, hi) {
		p := &batchPacks{make([]*scratch.Pack, len(c.features.Columns))}
		for column, width := range c.features.Columns {
			p.columns[column], _ = s.inspector.cache.pool.NewPack(int(size.Rows), width) // ErrFull: without
		}
		s.packs[size.Dest] = p
	}
}

// readAhead reads the rows of the prologue, up to most at a time so that the read
// plan stays small. Before each piece it calls yield.
func (s *superbatch) readAhead(ctx context.Context, m *ssd.Merger, most int, yield func()) error {
	c := s.inspector.cache
	var wanted []int64
	defer c.draw.Options.Progress.Report("", 0, 0)
	return s.plan.ReadAhead(ctx, most, func(fills []plan.Fill, packs []plan.Extra) error {
		yield()
		c.draw.Options.Progress.Report("reading rows ahead", firstRow(fills, packs), c.draw.Split.PlanRows)
		s.inspector.cache.learn()
		for _, f := range fills {
			if err := c.trained.returnSlot(f.Slot); err != nil {
				return err
			}
			c.features.Resident.Clear(f.Slot)
		}
		packs = s.withPack(packs)
		for _, table := range c.features.OnDisk {
			fills, packs := table.FillsOf(fills), table.ExtrasOf(packs)
			wanted = wanted[:0]
			for _, f := range fills {
				wanted = append(wanted, int64(f.Row)-table.First)
			}
			for _, e := range packs {
				wanted = append(wanted, int64(e.Row)-table.First)
			}
			err := table.Disk.ReadOver(ctx, m, wanted, s.plan.Prologue.HolePages, func(k int32, row []byte) error {
				if int(k) < len(fills) {
					copy(c.features.SlotRow(table, fills[k].Slot), row)
					return nil
				}
				e := &packs[int(k)-len(fills)]
				s.packs[e.Batch].add(table.Column, e.Pos, row)
				return nil
			})
			if err != nil {
				return fmt.Errorf("reading %q ahead: %w", table.Name, err)
			}
		}
		for _, f := range fills {
			c.features.Resident.Set(f.Slot, f.Row)
		}
		c.counters.Filled.Add(int64(len(fills)))
		return nil
	})
}

// firstRow returns the lowest of rows that are read in the order of the file.
func firstRow(fills []plan.Fill, packs []plan.Extra) int64 {
	first := int64(math.MaxInt64)
	if len(fills) > 0 {
		first = int64(fills[0].Row)
	}
	if len(packs) > 0 {
		first = min(first, int64(packs[0].Row))
	}
	return first
}

// withPack returns those rows whose pack found room. The others are read by the
// batch that needs them.
func (s *superbatch) withPack(rows []plan.Extra) []plan.Extra {
	missing := func(e plan.Extra) bool { return s.packs[e.Batch].empty() }
	if !slices.ContainsFunc(rows, missing) {
		return rows
	}
	return slices.DeleteFunc(slices.Clone(rows), missing)
}

// await waits until the prologue has ended.
func (s *superbatch) await(ctx context.Context) error {
	select {
	case <-s.ready:
		return s.broken
	case <-ctx.Done():
		return draw.ErrStopped
	}
}

// closePacks frees the packs of batch n.
func (s *superbatch) closePacks(n int64) {
	for _, packs := range s.packsFor(n) {
		packs.close()
	}
}

// done records that the rows of a batch have been read, and reports the window after its last batch.
func (s *superbatch) done() {
	s.inspector.cache.learn()
	if s.unread.Add(-1) == 0 {
		close(s.read)
		s.inspector.cache.windows.add(s, time.Since(s.started), s.inspector.cache.movedInTime())
	}
}
