package plan

import (
	"context"
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
	scratch  arena // of one plan at a time
	cached   *residency
	packed   packed // what earlier plans put into packs
	failed   bool   // a plan was given up half-way
	spare    spare
}

// New makes a planner whose cache is empty.
//
// Errors: ErrConfig, mem.ErrBudget.
func New(budget *mem.Budget, c Config) (*Planner, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Capacity = min(c.Capacity, c.NumRows)
	p := &Planner{config: c, budget: budget, transfer: newTransfer(&c),
		scratch: arena{budget: budget, purpose: mem.Trace, keep: true}}
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

// StateBytes is what a planner takes from the budget from New to Close.
func StateBytes(numRows, capacity int64) int64 {
	capacity = min(capacity, numRows)
	return residencyBytes(numRows, capacity) + numberBytes(capacity)
}

// SuperbatchBytes is what Plan takes from the budget at most, its plan included, when the superbatch and what is ahead
// have so many rows together: if every one of them is another, and all are one batch. Half of it is usual. All of it is
// kept for the next one, and so is a plan once it was released; plans that are not released yet come on top. What packs
// need beyond it is done without.
func SuperbatchBytes(accesses int64) int64 { return accesses*superbatchBytes + 4*chunkBytes }

// superbatchBytes adds up for each access, while residency is planned: 8 for its number and next use, 13 for a known
// row, 12 for the slot and the move of the plan, 12 for the scratch of the widest batch.
const superbatchBytes = 45

// Plan plans the batches from number first of the stream on, which follow those of the plan before, and which are what
// was ahead then. What is ahead now are the batches after them, as far as they are known: they decide what is worth
// keeping, but nothing about them is final.
//
// Errors: ErrBatch for rows out of range or twice in a batch, mem.ErrBudget, the error of ctx. The planner then no
// longer knows what is cached: until Reset it answers ErrReset.
func (p *Planner) Plan(ctx context.Context, first int64, current, ahead []Batch) (*Superplan, error) {
	if p.failed {
		return nil, fmt.Errorf("plan: batch %d: %w", first, ErrReset)
	}
	p.failed = true
	if !p.config.CarryOver {
		p.cached.clear()
		ahead = nil // what it needs will be forgotten before
	}
	s := &Superplan{First: first, spare: &p.spare}
	if err := p.plan(ctx, s, current, ahead); err != nil {
		s.Release()
		return nil, err
	}
	p.failed = false
	return s, nil
}

func (p *Planner) plan(ctx context.Context, s *Superplan, current, ahead []Batch) error {
	h, err := newHorizon(current, ahead)
	if err != nil {
		return err
	}
	p.makeRoom(h)
	h.memory = &p.scratch
	defer p.scratch.reset()
	s.memory = p.spare.take(p.budget)
	w, err := p.window(h, s)
	defer w.release()
	if err != nil {
		return err
	}
	if err := p.residency(ctx, h, s, w); err != nil {
		return err
	}
	p.scratch.reset()
	if err := w.finish(ctx); err != nil {
		return err
	}
	p.packed.remember(w)
	return nil
}

// makeRoom gives memory back that earlier plans have left where its division among the tables might not suit this one.
func (p *Planner) makeRoom(h *horizon) {
	widest := 0
	for _, b := range current(h) {
		widest = max(widest, len(b))
	}
	all := int64(h.accesses())
	numbers := int64(0)
	if n := p.config.Capacity + min(all, p.config.NumRows); n > int64(len(p.cached.known)) {
		numbers = numberBytes(n) // beside the old ones, until they are copied
	}
	scratch := max(0, all*12+int64(widest)*12+chunkBytes-p.scratch.bytes())
	plan := int64(h.currentEnd())*12 + 2*chunkBytes
	if p.budget.Free() < numbers+scratch+plan {
		p.spare.drop()
		p.scratch.release()
	}
}

// residency plans what is cached when, and collects for t what is cold.
func (p *Planner) residency(ctx context.Context, h *horizon, s *Superplan, w *window) error {
	k := newBuckets(len(h.batches))
	if err := p.cached.scan(ctx, h, k); err != nil {
		return err
	}
	slots, err := alloc[int32](&s.memory, h.currentEnd())
	if err != nil {
		return err
	}
	widest := 0
	for _, b := range current(h) {
		widest = max(widest, len(b))
	}
	var scratch [3][]uint32
	for i := range scratch {
		if scratch[i], err = alloc[uint32](h.memory, widest); err != nil {
			return err
		}
	}
	run := belady{
		residency: p.cached, horizon: h, buckets: k, plan: &s.memory,
		misses: scratch[0], queued: scratch[1], freed: scratch[2],
		leave: &w.leave, fills: w.mayFill,
	}
	clear(run.queued)
	clear(p.cached.touched)
	s.Steps = make([]Step, h.current)
	for b := range s.Steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		step := cache.Step{Slots: slots[h.offsets[b]:h.offsets[b+1]:h.offsets[b+1]]}
		if step.In, err = run.step(uint32(b), step.Slots); err != nil {
			return err
		}
		s.Steps[b].Step = step
		w.leave.ends = append(w.leave.ends, len(w.leave.events.items))
	}
	p.cached.settle(h, w.noteCold)
	w.missed = run.missed
	return nil
}

func current(h *horizon) []Batch { return h.batches[:h.current] }

// Reset tells the planner what the cache really holds, after an executor that stopped in the middle of a superbatch or
// a plan that failed. All packs are gone.
func (p *Planner) Reset(resident func(yield func(slot int32, row uint32))) {
	r := p.cached
	r.clear()
	p.packed = packed{}
	held := make(bitset, bitsetWords(int(r.capacity)))
	resident(func(slot int32, row uint32) {
		if int64(slot) >= r.capacity || held.has(uint32(slot)) || r.lookUp(row) != none {
			panic(fmt.Sprintf("plan: invariant: row %d in slot %d is cached twice or beyond %d slots", row, slot, r.capacity))
		}
		held.set(uint32(slot))
		n := r.number(row)
		r.known[n].slot = slot
		r.links[slot].known = n
		r.enqueue(uint32(slot))
		r.freeSlots--
	})
	r.slotTop = uint32(r.capacity)
	for s := uint32(r.capacity); s > 0; {
		s--
		if !held.has(s) {
			r.links[s].next = r.freeSlot
			r.freeSlot = s
		}
	}
	p.failed = false
}

// Close frees the planner's memory. Plans that it made live on. Idempotent.
func (p *Planner) Close() {
	p.spare.close()
	p.scratch.release()
	p.cached.close()
}
