package loader

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// The split of the memory budget. Every rule about who gets how much is in this
// file (Ginex, section 3.5, gives the order: indptr and the working set are
// given, neighbours come before features, features take the rest).
//
// The working set is measured, not bounded: the worst case of a batch is the
// product of the fanouts, which no real batch comes near.

const (
	// margin is what the measured batches are multiplied with, in eighths.
	// Batches of one configuration differ by a few per cent; where one is larger
	// still, the gate waits until it can have the room of the others and all that
	// the budget has left.
	margin = 10 // 1.25

	// modest is the share of the budget, as a divisor, that id maps of the fast
	// kind or deep read queues may take before the frugal kind is chosen.
	// Arbitrary.
	modest = 8

	// smallRow is the row width in bytes up to which a tensor (labels, masks) is
	// held whole rather than row by row: reading eight bytes costs a page.
	smallRow = 64

	// maxPool and poolShare bound what the allocator may keep of the buffers that
	// came back: a batch or two of common sizes, and a sixteenth of the budget.
	// Arbitrary.
	maxPool   = 512 << 20
	poolShare = 16

	fullDepth, minDepth = 128, 8
	minSlot             = 64 << 10
)

// split is the outcome: a way to work, and what is held in memory.
type split struct {
	working
	slot      int
	neighbors bool // adjacency in memory
	edgeIDs   bool // edge numbers in memory
	weights   bool // weights of edges in memory

	neighborLists int64 // bytes for single lists of what of the two is on disk; 0: none

	resident  []bool // by tensor: held whole
	cache     string // what decides which rows of the others are cached, and
	cacheWhy  string // why that, where the loader chose
	cacheRows int64  // rows cached of each node tensor that is not held whole

	// Of planned batches.
	superbatch int64 // batches planned together
	reorder    int64 // batches that may change places; 0: none
	traces     int64 // bytes for traces and plans
	packs      int64 // bytes for packs in memory
	tracesHeld int64 // bytes of traces for traces in memory, the rest is for plans
	scratch    int64 // bytes of the scratch file
	reserved   int64 // what planning takes at least, before shares are given out

	history   int64 // bytes of the history's buffer
	outermost bool  // the cached rows are in that

	batches  int64 // bytes that batches may have, in flight and at the consumer
	pool     int64 // bytes of buffers that the allocator may keep for reuse
	smallest int64 // the smallest budget that works
	shares         // for people
}

// shares are the bytes of the parts that are not fields of split.
type shares struct{ topology, neighborCache, held, featureCache, working int64 }

// generous is how the options ask to work.
func (z *sizer) generous() working {
	w := working{workers: z.options.Workers, prefetch: z.options.Prefetch, stamp: true, depth: fullDepth}
	if w.workers == 0 {
		w.workers = runtime.NumCPU()
	}
	return w
}

// ladder lists ways to work from the most generous to the smallest.
func (z *sizer) ladder() []working {
	w := z.generous()
	limit := z.options.Memory
	w.stamp = int64(w.workers)*sample.StampBytes(z.parts.numNodes) <= limit/modest
	for w.depth > minDepth && int64(w.depth*z.slot()) > limit/modest {
		w.depth /= 2
	}
	ladder := []working{w}
	for w.prefetch > 1 {
		w.prefetch /= 2
		ladder = append(ladder, w)
	}
	for w.workers > 1 {
		w.workers /= 2
		ladder = append(ladder, w)
	}
	w.depth = minDepth
	for _, w.stamp = range []bool{true, false} {
		ladder = append(ladder, w)
	}
	return ladder
}

// split divides the budget, or says which is the smallest that works.
func (z *sizer) split() (*split, error) {
	s := &split{slot: z.slot(), resident: make([]bool, len(z.parts.tensors)), history: z.buffer}
	if err := z.reserve(s); err != nil {
		return nil, err
	}
	rest := int64(unlimited)
	s.pool = maxPool
	if z.options.Memory == 0 {
		s.working = z.generous()
	} else if err := z.choose(s); err != nil {
		return nil, err
	} else {
		d := z.expected()
		s.batches = (int64(max(s.prefetch, 1)) + z.holds()) * z.batchBytes(d)
		rest = z.options.Memory - z.cost(s.working) - z.explicit() - s.reserved
		s.pool = min(maxPool, z.options.Memory/poolShare, rest)
		rest -= s.pool
	}
	rest = z.holdTopology(s, rest)
	z.holdFeatures(s, rest)
	z.sumUp(s)
	return s, nil
}

// unlimited stands for the room in a budget without a limit: far from overflow.
const unlimited = 1 << 60

// explicit is what the caller has reserved for caches by name, and the history.
func (z *sizer) explicit() int64 {
	return max(z.options.FeatureCache, 0) + max(z.options.NeighborCache, 0) + z.history
}

// choose picks the most generous way to work that leaves half of the budget to
// the caches, or else any that fits.
func (z *sizer) choose(s *split) error {
	ladder := z.ladder()
	last := slices.MinFunc(ladder, func(a, b working) int { return cmp.Compare(z.cost(a), z.cost(b)) })
	limit := z.options.Memory
	s.smallest = z.cost(last) + z.explicit()
	if short := s.smallest + z.worthwhile(s) - limit; short > 0 && z.options.Cache == "auto" && s.reserved > 0 {
		s.unplanned(fmt.Sprintf("planning is worth its memory with %d bytes more", short))
	}
	if s.smallest += s.reserved; limit < s.smallest {
		return fmt.Errorf("loader: the smallest memory that works with these options is %d bytes: %w",
			s.smallest, &mem.BudgetError{Purpose: mem.Batch, Need: s.smallest, Free: limit, Limit: limit})
	}
	s.working = last
	for _, share := range []int64{2, 1} {
		i := slices.IndexFunc(ladder, func(w working) bool { return z.cost(w) <= (limit-z.explicit()-s.reserved)/share })
		if i >= 0 {
			s.working = ladder[i]
			break
		}
	}
	return nil
}

// holdTopology decides what of the topology stays in memory and returns what is
// left of the rest. Whole arrays come first: sampling then waits for no disk. Where
// neighbours and edge numbers do not fit together, lists of both are cached.
//
// Memory given as a whole is divided between lists and rows by halves. Measured on
// a generated graph and a web graph, with 0.1 to 0.8 of the topology's bytes to
// divide, rows of 32 to 2048 bytes in a static cache and 11 us a request and 1 us
// a KiB: what a further megabyte of either saves falls fast and alike. Halves saved
// at least 0.9 of what the best of halves, lists alone and rows alone did in the
// cases summed up; neighbours first, as in Ginex, down to 0.4 of it. Everything is held from three
// quarters on: that saves up to a tenth less, but no sampling waits for the disk.
func (z *sizer) holdTopology(s *split, rest int64) int64 {
	room, lists := z.options.NeighborCache, z.options.NeighborCache
	if lists == Auto {
		spare := rest - z.wanted()
		room, lists = max(rest/4*3, spare), max(rest/2, spare)
		if lists < z.topology()/fewLists {
			lists = 0
		}
	}
	var held int64
	switch {
	case z.topology() <= room:
		s.neighbors, s.edgeIDs = true, true
		held = z.topology()
	case z.canChoose(s) && lists >= z.listTables+widestEdge:
		s.neighborLists = lists
		held = lists
		rest = max(0, rest-z.fetchScratch(s))
	case z.neighbors <= room:
		s.neighbors = true
		held = z.neighbors
	}
	if z.weights > 0 && s.neighbors && z.weights+z.userWeights <= room-held {
		s.weights = true
		held += z.weights
	}
	if z.options.NeighborCache == Auto {
		return max(0, rest-held)
	}
	return rest + room - held // what a size by name leaves over
}

// fewLists is the share of the topology's bytes, as a divisor, below which lists
// are not worth reading all neighbours at opening. Arbitrary; a twentieth of the
// bytes served 15 to 29 % of the edges drawn.
const fewLists = 256

// widestEdge is the most that an in-edge takes: a neighbour and its edge's number.
const widestEdge = 8 + 8

// canChoose says whether the lists to cache can be chosen: what that takes for a
// while is what is free as long as nothing runs.
func (z *sizer) canChoose(s *split) bool {
	choosing := z.listTables + choosingBytes(z.parts.numNodes, z.numLists)
	fits := z.options.Memory == 0 || z.fixed+z.checks+int64(s.depth*s.slot)+choosing <= z.options.Memory
	return fits && z.parts.store != nil && z.numLists > 0 && z.parts.numNodes <= cache.MaxRows
}

// holdFeatures decides which tensors are held whole and how many rows of the
// others are cached, by what.
func (z *sizer) holdFeatures(s *split, rest int64) {
	if z.parts.store == nil || z.options.Cache == "none" {
		return
	}
	room, shared := z.options.FeatureCache, rest
	if room == Auto {
		room, shared = rest, 0
	}
	order := z.byWidth(false)
	for _, i := range order {
		t := &z.parts.tensors[i]
		if t.width <= smallRow && t.bytes() <= room/2 {
			s.resident[i] = true
			room -= t.bytes()
		}
	}
	room = z.holdAll(s, order, room)
	room = z.holdAll(s, z.byWidth(true), room)
	room = z.holdTypes(s, room)
	widths := z.parts.columns(s.resident, func(int, int) {})
	numRows := z.parts.cacheable(s.resident)
	switch {
	case len(widths) == 0:
		s.unplanned("everything is held in memory")
	case s.cache == "belady":
		z.planned(s, room, shared, widths)
	case z.placesFeatures():
		s.cache, s.outermost = z.options.Cache, true
	default:
		if s.cache = z.options.Cache; s.cache == "auto" {
			s.cache = "degree" // the ranking that costs least
		}
		s.cacheRows = cache.Capacity(z.mechanism(), room-z.rankBytes(), numRows, append(widths, z.residentBytes()))
		if s.cacheRows == 0 && z.options.Cache == "auto" {
			s.cache = "none"
		}
	}
}

// sumUp fills in shares.
func (z *sizer) sumUp(s *split) {
	s.topology = z.fixed
	if z.options.Memory > 0 {
		s.shares.working = z.cost(s.working) - z.fixed
	}
	if s.neighbors {
		s.neighborCache += z.neighbors
	}
	if s.edgeIDs {
		s.neighborCache += z.edgeIDs
	}
	s.neighborCache += s.neighborLists
	if s.weights {
		s.neighborCache += z.weights
	}
	for i, t := range z.parts.tensors {
		if s.resident[i] {
			s.held += t.bytes()
		}
	}
	for _, width := range z.parts.columns(s.resident, func(int, int) {}) {
		s.featureCache += s.cacheRows * int64(width)
	}
	switch n := z.parts.numNodes; {
	case s.cache == "belady":
		s.featureCache += 4*s.cacheRows + plan.StateBytes(n, s.cacheRows)
	case s.cacheRows > 0:
		s.featureCache += cache.PolicyBytes(z.mechanism(), n, s.cacheRows)
	}
}

// holdAll holds all of these tensors when there is room for all.
func (z *sizer) holdAll(s *split, which []int, room int64) int64 {
	var need int64
	for _, i := range which {
		if !s.resident[i] {
			need += z.parts.tensors[i].bytes()
		}
	}
	if need > room {
		return room
	}
	for _, i := range which {
		s.resident[i] = true
	}
	return room - need
}

func (z *sizer) byWidth(edges bool) []int {
	var order []int
	for i := range z.parts.tensors {
		if t := &z.parts.tensors[i]; t.byEdge == edges && z.parts.reaches(t) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(z.parts.tensors[a].width, z.parts.tensors[b].width) })
	return order
}

// How a planned loader divides what topology and batches leave (Ginex, section
// 3.5, sizes the superbatch by the room for its runtime files). Of the room for
// features
//
//   - traces and plans get what superbatches of an epoch need, where that is at
//     most half, for how far a plan looks ahead decides more than how many rows it
//     can keep. Measured on 2 GB of features with a tenth of that to divide, epochs
//     of 16 batches: with 32 MB for traces 355k rows are cached and an epoch reads
//     1050 MB, with 64 MB 304k rows and 770 MB, with 110 MB 230k rows and 155 MB,
//     and nothing less with 140 MB. Where an epoch is far from fitting they get a
//     quarter;
//   - an eighth is for packs in memory; a scratch file may take as much as the
//     features;
//   - the planner's tables take what they need;
//   - the rest is for cached rows.
const (
	mostTraces, someTraces = 2, 4 // shares, as divisors
	packShare              = 8

	// mostBatches is how far ahead a plan looks at most. Arbitrary: ids of the rows
	// in a plan are numbered with 30 bits.
	mostBatches = 1024

	// reorderBatches is how many batches change places among themselves when the
	// loader chooses. Arbitrary: greedy ordering compares all pairs.
	reorderBatches = 64

	// unlimitedTraces and unlimitedPacks bound what a loader without a limit takes.
	unlimitedTraces, unlimitedPacks = 1 << 30, 1 << 30
)

// reserve decides whether batches are planned, and how much that takes at least,
// which is set aside before anything else is given room.
func (z *sizer) reserve(s *split) error {
	o := &z.options
	s.cache = "none"
	if z.parts.store == nil || o.Cache != "auto" && o.Cache != "belady" || !slices.ContainsFunc(z.parts.tensors, func(t tensor) bool { return !t.byEdge }) {
		return nil
	}
	if n := z.parts.numNodes; n > cache.MaxRows-1 {
		why := fmt.Errorf("%w: cache \"belady\" plans up to %d nodes, the graph has %d", ErrOption, int64(cache.MaxRows-1), n)
		if o.Cache == "belady" {
			return why
		}
		s.cacheWhy = why.Error()
		return nil
	}
	least := z.traceBytes(max(1, o.Superbatch, o.Reorder))
	if o.TraceMemory != Auto && o.TraceMemory < least {
		return fmt.Errorf("loader: these superbatches take a trace_memory of at least %d bytes, or make them smaller: %w", least,
			&mem.BudgetError{Purpose: mem.Trace, Need: least, Free: o.TraceMemory, Limit: o.TraceMemory})
	}
	s.traces, s.packs = max(least, o.TraceMemory), max(0, o.BufferMemory)
	s.reserved = s.traces + s.packs + plan.StateBytes(z.parts.numNodes, 0)
	s.cache = "belady"
	return nil
}

// worthBatches is how many batches a superbatch must have at least for planning to
// be worth its memory, beside a cache of the rows of one. With fewer, measured on
// ogbn-arxiv with as much memory as its features, planning took longer than it
// saved.
const worthBatches = 8

// worthwhile is what a planned loader takes before it is better than an unplanned one.
func (z *sizer) worthwhile(s *split) int64 {
	rows := int64(0)
	d := z.expected()
	for _, t := range z.parts.tensors {
		if !t.byEdge && t.width > smallRow {
			rows += z.parts.nodesOf(&d, &t) * int64(t.width)
		}
	}
	return max(s.reserved, z.traceBytes(worthBatches)+plan.StateBytes(z.parts.numNodes, 0)+rows)
}

// unplanned takes back what reserve decided.
func (s *split) unplanned(why string) {
	s.cache, s.cacheWhy = "none", why
	s.traces, s.packs, s.reserved = 0, 0, 0
}

// planned sizes a planned loader. Of room for the features and of what the
// caller's own sizes leave beside them, shared, more is given to traces and packs.
func (z *sizer) planned(s *split, room, shared int64, widths []int) {
	o := &z.options
	pot := &room // what they are taken from
	if o.FeatureCache != Auto {
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
	s.superbatch = min(mostBatches, max(reorderBatches, 2*z.numBatches()))
	ideal := z.traceBytes(min(mostBatches, z.numBatches()))
	if ideal > total { // falls from one share to the other without a step
		ideal = max(total/someTraces, int64(float64(total)/float64(ideal)*float64(total/mostTraces)))
	}
	ideal = min(ideal, total/mostTraces)
	if o.Superbatch != Auto {
		s.superbatch = o.Superbatch
	}
	if o.Memory == 0 { // batches have not been measured
		ideal = unlimitedTraces
	}
	more(&s.traces, o.TraceMemory, min(ideal, unlimitedTraces))
	more(&s.packs, o.BufferMemory, min(total/packShare, unlimitedPacks))
	s.cacheRows = plannedRows(room, z.parts.numNodes, z.parts.cacheable(s.resident), z.slotBytes(), widths)
	s.tracesHeld = s.traces / z.heldShare()
	if s.reorder = o.Reorder; s.reorder == Auto {
		s.reorder = max(1, min(reorderBatches, s.superbatch, s.traces/z.traceBytes(1)))
	}
	if o.Scratch == "" {
		return
	}
	if s.scratch = o.ScratchBytes; s.scratch == Auto {
		s.scratch = 0
		for i, t := range z.parts.tensors {
			if !t.byEdge && !s.resident[i] {
				s.scratch += t.bytes()
			}
		}
	}
}
