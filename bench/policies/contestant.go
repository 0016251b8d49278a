package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/plan"
)

// outcome is the result of a policy in two epochs, beginning with an empty cache.
type outcome struct {
	reads [2]int // rows read, those that fill a static cache included in the first epoch
	spent time.Duration
}

// bench holds the trace and the settings that the contestants share.
type bench struct {
	graph    *graph
	sampling draws
	presc    trace // the epoch that PreSC may see
	epochs   [2]trace
	metrics  map[string]cache.Hotness
	making   map[string]time.Duration // what making a metric took, sampling apart
}

// contestants in the order of the table. Belady plans 64 batches at a time or as
// many as an epoch has, knows as many more and keeps its cache; Ginex's version
// does neither.
var contestants = []string{
	"belady, an epoch", "belady, 64", "belady, 64, Ginex's",
	"oracle", "presc", "presc, ties by expected", "expected", "degree", "in-degree", "random",
	"lru", "clock", "sieve", "s3fifo", "match",
}

// simulation returns the configuration of a contestant for core/plan.
func (b *bench) simulation(name string, capacity int64) plan.Simulation {
	s := plan.Simulation{
		NumRows: b.graph.NumNodes(), Capacity: capacity, Policy: "belady",
		Superbatch: 64, CarryOver: true, Lookahead: true,
	}
	switch name {
	case "belady, an epoch":
		s.Superbatch = len(b.epochs[0])
	case "belady, 64":
	case "belady, 64, Ginex's":
		s.CarryOver, s.Lookahead = false, false
	default:
		s.Policy, s.Hotness = name, b.metrics[name]
	}
	return s
}

// run counts with the contestant itself, to measure it, and compares with what
// plan.Simulate counts.
func (b *bench) run(name string, capacity int64) (out outcome, err error) {
	s := b.simulation(name, capacity)
	switch {
	case s.Hotness != nil:
		var policy *cache.Static
		if policy, err = cache.NewStatic(mem.NewBudget(0), s.NumRows, s.Hotness.Top(capacity)); err != nil {
			return out, err
		}
		out = b.replay(policy)
		out.reads[0] += int(policy.Len())
		policy.Close()
	case s.Policy != "belady":
		policy, err := cache.New(name, mem.NewBudget(0), s.NumRows, capacity)
		if err != nil {
			return out, err
		}
		out = b.replay(policy)
		policy.Close()
	default:
		if out, err = b.belady(s); err != nil {
			return out, err
		}
	}
	simulated, err := b.simulate(s)
	if err == nil && simulated != out.reads {
		err = fmt.Errorf("%v rows read, the simulation has %v", out.reads, simulated)
	}
	return out, err
}

func (b *bench) simulate(s plan.Simulation) (reads [2]int, err error) {
	stream := slices.Concat(b.epochs[0], b.epochs[1])
	fill, err := plan.Simulate(context.Background(), mem.NewBudget(0), stream, s, func(i int, c plan.Counts) {
		reads[i/len(b.epochs[0])] += int(c.Reads)
	})
	reads[0] += int(fill)
	return reads, err
}

func (b *bench) replay(policy cache.Policy) (out outcome) {
	out.spent = replay(slices.Concat(b.epochs[0], b.epochs[1]), policy, func(batch int, step *cache.Step) {
		out.reads[batch/len(b.epochs[0])] += misses(step)
	})
	return out
}

// replay runs a cache that does not plan over a trace.
func replay(stream trace, policy cache.Policy, each func(batch int, step *cache.Step)) (spent time.Duration) {
	var step cache.Step
	for i, rows := range stream {
		start := processorTime()
		policy.Step(rows, &step)
		spent += processorTime() - start
		each(i, &step)
	}
	return spent
}

func misses(step *cache.Step) (n int) {
	for _, slot := range step.Slots {
		if slot == cache.Miss {
			n++
		}
	}
	return n
}

func (b *bench) belady(s plan.Simulation) (out outcome, err error) {
	stream := slices.Concat(b.epochs[0], b.epochs[1])
	out.spent, err = planned(stream, s, func(batch int, step *cache.Step) {
		out.reads[batch/len(b.epochs[0])] += misses(step)
	})
	return out, err
}

// planned runs a planned cache over a trace.
func planned(
	stream trace, s plan.Simulation, each func(batch int, step *cache.Step),
) (spent time.Duration, err error) {
	planner, err := plan.New(mem.NewBudget(0), plan.Config{
		NumRows: s.NumRows, Capacity: s.Capacity, CarryOver: s.CarryOver, Transfer: "random",
	})
	if err != nil {
		return 0, err
	}
	defer planner.Close()
	for first := 0; first < len(stream); first += s.Superbatch {
		end := min(first+s.Superbatch, len(stream))
		ahead := end
		if s.Lookahead {
			ahead = min(end+s.Superbatch, len(stream))
		}
		start := processorTime()
		current, next := plan.InMemory(stream[first:end]), plan.InMemory(stream[end:ahead])
		p, err := planner.Plan(context.Background(), int64(first), current, next)
		if err != nil {
			return spent, err
		}
		spent += processorTime() - start
		for i := range p.Len() {
			var step plan.Step
			if err := p.Step(context.Background(), i, &step); err != nil {
				return spent, err
			}
			each(first+i, &step.Step)
		}
		p.Release()
	}
	return spent, nil
}

// prepare makes the hotness metrics. Each is copied to the heap: here memory is
// no object.
func (b *bench) prepare() error {
	b.metrics, b.making = map[string]cache.Hotness{}, map[string]time.Duration{}
	ctx, budget, n := context.Background(), mem.NewBudget(0), b.graph.NumNodes()
	counted := func(t trace) func() (*cache.Vector, error) {
		return func() (*cache.Vector, error) {
			c, err := cache.NewCounter(budget, n)
			if err != nil {
				return nil, err
			}
			for _, rows := range t {
				c.Add(rows)
			}
			return c.Hotness(1), nil
		}
	}
	for name, make := range map[string]func() (*cache.Vector, error){
		"degree": func() (*cache.Vector, error) {
			return cache.Counted(budget, n, func(counts []uint32) error {
				return b.graph.Scan(ctx, func(_ int64, sources []int64) error {
					cache.Count(counts, sources)
					return nil
				})
			})
		},
		"in-degree": func() (*cache.Vector, error) {
			return cache.Counted(budget, n, func(counts []uint32) error {
				indptr := b.graph.Indptr()
				for v := range counts {
					counts[v] = uint32(indptr.Degree(int64(v)))
				}
				return nil
			})
		},
		"random": func() (*cache.Vector, error) { return cache.Random(budget, n, 1) },
		"expected": func() (*cache.Vector, error) {
			all := cache.Relation{Edges: b.graph, NumSources: n, Fanouts: b.sampling.Fanouts}
			return cache.Expected(ctx, budget, n, []cache.Relation{all}, b.sampling.Sampling)
		},
		"presc":  counted(b.presc),
		"oracle": counted(b.epochs[1]),
	} {
		start := processorTime()
		v, err := make()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.making[name] = processorTime() - start
		b.metrics[name] = slices.Clone(v.Hotness)
		v.Close()
	}
	start := processorTime()
	ties := slices.Clone(b.metrics["presc"])
	ties.BreakTies(b.metrics["expected"], 1)
	b.metrics["presc, ties by expected"] = ties
	b.making["presc, ties by expected"] = processorTime() - start + b.making["presc"] + b.making["expected"]
	return nil
}

// processorTime returns the processor time of this thread, so that other work on
// the machine counts little. Its caller has locked the thread.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func init() { runtime.LockOSThread() }
