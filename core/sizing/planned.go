package sizing

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/scratch"
)

// How a planned loader divides the memory that topology and batches leave (Ginex, section 3.5, sizes the superbatch by
// the room for its runtime files). Of the room for features
//
//   - traces and plans get the need of superbatches of an epoch, up to half, as the length of a plan matters more than
//     the number of rows that it can keep. Measured on 2 GB of features with a tenth of that to divide, epochs of 16
//     batches: with 32 MB for traces 355k rows are cached and an epoch reads 1050 MB, with 64 MB 304k rows and 770 MB,
//     with 110 MB 230k rows and 155 MB, and nothing less with 140 MB. If an epoch is far from fitting, they get a
//     quarter;
//   - an eighth is for packs in memory, a sixteenth if a scratch file takes the others, which may be as large as the
//     features;
//   - the planner's tables take their need, and words for the rows of a plan are among traces and plans;
//   - the rest is for cached rows.
const (
	mostTraces, someTraces = 2, 4 // shares, as divisors
	packShare              = 8
	filePacks              = 80 * MinSlot // the least with a scratch file: a quarter is for its buffers

	// reorderBatches is the number of batches in a block that may change places, where Divide chooses. Arbitrary:
	// greedy ordering compares all pairs.
	reorderBatches = 64

	// unlimitedTraces and unlimitedPacks bound the traces and packs of a loader without a limit.
	unlimitedTraces, unlimitedPacks = 1 << 30, 1 << 30

	// mostBuffer is the largest buffer of the scratch file: see ssd.Engine.TempChunk.
	mostBuffer = 256 << 10

	// worthBatches is the least number of batches in a superbatch for which planning is worth its memory. With fewer,
	// measured on ogbn-arxiv with as much memory as its features, planning took longer than it saved.
	worthBatches = 8
)

// reserve decides whether batches are planned, and reserves the least memory for that before anything else.
func (z *division) reserve(s *Split) error {
	ask := &z.ask
	s.Cache = "none"
	hasRows := slices.ContainsFunc(z.graph.Tensors, func(t Tensor) bool { return !t.ByEdge })
	if !z.graph.OnDisk || !hasRows {
		return nil
	}
	if cache.KindOf(ask.Cache) == cache.Online {
		reserveOrder(z, s)
		return nil
	}
	if ask.Cache != "auto" && ask.Cache != "belady" {
		return nil
	}
	if ask.Unplannable != "" {
		s.CacheWhy = ask.Unplannable
		return nil
	}
	least := z.traceBytes(max(1, ask.Superbatch, ask.Reorder))
	if ask.TraceMemory != Auto && ask.TraceMemory < least {
		return short(mem.Trace, least, ask.TraceMemory, fmt.Sprintf(
			"trace_memory=%s is too small: superbatches of %d batches need at least %s; give more, or plan fewer batches",
			given(ask.TraceMemory), max(1, ask.Superbatch, ask.Reorder), atLeast(least)))
	}
	s.Traces, s.Packs = max(least, ask.TraceMemory), max(0, ask.BufferMemory)
	s.PlanRows = z.graph.planRows()
	s.reserved = s.Traces + s.Packs + plan.StateBytes(s.PlanRows, 0) + ask.History.Ahead
	s.Cache = "belady"
	return nil
}

// planRows returns the number of rows up to the last node type that has any: they are numbered over all types.
func (g *Graph) planRows() (n int64) {
	end := 0
	for i := range g.Tensors {
		if t := &g.Tensors[i]; t.Used && !t.ByEdge {
			end = max(end, t.Type+1)
		}
	}
	for _, nodes := range g.Types[:end] {
		n += nodes
	}
	return n
}

// notBetter is why batches are not planned where they could be.
const notBetter = "a fixed cache is predicted to move fewer bytes"

// worthwhile reports whether a division that plans batches by choice plans enough of them at a time.
func (z *division) worthwhile(s *Split) bool {
	return z.ask.Cache != "auto" || s.Cache != "belady" || s.window(z) >= z.ask.worthBatches()
}

// explainShortPlans says of a division with rows that training changes that their plans are too short to be worth it.
// There is no other way to cache such rows: most of them go back to the file after each batch, page by page.
func explainShortPlans(z *division, s *Split) {
	trained := slices.ContainsFunc(z.graph.Tensors, func(t Tensor) bool { return t.Trained })
	if n := z.ask.worthBatches(); trained && s.EpochBytes > 0 && s.window(z) < n {
		s.CacheWhy = fmt.Sprintf(
			"there is no room to plan %d batches at a time, and most rows of tables go back to their files after each", n)
	}
}

// worthBatches is the least number of batches of a window that is worth planning: an epoch, or a superbatch that the
// caller sizes, may have fewer.
func (r *Request) worthBatches() int64 {
	n := min(worthBatches, max(1, r.EpochBatches))
	if r.Superbatch != Auto {
		n = min(n, r.Superbatch)
	}
	return n
}

// unplanned takes back what reserve decided.
func (s *Split) unplanned(why string) {
	s.Cache, s.CacheWhy = "none", why
	s.Traces, s.Packs, s.Together, s.Reorder, s.reserved = 0, 0, 0, 0, 0
}

// plan sizes a planned loader. It gives more of the room for the features, and of shared, the rest beside the caller's
// own sizes, to traces and packs.
func (z *division) plan(s *Split, room, shared int64) {
	ask := &z.ask
	pot := &room // the source of their memory
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
	s.Superbatch = max(reorderBatches, 2*ask.EpochBatches)
	ideal := z.traceBytes(ask.EpochBatches)
	if ideal > total { // falls from one share to the other without a step
		ideal = max(total/someTraces, int64(float64(total)/float64(ideal)*float64(total/mostTraces)))
	}
	ideal = min(ideal, total/mostTraces)
	if ask.Superbatch != Auto {
		s.Superbatch = ask.Superbatch
	}
	if ask.Memory == 0 { // batches were not measured
		ideal = unlimitedTraces
	}
	more(&s.Traces, ask.TraceMemory, min(ideal, unlimitedTraces))
	packs := total / packShare
	switch {
	case !ask.packs():
		packs = min(packs, filePacks) // for traces in the file
	case ask.Scratch != 0:
		packs = min(packs, max(packs/2, filePacks)) // what finds no room goes to the file
	}
	more(&s.Packs, ask.BufferMemory, min(packs, unlimitedPacks))
	s.TracesHeld = ask.tracesHeld(s)
	z.store(s, total, &room, pot)
	s.CacheRows = z.plannedRows(s, room, s.accesses(z))
	switch s.Reorder = ask.Reorder; {
	case s.Reorder == Auto && s.Stored:
		s.Reorder = 0 // blocks are ordered in memory, and an order gains less than longer windows
	case s.Reorder == Auto:
		s.Reorder = max(1, min(reorderBatches, s.Superbatch, s.Traces/z.traceBytes(1)))
	}
	if s.Stored {
		s.Records = s.records(z, s.Superbatch)
		s.WindowRows = z.costs.windowRows(s.Superbatch)
	}
	s.Scratch = z.ask.scratch(&z.graph, s)
	m := z.movement(s)
	s.EpochBytes = int64(m.planned(s.window(z), s.CacheRows).bytes)
}

// scratch is the size of the scratch file.
func (r *Request) scratch(g *Graph, s *Split) int64 {
	if r.Scratch != Auto {
		return r.Scratch
	}
	packs := g.packsOfUse(s)
	if s.Stored && !r.packs() {
		packs = 0
	}
	return min(packs+s.Records, r.mostScratch())
}

// packs reports whether rows may wait in packs.
func (r *Request) packs() bool { return r.Transfer != "random" }

// packsOfUse returns the size of the packs in the scratch file, and of traces if plans are in memory, beyond which more
// is of no use.
func (g *Graph) packsOfUse(s *Split) (total int64) {
	for i := range g.Tensors {
		if t := &g.Tensors[i]; !t.ByEdge && !s.Resident[i] {
			total += t.bytes()
		}
	}
	if s.Stored {
		total *= storedPacks
	}
	return total
}

// sparedShare is the part of the free space, as a divisor, that a scratch file whose size nobody gives leaves to
// others. Arbitrary: an epoch of papers100M filled a disk of 48 free GB, and what else ran there failed.
const sparedShare = 8

// mostScratch is the room for a scratch file.
func (r *Request) mostScratch() int64 {
	switch {
	case r.Scratch != Auto:
		return r.Scratch
	case r.Free > 0:
		return r.Free - r.Free/sparedShare
	}
	return unlimited
}

// MostScratch returns the largest useful size of the scratch file of a division.
func MostScratch(g *Graph, s *Split) (total int64) {
	for i := range g.Tensors {
		if t := &g.Tensors[i]; !t.ByEdge {
			total += storedPacks * t.bytes()
		}
	}
	return total + s.Records
}

const (
	// storedPacks is the largest size of packs in a scratch file with plans, by the size of the features: where windows
	// are as long as an epoch, a cold row waits in the packs of two batches, and some already for the next window. With
	// half as much, windows of a graph in the shape of papers100M were half as long, and scans moved twice as much.
	storedPacks = 4

	// heldShare is the part, as a divisor, of the room that plans in the scratch file may take at most for records that
	// have not gone there.
	heldShare = 16

	// mostHeld bounds the memory of records and traces; further ones go to the file. leastBuffers is the number of the
	// scratch file's buffers that are not for packs: 24 that are written or wait for that, and those of records that are
	// being put. All arbitrary.
	leastStored  = 16 // batches of a window
	mostHeld     = 64 << 20
	leastBuffers = 40

	// moreBuffers is the part of them, a divisor, that is added for rows that a batch sets aside at once.
	moreBuffers = 8

	// nearWindows is the share of a window, as a divisor, by which the next one that is compared is longer, where that is
	// more than a batch. Arbitrary.
	nearWindows = 64

	// loadedBytes is the size of a batch's plan and trace in memory per row: 16, and an edge or two of 4 to 8. They are
	// loaded ahead for as many batches as are in flight.
	loadedBytes = 28
)

// store moves plans to the scratch file if that allows longer windows: they then take memory for a few batches, and
// little for each of a window (see plan.StoredBytes). Of total, the part beyond traces and packs comes from pot, which
// may be room, the memory of rows. Of all windows that fit, it takes the best (see bestWindow).
func (z *division) store(s *Split, total int64, room, pot *int64) {
	ask, nodes := &z.ask, max(1, z.costs.Nodes)
	if ask.Scratch == 0 || ask.Memory == 0 || ask.Reorder > 0 {
		return
	}
	mostTraces, mostPacks := total+s.Traces, total+s.Packs
	if ask.TraceMemory != Auto {
		mostTraces = ask.TraceMemory
	}
	if ask.BufferMemory != Auto {
		mostPacks = ask.BufferMemory
	}
	traces := func(n int64) int64 {
		accesses := 2 * z.costs.windowRows(n)
		bytes := plan.StoredBytes(accesses, nodes) + plan.KnownBytes(s.PlanRows, accesses, 0) +
			(2*inFlight(s.Working)+1)*nodes*loadedBytes
		if ask.History.Ahead > 0 {
			bytes += heldSuperbatches * n * (nodes/8 + 64) // which rows are planned
		}
		return bytes
	}
	buffer := int64(min(z.graph.slot(), mostBuffer))
	most, filled := storedPacks*z.graph.packsOfUse(s), 2*int64(len(s.Columns)) // a pack for each column, in two windows
	if !ask.packs() {
		most, filled = 0, 0
	}
	packs := func(n int64) int64 {
		file := min(most+s.records(z, n), z.ask.mostScratch())
		return ((n*filled+leastBuffers)*buffer + scratch.TableBytes(file, int(buffer))) * (moreBuffers + 1) / moreBuffers
	}
	more := func(n int64) int64 { return traces(n) - s.Traces + packs(n) - s.Packs }
	fits := func(n int64) bool {
		return traces(n) <= mostTraces && packs(n) <= mostPacks && more(n) <= *pot &&
			s.records(z, n) <= z.ask.mostScratch()/2 // the other half is for packs
	}
	n := min(max(ask.EpochBatches, leastStored), plan.MaxAccesses/(2*nodes))
	if ask.Superbatch != Auto {
		n = min(n, ask.Superbatch)
	}
	n = int64(sort.Search(int(max(n, 0)), func(i int) bool { return !fits(int64(i) + 1) }))
	held := func(n int64) int64 { // for records and traces that stay in memory
		return min(mostHeld, mostTraces-traces(n), *pot-more(n), total/heldShare)
	}
	left := func(n int64) int64 { // for rows, with a window of n batches
		if pot == room {
			return *room - more(n) - held(n)
		}
		return *room
	}
	if n < worthBatches {
		return
	}
	stored := *s
	stored.Stored = true
	if ask.Superbatch == Auto {
		n, stored.beyond = z.bestWindow(&stored, n, left)
	}
	// Windows in memory as long as these are better, since nothing but packs goes to the file then.
	inMemory := z.movement(s).planned(s.window(z), z.plannedRows(s, *room, s.accesses(z)))
	inFile := z.movement(&stored).planned(n, z.plannedRows(s, left(n), 2*z.costs.windowRows(n)))
	if inFile.bytes-stored.beyond > inMemory.bytes {
		return
	}
	s.Stored, s.Superbatch, s.Buffers, s.TracesHeld, s.beyond = true, n, packs(n), held(n), stored.beyond
	*pot -= more(n) + s.TracesHeld // the memory that was given for windows in memory comes back
	s.Traces, s.Packs = traces(n)+s.TracesHeld, packs(n)
}

// bestWindow returns the longest window, of worthBatches up to most batches, that moves hardly more bytes than the best
// and costs hardly more than any such window, where each leaves room for rows. It returns the bytes beyond the best as
// well.
func (z *division) bestWindow(s *Split, most int64, room func(n int64) int64) (n int64, beyond float64) {
	m, fewest := z.movement(s), math.Inf(1)
	var windows []int64
	var all []moved
	for n := int64(worthBatches); ; n = min(most, n+max(1, n/nearWindows)) {
		of := m.planned(n, z.plannedRows(s, room(n), 2*z.costs.windowRows(n)))
		windows, all, fewest = append(windows, n), append(all, of), min(fewest, of.bytes)
		if n == most {
			break
		}
	}
	near := nearBest(all, fewest)
	at := len(windows) - 1
	for !near(all[at]) {
		at--
	}
	return windows[at], all[at].bytes - fewest
}

// PackFile returns the part of the scratch file that plans use for packs: the rest is for traces.
func (s *Split) PackFile() int64 {
	if s.Stored {
		return max(0, s.Scratch-s.Records)
	}
	return s.Scratch * 3 / 4
}

// Within returns the batches of a window and the part of the scratch file for packs, where the file has room for this
// many bytes: as they were divided, or fewer where the disk has less room by now.
func (s *Split) Within(scratch int64) (superbatch, packFile int64) {
	if !s.Stored || scratch >= s.Scratch {
		return s.Superbatch, s.PackFile()
	}
	each := s.RecordBytes()
	n := min(max(scratch/2/max(each, 1), worthBatches), s.Superbatch)
	return n, max(0, scratch-n*each)
}

// RecordBytes returns the room in the scratch file for a batch of a window: its traces and plans, of all windows that
// are held at a time.
func (s *Split) RecordBytes() int64 { return s.Records / max(s.Superbatch, 1) }

// plannedRows returns the largest capacity for room: rows, records of slots, and the planner's tables, with words for
// cached rows beside the words for a number of accesses.
func (z *division) plannedRows(s *Split, room, accesses int64) int64 {
	nodes, most := s.PlanRows, min(s.cacheable(&z.graph), math.MaxInt32)
	words := plan.KnownBytes(nodes, accesses, 0)
	return int64(sort.Search(int(most), func(c int) bool {
		capacity := int64(c) + 1
		tables := plan.StateBytes(nodes, capacity) - plan.StateBytes(nodes, 0) + // the rest is reserved
			plan.KnownBytes(nodes, accesses, capacity) - words
		return cache.RowsBytes(capacity, s.Columns)+capacity*int64(z.costs.PlannedSlot)+tables > room
	}))
}
