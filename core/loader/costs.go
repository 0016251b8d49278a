package loader

import (
	"math"
	"slices"
	"sort"

	"freshgo/core/cache"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// What each part of a loader costs; sizing.go divides the memory by it.

// demand is the most that one of the measured batches needed.
type demand struct {
	nodes, rows, edges, hopEdges int64
	nodesPerHop                  []int64
	edgesPerHop                  []int64
	rooms                        []int64 // edges of each relation
}

// expected is the demand that batches are sized for: the measured one with a
// margin, as far as there are nodes for it.
func (z *sizer) expected() demand {
	most := z.parts.numNodes + z.options.BatchSize // seeds may repeat
	if z.options.disjoint() {
		most = math.MaxInt64 // as may all nodes
	}
	return demand{
		nodes:       min(withMargin(z.demand.nodes), most),
		rows:        min(withMargin(z.demand.rows), most),
		edges:       withMargin(z.demand.edges),
		hopEdges:    withMargin(z.demand.hopEdges),
		nodesPerHop: allWithMargin(z.demand.nodesPerHop),
		edgesPerHop: allWithMargin(z.demand.edgesPerHop),
		rooms:       allWithMargin(z.demand.rooms),
	}
}

// withMargin rounds up, so that even one has a margin.
func withMargin(n int64) int64 { return (n*margin + 7) / 8 }

func allWithMargin(counts []int64) []int64 {
	more := make([]int64, len(counts))
	for i, n := range counts {
		more[i] = withMargin(n)
	}
	return more
}

func (d demand) sampling() sample.Demand { return sample.Demand{Nodes: d.nodes, Edges: d.edges} }

// working is a way to work: what the parts other than caches are sized for.
type working struct {
	workers, prefetch int
	stamp             bool
	depth             int
}

// sizer knows what each part costs.
type sizer struct {
	options     Options
	parts       parts
	sampler     sampler // any of this graph: for what its workers cost
	demand      demand
	fixed       int64 // indptr and seeds; for a Graph its index
	order       int64 // a permutation of the seeds
	checks      int64 // checksums of the pages that may be read one by one
	loading     int64 // what loading an array takes for a while, at most
	neighbors   int64 // bytes of adjacency held in memory
	edgeIDs     int64 // bytes of edge numbers held in memory
	numLists    int64 // lists that may be cached one by one
	listTables  int64 // bytes of their address tables
	weights     int64 // bytes of weights held in memory, of a store,
	userWeights int64 // and of those in the user's order, for a while
	held        int64 // bytes of weights, of a Graph
	buffer      int64 // of the history
	history     int64 // what it takes of the memory
	numSeeds    int64 // of an epoch
}

// batchBytes is what the tensors of a batch take, of whose nodes it brings so many rows.
func (p *parts) batchBytes(nodes, rows, edges, targets, seeds int64) int64 {
	total := nodes*8 + edges*16 + edges*8 + (targets+1)*8 + seeds*8 + p.links.ends(seeds)*8
	if p.transposed {
		total += transposedBytes(nodes, edges)
	}
	if p.held {
		total += nodes * 4
	}
	if p.weighted {
		total += edges * 4
	}
	if p.disjoint {
		total += nodes * 8
	}
	if p.timed {
		total += p.links.numTimes(seeds) * 8
	}
	for _, t := range p.tensors {
		if t.byEdge {
			total += edges * int64(t.width)
		} else {
			total += rows * int64(t.width)
		}
	}
	return total
}

// batchBytes is what the tensors of a batch of this size take at most.
func (z *sizer) batchBytes(d demand) int64 {
	if types := z.parts.types; !types.unnamed() {
		c := types.demanded(&d)
		total := c.bytes(&z.parts, z.options.BatchSize)
		if z.options.History != nil {
			total += types.levelBytes(&d, z.parts.transposed)
		}
		return total
	}
	total := z.parts.batchBytes(d.nodes, d.rows, d.edges, d.nodes, z.options.BatchSize)
	if z.options.History != nil {
		total += d.levelBytes(z.parts.transposed)
	}
	return total
}

// cost is the working set of a way to work, without caches.
func (z *sizer) cost(w working) int64 {
	d := z.expected()
	inFlight := int64(max(w.prefetch, 1))
	running := z.order + (inFlight+z.holds())*z.batchBytes(d) + int64(w.workers)*z.sampler.drawerBytes(&d, w.stamp)
	if z.options.History != nil && len(d.edgesPerHop) > 0 {
		running += inFlight * z.pruningBytes(d)
	}
	if z.weighs() { // what is scored is scored when the samplers are there and nothing runs
		running = max(running, int64(w.workers)*z.sampler.drawerBytes(&d, w.stamp)+z.scoringBytes())
	}
	if z.parts.store == nil {
		return z.fixed + z.held + running
	}
	fetched := d.hopEdges
	if z.options.WeightAttr != "" || z.options.TimeAttr != "" || z.options.Labor != nil {
		fetched = max(fetched, sample.FetchedEdges) // of whole lists
	}
	if k := z.options.Links; k != nil && (k.Strict || k.Exclude != ExcludeNone) { // which lists are looked through for
		fetched = max(fetched, min(sample.FetchedEdges, z.parts.numEdges))
	}
	running += inFlight * lookupBytes(max(d.nodes, fetched))
	if z.options.disjoint() {
		running += inFlight * firstsBytes(d.nodes)
	}
	// What is loaded whole is loaded before anything runs.
	return z.fixed + z.checks + int64(w.depth*z.slot()) + max(running, z.loading)
}

// holds is how many batches the consumer holds at a time.
func (z *sizer) holds() int64 { return int64(max(z.options.Holds, 1)) }

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

func (z *sizer) topology() int64 { return z.neighbors + z.edgeIDs }

// wanted is what all rows would take of memory that is not reserved by name.
func (z *sizer) wanted() (total int64) {
	if z.options.Cache == "none" || z.options.FeatureCache != Auto {
		return 0
	}
	for i := range z.parts.tensors {
		if t := &z.parts.tensors[i]; t.onDisk != nil {
			total += t.bytes()
		}
	}
	return total
}

// fetchScratch is what telling cached edges from others takes of those who do so.
func (z *sizer) fetchScratch(s *split) int64 {
	d := z.expected()
	return int64(s.workers)*fetchBytes(d.hopEdges) + int64(max(s.prefetch, 1))*(fetchBytes(d.edges)+z.owningBytes(d))
}

// plannedBytes is what a batch of this many rows adds to the memory of plans: a
// third of what superbatches of such batches take, of which one is executed, one
// planned and one ahead. With every row: its id until it is planned, the planner's
// own tables for the last two, and what is left of the plan being executed.
func plannedBytes(rows int64) int64 {
	const ids, executed = 4, 20
	return (plan.SuperbatchBytes(2*rows) - plan.SuperbatchBytes(0) + (2*ids+executed)*rows) / heldSuperbatches
}

// traceBytes is what superbatches of n batches take, those that are sampled and
// executed beside the one that is planned included.
func (z *sizer) traceBytes(n int64) int64 {
	n = min(n, 1<<32) // far above any memory, far from overflow
	plans := plan.SuperbatchBytes(0) + heldSuperbatches*n*plannedBytes(max(1, z.expected().nodes))
	return plans + plans/(z.heldShare()-1)
}

// heldShare is the share, as a divisor, of the memory for traces and plans that
// traces have: less where they can go to the scratch file, which costs a twentieth
// of what a batch reads.
func (z *sizer) heldShare() int64 {
	if z.options.Scratch != "" && z.options.ScratchBytes != 0 {
		return 4
	}
	return 2
}

func (z *sizer) numBatches() int64 {
	return z.numSeeds/z.options.BatchSize + 1
}

// plannedRows is the largest capacity that room allows, of the rows that are cacheable: rows, what is kept of each
// slot, and the planner's tables.
func plannedRows(room, numRows, cacheable, slotBytes int64, widths []int) int64 {
	most := min(cacheable, math.MaxInt32)
	return int64(sort.Search(int(most), func(c int) bool {
		capacity := int64(c) + 1
		tables := plan.StateBytes(numRows, capacity) - plan.StateBytes(numRows, 0) // the rest is reserved
		return cache.RowsBytes(capacity, widths)+capacity*slotBytes+tables > room
	}))
}

// residentBytes is what is kept of each row of a cache that changes.
func (z *sizer) residentBytes() int {
	if z.mechanism() == "static" {
		return 0
	}
	return residentBytes
}

// slotBytes is what a planned loader keeps of each row of its cache beside the planner.
func (z *sizer) slotBytes() int64 {
	if z.options.History != nil {
		return residentBytes + promiseBytes
	}
	return residentBytes
}

// mechanism is the policy that holds the rows of Options.Cache.
func (z *sizer) mechanism() string {
	if slices.Contains(cache.OnlineNames(), z.options.Cache) {
		return z.options.Cache
	}
	return "static"
}
