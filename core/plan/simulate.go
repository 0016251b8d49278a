package plan

import (
	"context"
	"fmt"

	"freshgo/core/cache"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// Simulation is a cache to try on a trace, without reading anything.
type Simulation struct {
	NumRows  int64
	Capacity int64

	Policy  string        // "belady", "none" or one of cache.OnlineNames; not used with Hotness
	Hotness cache.Hotness // a static cache of the hottest rows: a score for each row

	// Of "belady" only.
	Superbatch int  // batches planned at a time; 0: the whole trace
	CarryOver  bool // false: the cache is forgotten after every superbatch
	Lookahead  bool // the superbatch after the one that is planned is known too
}

// Counts are the costs of a batch.
type Counts struct {
	Reads int64 // rows that were not cached
	Hits  int64
	Swaps int64 // rows that others took the place of
}

// Simulate runs a trace through an initially empty cache, and calls each for every batch in order. fill is the number
// of rows that a static cache reads before the first batch; other caches fill themselves with the rows of batches.
//
// It returns ErrBatch, ErrConfig, mem.ErrBudget, the error of ctx, or the error of cache.New for an unknown policy or
// an impossible capacity.
func Simulate(
	ctx context.Context, budget *mem.Budget, trace []Batch, s Simulation, each func(batch int, c Counts),
) (fill int64, err error) {
	if err := s.check(trace); err != nil {
		return 0, err
	}
	if kind := cache.KindOf(s.Policy); s.Hotness == nil && (kind == cache.Planned || kind == cache.Absent) {
		return 0, s.belady(ctx, budget, trace, each)
	}
	policy, fill, err := s.policy(budget)
	if err != nil {
		return 0, err
	}
	defer policy.Close()
	count := newCounter(min(s.Capacity, s.NumRows))
	var step cache.Step
	for i, rows := range trace {
		if err := ctx.Err(); err != nil {
			return fill, fmt.Errorf("plan: %w", err)
		}
		policy.Step(rows, &step)
		each(i, count.step(&step))
	}
	return fill, nil
}

func (s *Simulation) check(trace []Batch) error {
	if s.Capacity < 0 {
		return fmt.Errorf("plan: the capacity must not be negative, got %d: %w", s.Capacity, cache.ErrCapacity)
	}
	if s.Superbatch < 0 {
		return fmt.Errorf("plan: a superbatch must not be negative, got %d: %w", s.Superbatch, ErrConfig)
	}
	if s.Hotness != nil && int64(len(s.Hotness)) != s.NumRows {
		return fmt.Errorf("plan: hotness has %d scores, expected one for each of %d rows: %w",
			len(s.Hotness), s.NumRows, cache.ErrHotness)
	}
	for b, rows := range trace {
		for _, row := range rows {
			if int64(row) >= s.NumRows {
				return fmt.Errorf("plan: batch %d has row %d of %d: %w", b, row, s.NumRows, ErrBatch)
			}
		}
	}
	return nil
}

func (s *Simulation) policy(budget *mem.Budget) (cache.Policy, int64, error) {
	if s.Hotness == nil {
		policy, err := cache.New(s.Policy, budget, s.NumRows, s.Capacity)
		return policy, 0, err
	}
	static, err := cache.NewStatic(budget, s.NumRows, s.Hotness.Top(s.Capacity))
	if err != nil {
		return nil, 0, err
	}
	return static, static.Len(), nil
}

func (s *Simulation) belady(
	ctx context.Context, budget *mem.Budget, trace []Batch, each func(batch int, c Counts),
) error {
	if cache.KindOf(s.Policy) == cache.Absent {
		s.Capacity = 0
	}
	p, err := New(budget,
		Config{NumRows: s.NumRows, Capacity: s.Capacity, CarryOver: s.CarryOver, Transfer: method{}.String()})
	if err != nil {
		return err
	}
	defer p.Close()
	size := s.Superbatch
	if size == 0 {
		size = max(len(trace), 1)
	}
	count := newCounter(p.config.Capacity)
	var step Step
	for first := 0; first < len(trace); first += size {
		end := min(first+size, len(trace))
		ahead := end
		if s.Lookahead {
			ahead = min(end+size, len(trace))
		}
		plan, err := p.Plan(ctx, int64(first), InMemory(trace[first:end]), InMemory(trace[end:ahead]))
		if err != nil {
			return err
		}
		if !s.CarryOver {
			clear(count.held)
		}
		for i := range plan.Len() {
			if err = plan.Step(ctx, i, &step); err != nil {
				break
			}
			each(first+i, count.step(&step.Step))
		}
		plan.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// counter counts what steps cost.
type counter struct{ held bitset.Set } // slots that hold a row

func newCounter(capacity int64) *counter {
	return &counter{held: bitset.New(capacity)}
}

func (k *counter) step(s *cache.Step) (c Counts) {
	for _, slot := range s.Slots {
		if slot < 0 {
			c.Reads++
		}
	}
	c.Hits = int64(len(s.Slots)) - c.Reads
	for _, m := range s.In {
		if k.held.Has(int64(m.Slot)) {
			c.Swaps++
		}
		k.held.Add(int64(m.Slot))
	}
	return c
}
