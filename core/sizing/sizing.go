// Package sizing decides how a loader divides its memory. Divide takes the caller's sizes, the bytes of the graph's
// arrays and the costs of a loader's parts, and returns the number of threads and batches in flight, the arrays in
// memory and the size of each cache, trace and pool.
//
// It guarantees that the parts never exceed the memory together, and that an error has the smallest memory that works:
// with it Divide succeeds, with a byte less it does not. It is arithmetic alone: it opens, reads and allocates nothing,
// and the same numbers always give the same division. core/loader collects the numbers and calls it once for each
// loader that is opened.
//
// Ginex (section 3.5) gives the order: offsets and the working set are given, neighbours come before features, features
// take the rest. Divide departs from it if another division moves fewer bytes in an epoch (see best). The working set
// is measured, not bounded: the worst case of a batch is the product of the fanouts, which no real one comes near.
package sizing

// Auto is the value of a size or a count that Divide chooses.
const Auto = -1

// Request holds the options of a loader that bear on memory.
type Request struct {
	Memory        int64  // bytes for everything; 0: unlimited
	FeatureCache  int64  // of Memory, for cached rows, or Auto
	NeighborCache int64  // of Memory, for neighbour lists, edge numbers and weights, or Auto
	Cache         string // which rows are cached: "auto", "none", "belady", a policy of cache.OnlineNames, or a ranking

	Workers  int // sampling threads
	Prefetch int // batches prepared ahead of the consumer, or Auto
	Holds    int // batches that the consumer holds at a time; 0: one

	EpochBatches int64  // batches of an epoch, about
	Superbatch   int64  // batches planned together, or Auto
	Reorder      int64  // batches that may change places; 0: none, or Auto
	TraceMemory  int64  // bytes for traces and plans, or Auto
	BufferMemory int64  // bytes for packs in memory, or Auto
	Transfer     string // how planned batches read cold rows, one of plan.Transfers; empty: plan by plan
	Scratch      int64  // bytes of the scratch file; 0: there is none, or Auto
	Free         int64  // bytes that are free where it would be; 0: not known
	Unplannable  string // why batches of this graph cannot be planned; empty: they can

	History History
}

// History holds the sizes of a cache of historical embeddings. The zero value is none.
type History struct {
	Buffer int64 // bytes of the embeddings' buffer, wherever it is
	Memory int64 // the history's part of Request.Memory, including the buffer if it is part of it
	Ahead  int64 // the tables of a copy, which forecasts what planned batches will read; 0: there is none
}

// Graph holds the sizes of arrays and tensors, in bytes unless said otherwise.
type Graph struct {
	OnDisk  bool    // a store, which is read; else all is in the user's memory
	Nodes   int64   // of all types
	Types   []int64 // nodes of each type
	Tensors []Tensor

	Fixed int64 // what stays in memory in any case: offsets, seeds, links; of a graph in memory its index
	// Growing returns the part of Fixed that depends on Request.Memory, by the memory; nil: none does.
	Growing func(memory int64) int64 `json:"-"`

	Held  int64 // weights or times of a graph in memory, in the sampler's order
	Order int64 // a permutation of the seeds

	Checks  int64 // checksums of the pages that may be read one by one
	Loading int64 // what loading one array takes for a while, at most

	Neighbors   int64 // neighbour lists held whole
	EdgeIDs     int64 // edge numbers held whole
	Weights     int64 // weights or times held whole, in the sampler's order,
	UserWeights int64 // and in the user's order, for a while
	// PackedNeighbors and PackedEdgeIDs are the bytes of both in as few bits as their numbers need; 0: not known. Single
	// lists, and edge numbers held whole, are packed. Neighbours held whole are packed if Packs is set.
	PackedNeighbors, PackedEdgeIDs int64
	Packs                          bool
	// TimesOfNodes means that Weights, or Held, are times of nodes: a draw looks one up for each edge of a list, wherever
	// lists are. Where lists are held whole too, draws are faster with the order in time of the longest lists; and
	// fastest with the times of edges in order, in place of both.
	TimesOfNodes            bool
	LongLists, TimesInOrder int64
	Lists                   int64 // number of lists that may be cached one by one
	ListTables              int64 // their address tables
	Choosing                int64 // temporary memory of choosing among them, without the tables

	Stamp int64 // an id map of the fast kind
}

// Tensor is a table with a row for each node of a type, or for each edge.
type Tensor struct {
	Width  int   // bytes of a row
	Rows   int64 // number of rows
	ByEdge bool
	Type   int  // of its nodes
	Used   bool // batches may have its rows
	Span   int  // bytes of the pages of one row on disk, at most
	// Trained: training changes the rows. They are cached row by row, so that a plan knows where each of them lives.
	Trained bool
}

func (t *Tensor) bytes() int64 { return t.Rows * int64(t.Width) }

// Costs holds the memory of the parts of a loader, in bytes. Batches have the expected demand (see Demand).
type Costs struct {
	Nodes       int64   // number of nodes of a batch
	NodesOfType []int64 // and of each type
	Edges       int64   // edges that a batch draws
	Expanded    []int64 // by hop: the nodes whose lists it draws from; nil: unknown
	Wanted      int64   // bytes of requests for all its neighbours; 0: batches cannot share reads of lists

	Batch  int64 // tensors of a batch
	Prune  int64 // pruning a batch by a history
	Lookup int64 // finding the rows and edges of a batch on disk

	Worker       int64 // a sampling worker with the frugal id map
	StampWorker  int64 // and with the fast one
	FetchWorker  int64 // telling cached edges from others while a worker samples
	FetchBatch   int64 // and while the edge numbers of a batch are looked up
	Score        int64 // scoring nodes for a history, for a while before anything else runs but the workers
	Rank         int64 // ranking rows for a cache, for a while before it has memory, beyond its address table
	ResidentSlot int   // state of each row in an online cache, without its policy
	PlannedSlot  int   // state of each row in a planned cache, without the planner

	Observed  Observed // of the measured batches
	Estimated bool     // batches were too large to be measured within the memory: these costs are an upper estimate
}

// Split is a division: a way to work, and the arrays in memory.
type Split struct {
	Working
	Slot int // bytes of a buffer of the read engine

	Neighbors     bool  // neighbour lists are held whole
	EdgeIDs       bool  // edge numbers are held whole
	Weights       bool  // weights or times are held whole
	LongLists     bool  // the order in time of the longest lists is held,
	TimesInOrder  bool  // or the times of all edges in order in place of Weights
	NeighborLists int64 // bytes for single lists of the first two if they are on disk; 0: none
	Together      int64 // bytes for reading the lists of planned batches together, see WantedRoom; 0: each reads its own

	Resident  []bool // by tensor: held whole
	Columns   []int  // widths of the columns of a cache slot, see columns
	ColumnOf  []int  // by tensor: its column; -1: none
	Cache     string // what decides which rows of the others are cached, and
	CacheWhy  string // why that, where Divide chose
	CacheRows int64  // rows that are cached

	// Of planned batches.
	PlanRows   int64 // rows of the graph that plans have tables for
	Superbatch int64 // batches planned together
	Reorder    int64 // batches that may change places; 0: none
	Traces     int64 // bytes for traces and plans
	Packs      int64 // bytes for packs in memory
	Stored     bool  // plans are made in the scratch file, for windows as long as the epoch if it has room
	WindowRows int64 // the most rows of a window if Stored; 0: as many as a plan can number
	TracesHeld int64 // bytes of Traces for traces in memory, the rest is for plans; with Stored, for these as well
	Buffers    int64 // bytes of Packs for pending writes to the scratch file; 0: chosen by it
	Scratch    int64 // bytes of the scratch file
	Records    int64 // its bytes for traces and plans if Stored; the rest is for packs
	EpochBytes int64 // that an epoch is predicted to move, for comparing divisions

	History int64 // bytes of the history's buffer

	Batches  int64 // bytes that batches may have, in flight and at the consumer
	Pool     int64 // bytes of freed buffers that the allocator may keep for reuse
	Smallest int64 // the smallest memory that works; 0 where it is unlimited
	Shares   Shares

	reserved  int64   // what planning or an order takes at least, set aside before shares are given out
	predicted moved   // the predicted movement of an epoch, see predict
	beyond    float64 // bytes of it that a shorter window would save, see bestWindow
	slack     int64   // the room beyond which other tensors would be held whole, see holdTensors; -1: none would
}

// Shares holds the bytes of the parts of a Split that are not its fields, for reports.
type Shares struct{ Topology, NeighborCache, Held, FeatureCache, Working int64 }

const (
	// modest is the share of the memory, as a divisor, that id maps of the fast kind or deep read queues may take
	// before the frugal kind is chosen. Arbitrary.
	modest = 8

	// smallRow is the row width in bytes up to which a tensor (labels, masks) is held whole rather than row by row:
	// reading eight bytes costs a page.
	smallRow = 64

	// maxPool, poolShare and batchShare bound the released buffers that the allocator keeps, in addition to the unused
	// memory of batches: a sixteenth of the memory, and a quarter of the memory of batches, by which sizes are rounded up.
	// The first two are arbitrary.
	maxPool    = 512 << 20
	poolShare  = 16
	batchShare = 4

	// unlimited stands for the room in a memory without a limit: far from overflow.
	unlimited = 1 << 60
)

// division is the state of Divide.
type division struct {
	ask   Request
	graph Graph
	costs Costs

	ofType []frequencies // the rows of each node type
	all    frequencies   // the rows of all types
}

// newDivision returns the division for a loader.
func newDivision(r Request, g Graph, c Costs) *division {
	z := &division{ask: r, graph: g, costs: c}
	for t, rows := range g.Types {
		drawn := 0.0
		if t < len(c.NodesOfType) {
			drawn = expected(c.NodesOfType[t])
		}
		z.ofType = append(z.ofType, c.Observed.frequenciesOf(t, float64(rows), drawn,
			float64(max(1, r.EpochBatches))))
	}
	z.all = byRate(z.ofType...)
	return z
}

// Divide divides the memory.
//
// It returns a *mem.BudgetError with the smallest memory that works if the memory, or a part that the caller sized, is
// too small.
func Divide(r Request, g Graph, c Costs) (*Split, error) {
	z := newDivision(r, g, c)
	s := Split{Slot: z.graph.slot(), History: r.History.Buffer}
	if err := z.reserve(&s); err != nil {
		return nil, err
	}
	if r.Memory == 0 {
		c := candidate{Working: generous(&r), planned: s.Cache == "belady"}
		held, of := z.topologyOf(s, &c)
		return z.with(*held, &c, of.rest), nil
	}
	if err := z.check(&s); err != nil {
		return nil, err
	}
	best := z.best(&s)
	explainShortPlans(z, best)
	return best, nil
}

// topologyOf returns the part of a candidate's division that holds the topology, and what tells it from others.
func (z *division) topologyOf(s Split, c *candidate) (*Split, topology) {
	if !c.planned && s.Cache == "belady" {
		s.unplanned(notBetter)
	}
	s.Working, s.slack = c.Working, -1
	rest := int64(unlimited)
	s.Pool = maxPool
	if z.ask.Memory > 0 {
		s.Batches = (inFlight(c.Working) + z.ask.holds()) * z.costs.Batch
		rest = z.ask.Memory - z.cost(c.Working) - z.ask.explicit() - s.reserved
		s.Pool = min(maxPool, z.ask.Memory/poolShare, s.Batches/batchShare, rest)
		rest -= s.Pool
	}
	rest = z.holdTopology(&s, c, rest)
	return &s, topology{
		c.Working, c.planned, s.Neighbors, s.EdgeIDs, s.Weights, s.NeighborLists, s.Together, rest,
	}
}

// with is the division of a candidate, by what holds the topology and leaves rest.
func (z *division) with(s Split, c *candidate, rest int64) *Split {
	s.Resident = make([]bool, len(z.graph.Tensors))
	z.holdFeatures(&s, c, rest)
	z.sumUp(&s)
	s.predicted = z.predict(&s)
	return &s
}

// HoldsRows reports whether the rows of all nodes that batches may have are held in memory.
func (s *Split) HoldsRows(g *Graph) bool { return len(g.cached(s)) == 0 }

// HoldsLists reports whether the neighbour lists and the edge numbers are in memory.
func (s *Split) HoldsLists(g *Graph) bool {
	return !g.OnDisk || s.Neighbors && (s.EdgeIDs || g.EdgeIDs == 0)
}

// HoldsWeights reports whether the weights or times that edges are drawn by are in memory.
func (s *Split) HoldsWeights(g *Graph) bool { return !g.OnDisk || s.Weights || g.Weights == 0 }

// HoldsTensor reports whether no batch reads rows of a tensor.
func (s *Split) HoldsTensor(g *Graph, i int) bool {
	return !g.OnDisk || !g.Tensors[i].Used || s.Resident[i]
}

// HoldsAll reports whether nothing of the graph is read while batches are made.
func (s *Split) HoldsAll(g *Graph) bool {
	for i := range g.Tensors {
		if !s.HoldsTensor(g, i) {
			return false
		}
	}
	return s.HoldsLists(g) && s.HoldsWeights(g)
}

// explicit returns the memory that the caller has reserved for caches by name, and the history.
func (r *Request) explicit() int64 {
	return max(r.FeatureCache, 0) + max(r.NeighborCache, 0) + r.History.Memory
}

// sumUp fills in the shares.
func (z *division) sumUp(s *Split) {
	of := &s.Shares
	of.Topology = z.graph.Fixed
	if z.ask.Memory > 0 {
		of.Working = z.cost(s.Working) - z.graph.Fixed + s.Together
	}
	if s.Neighbors {
		of.NeighborCache += z.graph.heldNeighbors()
	}
	if s.EdgeIDs {
		of.NeighborCache += packedOr(z.graph.PackedEdgeIDs, z.graph.EdgeIDs)
	}
	of.NeighborCache += s.NeighborLists
	of.NeighborCache += z.graph.timesOrWeights(s)
	for i := range z.graph.Tensors {
		if s.Resident[i] {
			of.Held += z.graph.Tensors[i].bytes()
		}
	}
	for _, width := range s.Columns {
		of.FeatureCache += s.CacheRows * int64(width)
	}
	of.FeatureCache += z.tableBytes(s)
}
