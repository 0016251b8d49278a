package loader

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/internal/guard"
	"freshgo/core/internal/reuse"
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
	packs     []*batchPacks // by batch from first on, those ahead included; nil: none

	ready   chan struct{} // closed when the prologue has ended
	broken  error         // why it failed; set before ready is closed
	unread  atomic.Int64  // batches whose rows have not all been read
	started time.Time     // of the prologue; set before ready is closed, as is before
	before  moved         // by the loader until then
}

func newSuperbatch(in *inspector, first int64, batches []*sampled, ahead int, p *plan.Superplan) *superbatch {
	s := &superbatch{
		inspector: in, first: first, batches: batches, plan: p,
		packs: make([]*batchPacks, len(batches)+ahead), ready: make(chan struct{}),
	}
	s.unread.Store(int64(len(batches)))
	return s
}

func (s *superbatch) end() int64 { return s.first + int64(len(s.batches)) }

// free releases what the superbatch holds. Nobody executes it any more.
func (s *superbatch) free() {
	for _, p := range s.packs {
		p.close()
	}
	freeAll(s.batches)
	s.plan.Release()
}

// batchPacks is the packs that one superbatch fills for one batch: one for each column of the cache, nil where there
// was no room. A nil batchPacks has none.
type batchPacks struct {
	columns []*scratch.Pack
	widths  []int        // of their rows
	zeros   []byte       // as long as the widest
	mu      sync.RWMutex // held for reading while a row is added
	sealed  bool
}

// add leaves a row for the batch. It does nothing when the batch has begun to read, for then the batch reads the row
// itself, or when the pack fails, which says so when it is read.
func (p *batchPacks) add(column int, pos int32, row []byte) {
	if p == nil || p.columns[column] == nil {
		return
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.sealed {
		_ = p.columns[column].Add(pos, row, p.zeros[:p.widths[column]-len(row)]) // a pack that fails is not read
	}
}

// addAll is add for several rows, which are as they are yielded.
func (p *batchPacks) addAll(column int, rows iter.Seq2[int32, []byte]) {
	if p == nil || p.columns[column] == nil {
		return
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.sealed {
		return
	}
	width := p.widths[column]
	var fields [2][]byte
	_ = p.columns[column].AddAll(func(yield func(int32, [][]byte) bool) { // a pack that fails is not read
		for pos, row := range rows {
			fields = [2][]byte{row, p.zeros[:width-len(row)]}
			if !yield(pos, fields[:]) {
				return
			}
		}
	})
}

// empty says whether there is no pack.
func (p *batchPacks) empty() bool {
	return p == nil || !slices.ContainsFunc(p.columns, func(k *scratch.Pack) bool { return k != nil })
}

// seal ends the adding of rows.
func (p *batchPacks) seal() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
}

func (p *batchPacks) close() {
	if p == nil {
		return
	}
	p.seal()
	for i, k := range p.columns {
		if k != nil {
			k.Close()
			p.columns[i] = nil
		}
	}
}

// packsFor returns what this superbatch and the one before it hold for batch n,
// sealed.
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

// step loads the step of batch n, an empty one when the plan is lost from there on.
func (s *superbatch) step(ctx context.Context, n int64, own *plan.Step) error {
	var err error
	if !s.inspector.isBlind(n) {
		err = s.inspector.survive(n, s.plan.Step(ctx, int(n-s.first), own))
	}
	if s.inspector.isBlind(n) {
		own.Slots, own.In, own.Forward, own.Extra = own.Slots[:0], own.In[:0], own.Forward[:0], own.Extra[:0]
	}
	return err
}

// run executes the prologue: rows that leave go to their packs, then rows that
// several batches of the window want are read in the order of the file. All
// batches before the superbatch have been committed.
func (s *superbatch) run(ctx context.Context, m *ssd.Merger) {
	l := s.inspector.loader
	s.inspector.forget(s)
	s.started, s.before = time.Now(), l.moved()
	defer close(s.ready)
	if s.inspector.isBlind(s.first) {
		return
	}
	s.openPacks()
	s.broken = guard.Run(func() error {
		err := s.plan.Forwards(ctx, func(forwards []plan.Forward) {
			for _, f := range forwards {
				if l.resident.rows[f.From] == vacant {
					continue // it was not needed when it should have entered
				}
				for column := range l.columns {
					s.packs[f.Batch].add(column, f.Pos, l.cached.Row(column, int64(f.From)))
				}
			}
		})
		if err == nil {
			err = s.readAhead(ctx, m)
		}
		return s.inspector.survive(s.first, err)
	})
}

// openPacks makes room for the rows that this plan leaves for later batches, the
// nearest first. What finds none is read when it is needed.
func (s *superbatch) openPacks() {
	l := s.inspector.loader
	zeros := make([]byte, slices.Max(l.columns))
	for _, size := range s.plan.Packs {
		p := &batchPacks{columns: make([]*scratch.Pack, len(l.columns)), widths: l.columns, zeros: zeros}
		for column, width := range l.columns {
			p.columns[column], _ = l.planned.pool.NewPack(int(size.Rows), width) // ErrFull: without
		}
		s.packs[size.Dest] = p
	}
}

// readAhead reads the rows of the prologue, a piece at a time so that the read
// plan stays small.
func (s *superbatch) readAhead(ctx context.Context, m *ssd.Merger) error {
	l := s.inspector.loader
	defer l.planned.timeline.add(spanScanning, s.first, time.Now())
	var wanted []int64
	return s.plan.ReadAhead(ctx, fillChunk, func(fills []plan.Fill, packs []plan.Extra) error {
		for _, f := range fills {
			l.resident.clear(f.Slot)
		}
		packs = s.withPack(packs)
		for _, table := range l.onDisk {
			fills, packs := table.fillsOf(fills), table.extrasOf(packs)
			wanted = wanted[:0]
			for _, f := range fills {
				wanted = append(wanted, int64(f.Row)-table.first)
			}
			for _, e := range packs {
				wanted = append(wanted, int64(e.Row)-table.first)
			}
			err := table.disk.ReadOver(ctx, m, wanted, s.plan.Prologue.HolePages, func(k int32, row []byte) error {
				if int(k) < len(fills) {
					copy(l.slotRow(table, fills[k].Slot), row)
					return nil
				}
				e := &packs[int(k)-len(fills)]
				s.packs[e.Batch].add(table.cached, e.Pos, row)
				return nil
			})
			if err != nil {
				return fmt.Errorf("reading %q ahead: %w", table.name, err)
			}
		}
		for _, f := range fills {
			l.resident.set(f.Slot, f.Row)
		}
		l.counters.filled.Add(int64(len(fills)))
		return nil
	})
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
		return errStopped
	}
}

// done says that the rows of batch n have been read. It frees the batch's packs, and reports the window when the batch
// was the last.
func (s *superbatch) done(n int64) {
	for _, packs := range s.packsFor(n) {
		packs.close()
	}
	if s.unread.Add(-1) == 0 {
		l := s.inspector.loader
		l.planned.windows.add(s, time.Since(s.started), l.moved())
	}
}

// setAside copies the rows of a step that leave to their packs.
func (p *preparer) setAside(tensors [][]byte) {
	l, leave := p.loader, p.step.Forward
	if len(leave) == 0 {
		return
	}
	start := time.Now()
	among(l.movers, len(leave), func(lo, hi int) {
		for leave := leave[lo:hi]; len(leave) > 0; {
			n := 1 // those of one pack come one after the other: a plan evicts what is needed farthest from now first
			for n < len(leave) && leave[n].Batch == leave[0].Batch {
				n++
			}
			for _, t := range l.onDisk {
				p.super.packs[leave[0].Batch].addAll(t.cached, p.leaving(t, tensors[t.index], leave[:n]))
			}
			leave = leave[n:]
		}
	})
	l.planned.timeline.add(spanPacking, p.number, start)
}

// leaving yields those rows that a table has, from slots or from the batch's tensor.
func (p *preparer) leaving(t *table, tensor []byte, leave []plan.Forward) iter.Seq2[int32, []byte] {
	return func(yield func(int32, []byte) bool) {
		base := p.base(t)
		for _, f := range leave {
			if !p.forwards(t, f) {
				continue
			}
			row := tensor
			if f.From >= 0 {
				row = p.loader.slotRow(t, f.From)
			} else {
				row = row[int(p.roster.tensorRow(^f.From)-base)*t.width:][:t.width]
			}
			if !yield(f.Pos, row) {
				return
			}
		}
	}
}

// readPacks copies what the packs of a planned batch hold into its tensors. A pack that fails has
// not brought its rows, which are then read from the store.
func (p *preparer) readPacks(tensors [][]byte) error {
	if p.super == nil || len(p.loader.onDisk) == 0 {
		return nil
	}
	l, k, rows := p.loader, &p.lookup, len(p.roster.rows)
	k.delivered = reuse.Slice(k.delivered, len(l.columns)*rows)
	clear(k.delivered)
	for _, packs := range p.super.packsFor(p.number) {
		for column, pack := range packs.columns {
			if pack == nil {
				continue
			}
			delivered := k.deliveredTo(column, rows)
			err := pack.Seal()
			if err == nil {
				err = pack.Read(p.epoch.ctx, func(pos int32, row []byte) error {
					// Different positions of a batch: no two calls write the same.
					to := p.roster.tensorRow(pos)
					if t := l.tableOf(column, p.roster.rows[pos]); t != nil && to >= 0 {
						p.deliver(t, tensors[t.index], to-p.base(t), row)
						delivered[pos] = true
					}
					return nil
				})
			}
			if p.epoch.ctx.Err() != nil {
				return errStopped
			}
			if err != nil {
				l.counters.packErrors.Add(1)
			}
		}
	}
	return nil
}
