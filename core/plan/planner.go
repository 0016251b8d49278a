package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"freshgo/core/cache"
	"freshgo/core/mem"
)

// Planner plans one superbatch after the other. It belongs to one goroutine at a time.
type Planner struct {
	config   Config
	transfer transfer
	budget   *mem.Budget
	storage  Storage
	buffers  buffers // of one plan at a time
	cached   *residency
	packed   packed // what earlier plans put into packs
	previous int64  // first batch of the plan before; -1: there is none
	failed   bool   // a plan was given up half-way, and what was cached before is not known either
}

// New makes a planner whose cache is empty.
//
// Errors: ErrConfig, mem.ErrBudget.
func New(budget *mem.Budget, c Config) (*Planner, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Capacity = min(c.Capacity, c.NumRows)
	p := &Planner{config: c, budget: budget, transfer: newTransfer(&c), storage: c.Storage, previous: -1}
	if p.storage == nil {
		p.storage = Memory(budget)
	}
	var err error
	p.cached, err = newResidency(budget, c.NumRows, c.Capacity)
	return p, err
}

func (c *Config) check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("plan: %s: %w", fmt.Sprintf(format, args...), ErrConfig)
	}
	switch {
	case c.NumRows < 0 || c.NumRows >= math.MaxUint32:
		return invalid("the number of rows must be within [0, 2^32-1), got %d", c.NumRows)
	case c.Capacity < 0 || c.Capacity > math.MaxInt32:
		return invalid("the capacity must be within [0, %d] rows, got %d", math.MaxInt32, c.Capacity)
	case !slices.Contains(Transfers(), c.Transfer):
		return invalid("transfer must be one of %s, got %q", strings.Join(Transfers(), ", "), c.Transfer)
	case c.PackMemory < 0 || c.PackFile < 0 || c.Depth < 0 || c.RowBytes < 0:
		return invalid("sizes must not be negative, got %d and %d bytes of packs, depth %d, rows of %d bytes",
			c.PackMemory, c.PackFile, c.Depth, c.RowBytes)
	}
	if c.First != nil && len(c.First) != len(c.Tables) {
		return invalid("%d tables and where %d begin", len(c.Tables), len(c.First))
	}
	for i, l := range c.Tables {
		switch {
		case c.First == nil && l.NumRows < c.NumRows:
			return invalid("a table has %d rows, expected %d", l.NumRows, c.NumRows)
		case c.First != nil && (c.First[i] < 0 || c.First[i]+l.NumRows > c.NumRows):
			return invalid("a table has the rows %d to %d, expected some of %d", c.First[i], c.First[i]+l.NumRows, c.NumRows)
		}
		if int64(c.SlotBytes) < l.SpanBytes() {
			return invalid("slots of %d bytes cannot hold rows of %d", c.SlotBytes, l.RowBytes)
		}
	}
	return nil
}

// StateBytes returns the memory that a planner takes from the budget from New to Close: 12 bytes for 64 rows of the
// graph, and 21 for each slot.
func StateBytes(numRows, capacity int64) int64 {
	return residencyBytes(numRows, min(capacity, numRows))
}

// KnownBytes returns the most memory that Plan takes for words of rows, beside SuperbatchBytes or StoredBytes: for each
// access of the superbatch and the batches ahead, and each slot; for each row of the graph where these are many.
func KnownBytes(numRows, accesses, capacity int64) int64 {
	if knowsAll(numRows, accesses, capacity) {
		return 4 * numRows
	}
	return 4 * (accesses + capacity)
}

// SuperbatchBytes returns the most memory that Plan takes from the budget, its plan included, where the storage is
// memory and the superbatch and the batches ahead have the given number of accesses. The bound is met if all rows
// differ and are one batch; half of it is usual. Plans that are not released yet come on top. Packs that would need
// more are left out.
func SuperbatchBytes(accesses int64) int64 { return accesses*superbatchBytes + fixedBytes }

// superbatchBytes adds up for each access: 28 for the buffers of the widest batch, 4 for its next use, 12 for the slot
// and the move of the plan, 1 for bits.
const superbatchBytes = bufferBytes + 4 + 12 + 1

// fixedBytes is for bits that are rounded up.
const fixedBytes = 4 << 10

// loadedBytes is the most memory of loads for each row of a batch: a cold row with its slot and a leaver, or a row and
// its next use, with their bits.
const loadedBytes = 17

// StoredBytes returns the most memory that Plan takes from the budget where its storage is not memory, by the accesses
// of the superbatch and of the batches ahead, and the rows of the widest batch: buffers and records of a batch, a bit
// for each access, which says whether packs hold the row, and the ranges into which cold rows are distributed. A plan
// takes no memory beyond this, StateBytes and KnownBytes.
func StoredBytes(accesses, widest int64) int64 {
	ranges := min(2*mostRanges, 2*accesses/pieceRows+1) // of two spreads
	sorted := max(accesses/mostRanges, min(accesses, pieceRows)) * 3 * size[coldRow]()
	return widest*(bufferBytes+40+int64(loadsAhead(int(widest))+1)*loadedBytes) + accesses/8 +
		sorted + ranges*min(spreadBytes, 12*accesses) + fixedBytes
}

// Plan plans the batches from number first of the stream on. They follow the batches of the plan before, and were ahead
// then. Now the batches after them are ahead, as far as they are known: they decide which rows are worth keeping, but
// nothing about them is final.
//
// Errors: ErrBatch for rows out of range or twice in a batch, mem.ErrBudget, the error of ctx, errors of the storage
// and of batches that cannot be loaded. A storage other than memory without room for the transfer of many batches is
// such an error, as a plan of fewer may find room; of few batches, each reads its own rows. After an error of memory,
// storage or loading the planner is as it was before, except that it no longer counts on packs of earlier plans. After
// any other error it does not know the cached rows: until Reset it returns ErrReset.
func (p *Planner) Plan(ctx context.Context, first int64, current, ahead []Rows) (*Superplan, error) {
	if p.failed {
		return nil, fmt.Errorf("plan: batch %d: %w", first, ErrReset)
	}
	if !p.config.CarryOver {
		p.cached.clear()
		ahead = nil // the cache will be emptied before these batches
	}
	p.cached.remember()
	s := &Superplan{First: first}
	if err := p.plan(ctx, s, current, ahead); err != nil {
		s.Release()
		p.failed = errors.Is(err, ErrBatch) || ctx.Err() != nil
		p.cached.restore()
		p.forgetPacks()
		return nil, err
	}
	return s, nil
}

// forgetPacks goes on without the packs of earlier plans.
func (p *Planner) forgetPacks() {
	p.packed.forgetAll()
	p.previous = -1
}

func (p *Planner) plan(ctx context.Context, s *Superplan, current, ahead []Rows) error {
	h, err := newHorizon(current, ahead)
	if err != nil {
		return err
	}
	h.storage = p.storage
	defer h.next.freeAll()
	s.index = &h.index
	if err := p.buffers.fit(p.budget, h.widest()); err != nil {
		return err
	}
	if err := p.cached.know(ctx, h); err != nil {
		return err
	}
	w := p.window(h, s)
	defer w.release()
	if err := p.residency(ctx, h, s, w); err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	p.cached.forget()
	p.packed.remember(w)
	p.previous = s.First
	return nil
}

// residency plans what is cached when, and collects for w what is cold.
func (p *Planner) residency(ctx context.Context, h *horizon, s *Superplan, w *window) error {
	known := nextUses{p.cached, h, newBuckets(len(h.batches), p.cached.chunks), w.cold.packed}
	if err := known.find(ctx, p.buffers.next, p.buffers.misses); err != nil {
		return err
	}
	run := belady{
		cached: p.cached, index: &h.index, buckets: known.buckets, leave: &w.cold.leave, fills: w.cold.mayFill,
		misses: p.buffers.misses, then: p.buffers.then, freed: p.buffers.freed, moves: p.buffers.moves,
	}
	run.untouched = p.cached.queue.n
	s.steps = make(records, h.current)
	trace, uses := h.loadRows(ctx, 0, h.current), h.next[:h.current].load(ctx, h.storage, loadsAhead(h.widest()))
	defer trace.close()
	defer uses.close()
	for b := range s.steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		err := takeFrom(trace, func(rows []uint32) error {
			slots := p.buffers.slots[:len(rows)]
			w.cold.here = w.cold.packed(b)
			var moves []cache.Move
			err := takeFrom(uses, func(next []uint32) error {
				moves = run.step(uint32(b), rows, next, slots)
				return nil
			})
			if err != nil {
				return err
			}
			h.next.free(b)
			words, values := packStep(slots, moves, w.cold.words, p.buffers.next)
			if s.steps[b], err = p.storage.Put(mem.Bytes(words), mem.Bytes(values)); err != nil {
				return err
			}
			return w.cold.collect(b, rows, slots, moves, p.buffers.freed)
		})
		if err != nil {
			return err
		}
	}
	w.missed = run.missed
	w.cold.passing.release()
	known.settle(w.cold.keepAhead)
	return nil
}

// Reset tells the planner what the cache really holds, after an executor that stopped in the middle of a superbatch or
// a plan that failed. All packs are gone.
func (p *Planner) Reset(resident func(yield func(slot int32, row uint32))) {
	r := p.cached
	r.clear()
	clear(r.known)
	resident(func(slot int32, row uint32) {
		if int64(slot) >= r.capacity || r.held[slot] != 0 || !r.known.Put(int64(row)) {
			panic(fmt.Sprintf("plan: invariant: row %d in slot %d is cached twice or beyond %d slots", row, slot, r.capacity))
		}
		r.held[slot] = row + 1
		r.slotTop = max(r.slotTop, uint32(slot)+1)
	})
	r.queueAll()
	p.forgetPacks()
	p.failed = false
}

// Close frees the planner's memory. Plans that it made live on. Idempotent.
func (p *Planner) Close() {
	p.packed.forgetAll()
	p.buffers.release()
	p.cached.close()
}
