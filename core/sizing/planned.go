package sizing

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/plan"
)

// How a planned loader divides what topology and batches leave (Ginex, section 3.5, sizes the superbatch by the room
// for its runtime files). Of the room for features
//
//   - traces and plans get what superbatches of an epoch need, where that is at most half, for how far a plan looks
//     ahead decides more than how many rows it can keep. Measured on 2 GB of features with a tenth of that to divide,
//     epochs of 16 batches: with 32 MB for traces 355k rows are cached and an epoch reads 1050 MB, with 64 MB 304k rows
//     and 770 MB, with 110 MB 230k rows and 155 MB, and nothing less with 140 MB. Where an epoch is far from fitting
//     they get a quarter;
//   - an eighth is for packs in memory; a scratch file may take as much as the features;
//   - the planner's tables take what they need;
//   - the rest is for cached rows.
const (
	mostTraces, someTraces = 2, 4 // shares, as divisors
	packShare              = 8

	// mostBatches is how far ahead a plan looks at most. Arbitrary: ids of the rows in a plan are numbered with 30
	// bits.
	mostBatches = 1024

	// reorderBatches is how many batches change places among themselves when Divide chooses. Arbitrary: greedy ordering
	// compares all pairs.
	reorderBatches = 64

	// unlimitedTraces and unlimitedPacks bound what a loader without a limit takes.
	unlimitedTraces, unlimitedPacks = 1 << 30, 1 << 30

	// worthBatches is how many batches a superbatch must have at least for planning to be worth its memory, beside a
	// cache of the rows of one. With fewer, measured on ogbn-arxiv with as much memory as its features, planning took
	// longer than it saved.
	worthBatches = 8
)

// heldSuperbatches is how many superbatches are in memory: executed, planned, and sampled ahead.
const heldSuperbatches = 3

// reserve decides whether batches are planned, and how much that takes at least, which is set aside before anything
// else is given room.
func (z *division) reserve(s *Split) error {
	ask := &z.ask
	s.Cache = "none"
	hasRows := slices.ContainsFunc(z.graph.Tensors, func(t Tensor) bool { return !t.ByEdge })
	if !z.graph.OnDisk || ask.Cache != "auto" && ask.Cache != "belady" || !hasRows {
		return nil
	}
	if ask.Unplannable != "" {
		s.CacheWhy = ask.Unplannable
		return nil
	}
	least := z.traceBytes(max(1, ask.Superbatch, ask.Reorder))
	if ask.TraceMemory != Auto && ask.TraceMemory < least {
		return fmt.Errorf("these superbatches take a trace_memory of at least %d bytes, or make them smaller: %w", least,
			&mem.BudgetError{Purpose: mem.Trace, Need: least, Free: ask.TraceMemory, Limit: ask.TraceMemory})
	}
	s.Traces, s.Packs = max(least, ask.TraceMemory), max(0, ask.BufferMemory)
	s.reserved = s.Traces + s.Packs + plan.StateBytes(z.graph.Nodes, 0)
	s.Cache = "belady"
	return nil
}

// worthwhile is what a planned loader takes before it is better than an unplanned one.
func (z *division) worthwhile(s *Split) int64 {
	rows := int64(0)
	for _, t := range z.graph.Tensors {
		if !t.ByEdge && t.Width > smallRow {
			rows += z.costs.NodesOfType[t.Type] * int64(t.Width)
		}
	}
	return max(s.reserved, z.traceBytes(worthBatches)+plan.StateBytes(z.graph.Nodes, 0)+rows)
}

// unplanned takes back what reserve decided.
func (s *Split) unplanned(why string) {
	s.Cache, s.CacheWhy = "none", why
	s.Traces, s.Packs, s.reserved = 0, 0, 0
}

// plan sizes a planned loader. Of room for the features and of shared, what the caller's own sizes leave beside them,
// more is given to traces and packs.
func (z *division) plan(s *Split, room, shared int64) {
	ask := &z.ask
	pot := &room // what they are taken from
	if ask.FeatureCache != Auto {
		pot = &shared
	}
	total := *pot
	more := func(part *int64, fixed, want int64) {
		if fixed == Auto && want > *part {
			add := min(want-*part, max(0, *pot))
			*part += add
			*pot -= add
		}
	}
	s.Superbatch = min(mostBatches, max(reorderBatches, 2*ask.EpochBatches))
	ideal := z.traceBytes(min(mostBatches, ask.EpochBatches))
	if ideal > total { // falls from one share to the other without a step
		ideal = max(total/someTraces, int64(float64(total)/float64(ideal)*float64(total/mostTraces)))
	}
	ideal = min(ideal, total/mostTraces)
	if ask.Superbatch != Auto {
		s.Superbatch = ask.Superbatch
	}
	if ask.Memory == 0 { // batches have not been measured
		ideal = unlimitedTraces
	}
	more(&s.Traces, ask.TraceMemory, min(ideal, unlimitedTraces))
	more(&s.Packs, ask.BufferMemory, min(total/packShare, unlimitedPacks))
	s.CacheRows = z.plannedRows(s, room)
	s.TracesHeld = s.Traces / z.tracesShare()
	if s.Reorder = ask.Reorder; s.Reorder == Auto {
		s.Reorder = max(1, min(reorderBatches, s.Superbatch, s.Traces/z.traceBytes(1)))
	}
	if s.Scratch = ask.Scratch; s.Scratch == Auto {
		s.Scratch = 0
		for i := range z.graph.Tensors {
			if t := &z.graph.Tensors[i]; !t.ByEdge && !s.Resident[i] {
				s.Scratch += t.bytes()
			}
		}
	}
}

// PlannedBytes is what a batch of this many rows adds to the memory of plans: a third of what superbatches of such
// batches take, of which one is executed, one planned and one ahead. With every row: its id until it is planned, the
// planner's own tables for the last two, and what is left of the plan being executed.
func PlannedBytes(rows int64) int64 {
	const ids, executed = 4, 20
	return (plan.SuperbatchBytes(2*rows) - plan.SuperbatchBytes(0) + (2*ids+executed)*rows) / heldSuperbatches
}

// SuperbatchRoom is what the batches of one superbatch may add to the memory of plans, see PlannedBytes.
func (s *Split) SuperbatchRoom() int64 {
	return (s.Traces - s.TracesHeld - plan.SuperbatchBytes(0)) / heldSuperbatches
}

// traceBytes is what superbatches of n batches take, those that are sampled and executed beside the one that is planned
// included.
func (z *division) traceBytes(n int64) int64 {
	n = min(n, 1<<32) // far above any memory, far from overflow
	plans := plan.SuperbatchBytes(0) + heldSuperbatches*n*PlannedBytes(max(1, z.costs.Nodes))
	return plans + plans/(z.tracesShare()-1)
}

// tracesShare is the share, as a divisor, of the memory for traces and plans that traces have: less where they can go
// to the scratch file, which costs a twentieth of what a batch reads.
func (z *division) tracesShare() int64 {
	if z.ask.Scratch != 0 {
		return 4
	}
	return 2
}

// plannedRows is the largest capacity that room allows: rows, what is kept of each slot, and the planner's tables.
func (z *division) plannedRows(s *Split, room int64) int64 {
	nodes, most := z.graph.Nodes, min(z.cacheable(s), math.MaxInt32)
	return int64(sort.Search(int(most), func(c int) bool {
		capacity := int64(c) + 1
		tables := plan.StateBytes(nodes, capacity) - plan.StateBytes(nodes, 0) // the rest is reserved
		return cache.RowsBytes(capacity, s.Columns)+capacity*int64(z.costs.PlannedSlot)+tables > room
	}))
}
