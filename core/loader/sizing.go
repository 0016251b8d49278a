package loader

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/mem"
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
	// still, the gate waits until it can have the room of the others.
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

// demand is the most that one of the measured batches needed.
type demand struct{ nodes, edges, hopEdges int64 }

// expected is the demand that batches are sized for: the measured one with a
// margin, as far as there are nodes for it.
func (z *sizer) expected() demand {
	return demand{
		nodes:    min(z.demand.nodes*margin/8, z.parts.numNodes+z.options.BatchSize), // seeds may repeat
		edges:    z.demand.edges * margin / 8,
		hopEdges: z.demand.hopEdges * margin / 8,
	}
}

func (d demand) sampling() sample.Demand { return sample.Demand{Nodes: d.nodes, Edges: d.edges} }

// working is a way to work: what the parts other than caches are sized for.
type working struct {
	workers, prefetch int
	stamp             bool
	depth             int
}

// split is the outcome: a way to work, and what is held in memory.
type split struct {
	working
	slot      int
	neighbors bool   // adjacency in memory
	edgeIDs   bool   // edge numbers in memory
	resident  []bool // by tensor: held whole
	cacheRows int64  // rows cached of each node tensor that is not
	widths    []int  // row widths of those
	batches   int64  // bytes that batches may have, in flight and at the consumer
	pool      int64  // bytes of buffers that the allocator may keep for reuse
	smallest  int64  // the smallest budget that works
}

// sizer knows what each part costs.
type sizer struct {
	options   Options
	parts     parts
	sampler   *sample.Sampler // any of this graph: for what its workers cost
	demand    demand
	fixed     int64 // indptr and seeds; for a Graph its index
	order     int64 // a permutation of the seeds
	checks    int64 // checksums of the pages that may be read one by one
	loading   int64 // what loading an array takes for a while, at most
	neighbors int64 // bytes of adjacency held in memory
	edgeIDs   int64 // bytes of edge numbers held in memory
}

// batchBytes is what the tensors of a batch take.
func (p *parts) batchBytes(nodes, edges, targets, seeds int64) int64 {
	total := nodes*8 + edges*16 + edges*8 + (targets+1)*8 + seeds*8
	if p.transposed {
		total += transposedBytes(nodes, edges)
	}
	for _, t := range p.tensors {
		if t.byEdge {
			total += edges * int64(t.width)
		} else {
			total += nodes * int64(t.width)
		}
	}
	return total
}

// batchBytes is what the tensors of a batch of this size take at most.
func (z *sizer) batchBytes(d demand) int64 {
	return z.parts.batchBytes(d.nodes, d.edges, d.nodes, z.options.BatchSize)
}

// cost is the working set of a way to work, without caches.
func (z *sizer) cost(w working) int64 {
	d := z.expected()
	inFlight := int64(max(w.prefetch, 1))
	running := z.order + (inFlight+1)*z.batchBytes(d) + int64(w.workers)*z.sampler.WorkerBytes(d.sampling(), w.stamp)
	if z.parts.store == nil {
		return z.fixed + running
	}
	running += inFlight * lookupBytes(max(d.nodes, d.hopEdges))
	// What is loaded whole is loaded before anything runs.
	return z.fixed + z.checks + int64(w.depth*z.slot()) + max(running, z.loading)
}

// slot is the size of one buffer of the read engine: it takes the pages of the
// largest row.
func (z *sizer) slot() int {
	slot := minSlot
	for _, t := range z.parts.tensors {
		if t.onDisk != nil {
			slot = max(slot, int(t.onDisk.Layout.SpanBytes()))
		}
	}
	return slot
}

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
	s := &split{slot: z.slot(), resident: make([]bool, len(z.parts.tensors))}
	rest := int64(unlimited)
	s.pool = maxPool
	if z.options.Memory == 0 {
		s.working = z.generous()
	} else if err := z.choose(s); err != nil {
		return nil, err
	} else {
		d := z.expected()
		s.batches = int64(max(s.prefetch, 1)+1) * z.batchBytes(d)
		rest = z.options.Memory - z.cost(s.working) - z.explicit()
		s.pool = min(maxPool, z.options.Memory/poolShare, rest)
		rest -= s.pool
	}
	rest = z.holdTopology(s, rest)
	z.holdFeatures(s, rest)
	return s, nil
}

// unlimited stands for the room in a budget without a limit: far from overflow.
const unlimited = 1 << 60

// explicit is what the caller has reserved for caches by name.
func (z *sizer) explicit() int64 {
	return max(z.options.FeatureCache, 0) + max(z.options.NeighborCache, 0)
}

// choose picks the most generous way to work that leaves half of the budget to
// the caches, or else any that fits.
func (z *sizer) choose(s *split) error {
	ladder := z.ladder()
	last := slices.MinFunc(ladder, func(a, b working) int { return cmp.Compare(z.cost(a), z.cost(b)) })
	limit := z.options.Memory
	if s.smallest = z.cost(last) + z.explicit(); limit < s.smallest {
		return fmt.Errorf("loader: the smallest memory that works with these options is %d bytes: %w",
			s.smallest, &mem.BudgetError{Purpose: mem.Batch, Need: s.smallest, Free: limit, Limit: limit})
	}
	s.working = last
	for _, share := range []int64{2, 1} {
		i := slices.IndexFunc(ladder, func(w working) bool { return z.cost(w) <= (limit-z.explicit())/share })
		if i >= 0 {
			s.working = ladder[i]
			break
		}
	}
	return nil
}

// holdTopology decides what of the topology stays in memory and returns what is
// left of the rest: neighbours first, for every drawn edge needs one.
func (z *sizer) holdTopology(s *split, rest int64) int64 {
	room := z.options.NeighborCache
	if room == Auto {
		room, rest = rest, 0
	}
	if z.neighbors <= room {
		s.neighbors = true
		room -= z.neighbors
		if z.edgeIDs <= room {
			s.edgeIDs = true
			room -= z.edgeIDs
		}
	}
	return rest + room
}

// holdFeatures decides which tensors are held whole and how many rows of the
// others are cached.
func (z *sizer) holdFeatures(s *split, rest int64) {
	room := z.options.FeatureCache
	if room == Auto {
		room = rest
	}
	if z.parts.store == nil || z.options.Cache == "none" {
		return
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
	for i, t := range z.parts.tensors { // in the order in which openTables numbers them
		if !t.byEdge && !s.resident[i] {
			s.widths = append(s.widths, t.width)
		}
	}
	// While the cache is filled, the ranked ids take eight bytes a row more.
	s.cacheRows = cache.Capacity(room, z.parts.numNodes, append([]int{8}, s.widths...))
	if len(s.widths) == 0 {
		s.cacheRows = 0
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
		if z.parts.tensors[i].byEdge == edges {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(z.parts.tensors[a].width, z.parts.tensors[b].width) })
	return order
}
