package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// onDisk is a store of 3000 nodes and 40,000 edges, with rows of three widths and one of edges.
func onDisk() Graph {
	return Graph{
		OnDisk: true, Nodes: 3000, Types: []int64{3000}, Stamp: 12000,
		Tensors: []Tensor{
			{Width: 170, Rows: 3000, Used: true, Span: 8192},
			{Width: 96, Rows: 3000, Used: true, Span: 4096},
			{Width: 8, Rows: 3000, Used: true, Span: 4096},
			{Width: 8, Rows: 40000, ByEdge: true, Used: true, Span: 4096},
		},
		Fixed: 24008, Loading: 4096, Neighbors: 160000, EdgeIDs: 160000, Lists: 3000, ListTables: 3000, Choosing: 2 << 20,
	}
}

// auto is a request that leaves everything to Divide.
func auto(memory int64, cache string) Request {
	return Request{
		Memory: memory, FeatureCache: Auto, NeighborCache: Auto, Cache: cache, Workers: 2, Prefetch: 2, EpochBatches: 10,
		Superbatch: Auto, Reorder: Auto, TraceMemory: Auto, BufferMemory: Auto,
	}
}

// ofBatches returns the costs of batches of 300 nodes.
func ofBatches() Costs {
	return Costs{
		Nodes: 300, NodesOfType: []int64{300}, Batch: 100_000, Lookup: 20_000, Worker: 30_000, StampWorker: 40_000,
		FetchWorker: 1000, FetchBatch: 2000, ResidentSlot: 4, PlannedSlot: 4,
	}
}

// smallest is the least memory that the error for a request of one byte names.
func smallest(t *testing.T, r Request, g Graph, c Costs) int64 {
	t.Helper()
	r.Memory = 1
	_, err := Divide(r, g, c)
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	return short.Need
}

// TestTopologyShare is the rule of who gets the memory.
func TestTopologyShare(t *testing.T) {
	const whole = 2 * 160000
	const rows, edgeRows = 3000 * (170 + 96 + 8), 40000 * 8
	for name, c := range map[string]struct {
		change      func(r *Request)
		rest        int64
		lists, left int64 // lists of -1: everything is in memory; of -2: neighbours are
	}{
		"room for all":                  {nil, whole + rows + edgeRows, -1, rows + edgeRows},
		"half":                          {nil, whole, whole / 2, whole / 2},
		"three quarters hold the whole": {nil, whole*4/3 + 4, -1, whole/3 + 4},
		"little":                        {nil, whole / 50, whole / 100, whole/50 - whole/100},
		"too little for a scan":         {nil, whole / 150, 0, whole / 150},
		"nothing":                       {nil, 0, 0, 0},
		"rows by name":                  {func(r *Request) { r.FeatureCache = 5 }, whole - 1, whole - 1, 0},
		"no rows":                       {func(r *Request) { r.Cache = "none" }, whole - 1, whole - 1, 0},
		"lists by name":                 {func(r *Request) { r.NeighborCache = 20000 }, 777, 20000, 777},
		"whole by name":                 {func(r *Request) { r.NeighborCache = whole + 5 }, 777, -1, 782},
		"none by name":                  {func(r *Request) { r.NeighborCache = 0 }, whole * 2, 0, whole * 2},
		"no room to choose, all of it":  {func(r *Request) { r.Memory = 1000 }, whole, -2, whole / 2},
		"no room to choose, neighbours": {
			func(r *Request) { r.Memory, r.NeighborCache = 1000, whole/2+3 }, 9, -2, 12,
		},
	} {
		t.Run(name, func(t *testing.T) {
			z := newDivision(auto(0, "degree"), onDisk(), Costs{})
			if c.change != nil {
				c.change(&z.ask)
			}
			got := Reading()
			require.Equal(t, c.left, z.holdTopology(&got, &candidate{}, c.rest))
			require.Equal(t, max(0, c.lists), got.NeighborLists)
			require.Equal(t, c.lists == -1, got.EdgeIDs)
			require.Equal(t, c.lists < 0, got.Neighbors)
		})
	}
}

// TestWeightsShare: weights are held where neighbours are and both orders of them fit beside these.
func TestWeightsShare(t *testing.T) {
	for memory, want := range map[int64]bool{0: false, 160000 + 499: false, 160000 + 500: true} {
		z := newDivision(auto(0, "none"), onDisk(), Costs{})
		z.graph.EdgeIDs, z.graph.Weights, z.graph.UserWeights = 0, 300, 200
		z.ask.NeighborCache = memory
		got := Reading()
		left := z.holdTopology(&got, &candidate{}, 1000)
		require.Equal(t, want, got.Weights)
		if want {
			require.EqualValues(t, 1000+200, left) // the user's order is given back
		}
	}
}

// TestTimesOfNodesComeFirst: they are held before lists, wherever these are, where both orders of them fit.
func TestTimesOfNodesComeFirst(t *testing.T) {
	for _, c := range []struct {
		memory, rest int64 // by name, or Auto
		weights      bool
		lists        bool
	}{
		{0, 1 << 20, false, false}, {499, 1 << 20, false, false}, {500, 1 << 20, true, false},
		{160000 + 299, 1 << 20, true, false}, {160000 + 300, 1 << 20, true, true},
		{Auto, 499, false, false}, {Auto, 500, true, false}, {Auto, 300 + 160000*4/3 + 4, true, true},
	} {
		z := newDivision(auto(0, "none"), onDisk(), Costs{})
		z.graph.EdgeIDs, z.graph.Weights, z.graph.UserWeights, z.graph.TimesOfNodes = 0, 300, 200, true
		z.graph.Lists, z.ask.NeighborCache = 0, c.memory
		z.graph.LongLists, z.graph.TimesInOrder = 1<<30, 1<<30
		got := Reading()
		left := z.holdTopology(&got, &candidate{}, c.rest)
		require.Equal(t, c.weights, got.Weights, c)
		require.Equal(t, c.lists, got.Neighbors, c)
		if c.memory == Auto && c.weights {
			require.LessOrEqual(t, left, c.rest-300)
		}
		got = Reading()
		z.holdTopology(&got, &candidate{unweighted: true}, c.rest)
		require.False(t, got.Weights)
	}
	const lists = 160000 + 300 // and times
	for room, want := range map[int64]struct {
		long, inOrder bool
		held          int64
	}{
		lists + 49: {false, false, lists}, lists + 50: {true, false, lists + 50}, lists + 699: {true, false, lists + 50},
		lists + 700: {false, true, 160000 + 700},
	} {
		z := newDivision(auto(0, "none"), onDisk(), Costs{})
		z.graph.EdgeIDs, z.graph.Weights, z.graph.TimesOfNodes = 0, 300, true
		z.graph.LongLists, z.graph.TimesInOrder = 50, 700
		z.graph.Lists, z.ask.NeighborCache = 0, room
		got := Reading()
		require.Equal(t, 7+room-want.held, z.holdTopology(&got, &candidate{}, 7))
		require.Equal(t, want.long, got.LongLists)
		require.Equal(t, want.inOrder, got.TimesInOrder)
		require.Equal(t, want.held, 160000+z.graph.timesOrWeights(&got))
		got = Reading()
		z.holdTopology(&got, &candidate{byNode: true}, 7)
		require.False(t, got.TimesInOrder)
		require.Equal(t, room >= lists+50, got.LongLists)
	}
}

// TestLadder: from what was asked for to the smallest, first fewer batches, then fewer workers, then fewer reads.
func TestLadder(t *testing.T) {
	z := newDivision(auto(1<<20, "none"), onDisk(), Costs{})
	z.ask.Workers, z.ask.Prefetch = 4, 3
	want := []Working{
		{4, 3, true, 8}, {4, 1, true, 8}, {2, 1, true, 8}, {1, 1, true, 8}, {1, 1, true, 8}, {1, 1, false, 8},
	}
	require.Equal(t, want, z.ladder())
	z.ask.Memory = 4*12000*modest - 1 // for the fast id maps of all workers
	require.False(t, z.ladder()[0].Stamp)
	z.ask.Memory = 64 << 20 // an eighth is 128 buffers of 64 KiB
	require.Equal(t, 128, z.ladder()[0].Depth)
	z.ask.Memory--
	require.Equal(t, 64, z.ladder()[0].Depth)
}

// TestBatchesAhead: a batch for each thread where a quarter of the memory has room for them, and not less than four.
func TestBatchesAhead(t *testing.T) {
	z := newDivision(auto(1<<40, "none"), onDisk(), ofBatches())
	ahead := func() (all []int) {
		for _, w := range z.ladder() {
			if len(all) == 0 || all[len(all)-1] != w.Prefetch {
				all = append(all, w.Prefetch)
			}
		}
		return all
	}
	z.ask.Prefetch = Auto
	for workers, want := range map[int][]int{1: {4, 2, 1}, 2: {4, 2, 1}, 6: {6, 4, 2, 1}, 16: {16, 8, 4, 2, 1}} {
		z.ask.Workers = workers
		require.Equal(t, want, ahead())
	}
	z.ask.Workers = 16
	for memory, want := range map[int64]int{4 * 16 * 100_000: 16, 4*16*100_000 - 1: 8, 4*8*100_000 - 1: 4, 1 << 20: 4} {
		z.ask.Memory = memory
		require.Equal(t, want, ahead()[0])
	}
	r := auto(0, "none")
	r.Workers, r.Prefetch = 16, Auto
	s, err := Divide(r, onDisk(), ofBatches())
	require.NoError(t, err)
	require.Equal(t, 16, s.Prefetch)
	require.True(t, s.AsAsked(&r))
	s.Prefetch = 8
	require.False(t, s.AsAsked(&r))
}

// TestWorkingSet holds the memory of each way to work.
func TestWorkingSet(t *testing.T) {
	w := Working{Workers: 2, Prefetch: 3, Stamp: true, Depth: 8}
	for name, c := range map[string]struct {
		change func(z *division)
		want   int64
	}{
		"on disk": {func(*division) {}, 24008 + 8*MinSlot + 4*100_000 + 2*40_000 + 3*20_000},
		"small id maps": {
			func(z *division) { z.costs.StampWorker = 30_000 }, 24008 + 8*MinSlot + 4*100_000 + 2*30_000 + 3*20_000,
		},
		"wide rows": {
			func(z *division) { z.graph.Tensors[0].Span = 100_000 }, 24008 + 8*100_000 + 4*100_000 + 2*40_000 + 3*20_000,
		},
		"a consumer that holds three": {
			func(z *division) { z.ask.Holds = 3 }, 24008 + 8*MinSlot + 6*100_000 + 2*40_000 + 3*20_000,
		},
		"shuffled, pruned, checked": {
			func(z *division) { z.graph.Order, z.costs.Prune, z.graph.Checks = 1, 10, 100 },
			24008 + 100 + 8*MinSlot + 1 + 4*100_000 + 2*40_000 + 3*20_000 + 3*10,
		},
		"a large array to load": {func(z *division) { z.graph.Loading = 1 << 30 }, 24008 + 8*MinSlot + 1<<30},
		"much to score": {
			func(z *division) { z.costs.Score = 1 << 30 }, 24008 + 8*MinSlot + 1<<30 + 2*40_000 + 3*20_000,
		},
		"in memory": {
			func(z *division) { z.graph.OnDisk, z.graph.Held = false, 7 }, 24008 + 7 + 4*100_000 + 2*40_000,
		},
	} {
		z := newDivision(auto(1, "none"), onDisk(), ofBatches())
		c.change(z)
		require.Equal(t, c.want, z.cost(w), name)
	}
}

// TestColumns: a slot has a column for the widest tensors of all types, one for the second widest, and so on.
func TestColumns(t *testing.T) {
	z := &division{graph: Graph{OnDisk: true, Types: []int64{5, 7, 9}, Tensors: []Tensor{
		{Width: 10, Type: 0, Used: true}, {Width: 30, Type: 0, Used: true}, {Width: 20, Type: 1, Used: true},
		{Width: 40, Type: 1}, {Width: 50, ByEdge: true, Used: true}, {Width: 15, Type: 1, Used: true},
	}}}
	s := &Split{Resident: make([]bool, 6)}
	s.layOut(&z.graph)
	require.Equal(t, []int{30, 15}, s.Columns)
	require.Equal(t, []int{1, 0, 0, -1, -1, 1}, s.ColumnOf)
	require.EqualValues(t, 5+7, s.cacheable(&z.graph))
	s.Resident[1] = true
	s.layOut(&z.graph)
	require.Equal(t, []int{20, 15}, s.Columns)
	require.Equal(t, []int{0, -1, 0, -1, -1, 1}, s.ColumnOf)
	s.Resident[0] = true
	require.EqualValues(t, 7, func() int64 { s.layOut(&z.graph); return s.cacheable(&z.graph) }())
}

// TestNarrowTypesAreHeldWhole: of types that do not fit together, those that fit, the narrowest first.
func TestNarrowTypesAreHeldWhole(t *testing.T) {
	g := Graph{OnDisk: true, Nodes: 3000, Types: []int64{1000, 1000, 1000}, Tensors: []Tensor{
		{Width: 300, Rows: 1000, Type: 0, Used: true}, {Width: 100, Rows: 1000, Type: 1, Used: true},
		{Width: 200, Rows: 1000, Type: 2, Used: true},
	}}
	for room, want := range map[int64][]bool{
		1000*600 - 1: {false, true, true},
		1000*500 - 1: {false, true, false}, // the rest is less than twice the next
		1000*200 - 1: {false, false, false},
	} {
		z := newDivision(auto(0, "degree"), g, Costs{})
		z.ask.FeatureCache = room
		s, err := Divide(z.ask, g, Costs{NodesOfType: []int64{0, 0, 0}})
		require.NoError(t, err)
		require.Equal(t, want, s.Resident, room)
		require.Positive(t, s.CacheRows, room)
	}
}

// TestUnlimited: without a limit everything is held, and nothing is planned.
func TestUnlimited(t *testing.T) {
	s, err := Divide(auto(0, "auto"), onDisk(), ofBatches())
	require.NoError(t, err)
	require.Equal(t, Working{Workers: 2, Prefetch: 2, Stamp: true, Depth: 128}, s.Working)
	require.True(t, s.Neighbors && s.EdgeIDs)
	require.NotContains(t, s.Resident, false)
	require.Equal(t, "everything is held in memory", s.CacheWhy)
	require.EqualValues(t, maxPool, s.Pool)
	require.Zero(t, s.Smallest)
}

// TestPlanned: what a planned loader gets, and why it is not planned.
func TestPlanned(t *testing.T) {
	g := onDisk()
	g.Tensors[0].Rows, g.Nodes, g.Types = 1_000_000, 1_000_000, []int64{1_000_000}
	divide := func(memory int64, change func(r *Request)) *Split {
		r := auto(memory, "auto")
		if change != nil {
			change(&r)
		}
		s, err := Divide(r, g, ofBatches())
		require.NoError(t, err)
		return s
	}
	s := divide(100<<20, nil)
	require.Equal(t, "belady", s.Cache)
	require.EqualValues(t, 64, s.Superbatch)
	held := func(s *Split) float64 { // all of Traces but words of rows
		return float64(s.TracesHeld) / float64(s.Traces-plan.KnownBytes(s.PlanRows, 2*s.superbatchRows(), 0))
	}
	require.InDelta(t, 1./2, held(s), 1e-3)
	require.Positive(t, s.SuperbatchRoom())
	require.Positive(t, s.CacheRows)
	require.Zero(t, s.Scratch)

	withScratch := divide(100<<20, func(r *Request) { r.Scratch = Auto })
	require.InDelta(t, 1./4, held(withScratch), 1e-3)
	require.EqualValues(t, 170*1_000_000+96*3000, withScratch.Scratch, "the rows that are not held whole")
	require.EqualValues(t, 99, divide(100<<20, func(r *Request) { r.Scratch = 99 }).Scratch)

	byName := divide(100<<20, func(r *Request) {
		r.FeatureCache, r.TraceMemory, r.BufferMemory, r.Superbatch, r.Reorder = 20<<20, 8<<20, 3<<20, 7, 5
	})
	require.EqualValues(t, []int64{8 << 20, 3 << 20, 7, 5},
		[]int64{byName.Traces, byName.Packs, byName.Superbatch, byName.Reorder})

	least := divide(100<<20, nil).Smallest
	short := divide(least, nil)
	require.Equal(t, "there is no room to plan 8 batches at a time", short.CacheWhy)
	require.Zero(t, short.Traces)
	require.Equal(t, "none", short.Cache, "there is no room for a row")
	require.Equal(t, least, short.Smallest)

	refused := divide(100<<20, func(r *Request) { r.Unplannable = "too many" })
	require.Equal(t, "too many", refused.CacheWhy)
	require.Equal(t, "oracle", refused.Cache)

	r := auto(100<<20, "belady")
	r.TraceMemory = 10
	_, err := Divide(r, g, ofBatches())
	var small *mem.BudgetError
	require.ErrorAs(t, err, &small)
	require.Equal(t, mem.Trace, small.Purpose)
	r.TraceMemory = small.Need
	_, err = Divide(r, g, ofBatches())
	require.NoError(t, err)
}

// TestWindowsOfAnEpoch: nothing bounds a window but the epoch, what moves the fewest bytes, and the accesses that a
// plan can number.
func TestWindowsOfAnEpoch(t *testing.T) {
	for name, c := range map[string]struct{ batches, nodes, least int64 }{
		"many rows":          {400, 300_000, 400},
		"many batches":       {10_000, 2_000, 10_000},
		"more than are told": {100_000, 300_000, 500},
	} {
		t.Run(name, func(t *testing.T) {
			of := shape{rows: 100_000_000, width: 512, batches: c.batches, nodes: c.nodes}
			s, err := Divide(of.request(32<<30), of.graph(), of.costs())
			require.NoError(t, err)
			require.True(t, s.Stored)
			require.GreaterOrEqual(t, s.Superbatch, c.least)
			require.LessOrEqual(t, 2*s.Superbatch*of.costs().Nodes, int64(plan.MaxAccesses))
			room, each := s.WindowRoom()
			require.GreaterOrEqual(t, room/each(c.nodes), s.Superbatch, "batches as measured")
			r := of.request(32 << 30)
			r.Reorder = Auto
			ordered, err := Divide(r, of.graph(), of.costs())
			require.NoError(t, err)
			require.Equal(t, s, ordered, "longer windows are worth more than an order")
			r.Reorder = 8
			ordered, err = Divide(r, of.graph(), of.costs())
			require.NoError(t, err)
			require.False(t, ordered.Stored)
			require.EqualValues(t, 8, ordered.Reorder)
		})
	}
}

// TestEachPackHasABuffer: the packs of the batches of two windows, one for each column of the cache, each have a buffer
// of the scratch file.
func TestEachPackHasABuffer(t *testing.T) {
	for _, columns := range []int{1, 2, 3} {
		of := shape{rows: 1_000_000, width: 512, batches: 400, nodes: 3_000}
		g := of.graph()
		for len(g.Tensors) < columns {
			g.Tensors = append(g.Tensors, g.Tensors[0])
		}
		s, err := Divide(of.request(192<<20), g, of.costs())
		require.NoError(t, err)
		require.True(t, s.Stored)
		require.Len(t, s.Columns, columns)
		require.GreaterOrEqual(t, s.Buffers, 2*s.Superbatch*int64(columns*min(s.Slot, mostBuffer)), "%+v", s)
	}
}

func TestHistoryBuffer(t *testing.T) {
	tensors := []Tensor{
		{Width: 100, Rows: 1 << 20}, {Width: 64, Rows: 1 << 20}, {Width: 100, Rows: 1 << 20, ByEdge: true},
	}
	require.EqualValues(t, 10<<20, HistoryBuffer(Auto, tensors), "a tenth of what is wide and of nodes")
	require.EqualValues(t, 1<<20, HistoryBuffer(Auto, nil))
	require.EqualValues(t, 5, HistoryBuffer(5, tensors))
}

func TestDemand(t *testing.T) {
	var d Demand
	d.Add(Demand{Nodes: 8, Rows: 4, Edges: 16, HopEdges: 9, NodesPerHop: []int64{1, 7}, EdgesPerHop: []int64{16}})
	d.Add(Demand{Nodes: 7, Rows: 7, Edges: 17, HopEdges: 1, NodesPerHop: []int64{2, 5}, EdgesPerHop: []int64{17}})
	want := Demand{
		Nodes: 8, Rows: 7, Edges: 17, HopEdges: 9, NodesPerHop: []int64{2, 7}, EdgesPerHop: []int64{17}, Rooms: []int64{},
	}
	require.Equal(t, want, d)
	require.Equal(t, Demand{
		Nodes: 9, Rows: 9, Edges: 22, HopEdges: 12, NodesPerHop: []int64{3, 9}, EdgesPerHop: []int64{22}, Rooms: []int64{},
	}, d.Expected(9), "a margin of a quarter, rounded up, and up to the given nodes")
	require.Zero(t, (&Demand{}).Expected(9).Nodes)
}

// TestTrials holds the division of loaders that only read the graph.
func TestTrials(t *testing.T) {
	g := onDisk()
	require.Equal(t, Working{Workers: 1, Prefetch: 1, Depth: 8}, Reading().Working)
	for memory, want := range map[int64]Split{
		24008 + 213336 - 1: {Working: Working{1, 1, false, 8}, Slot: MinSlot},
		24008 + 213336:     {Working: Working{1, 1, false, 8}, Slot: MinSlot, Neighbors: true},
		64 << 20:           {Working: Working{3, 1, false, 128}, Slot: MinSlot, Neighbors: true},
	} {
		require.Equal(t, want, Measuring(&Request{Memory: memory, Workers: 3}, &g), memory)
	}
	g.TimesOfNodes, g.Weights, g.UserWeights = true, 300, 200
	for memory, want := range map[int64][2]bool{ // times, neighbours
		24008 + 667: {false, false}, 24008 + 668: {true, false}, 24008 + 213336: {true, false},
		24008 + 213336 + 400: {true, true},
	} {
		s := Measuring(&Request{Memory: memory}, &g)
		require.Equal(t, want, [2]bool{s.Weights, s.Neighbors}, memory)
	}
	g.TimesOfNodes = false
	g.Weights, g.UserWeights = 1000, 2000
	for memory, want := range map[int64][3]bool{ // stamp, neighbours, weights
		0:             {false, true, true},
		2*12000*8 - 1: {false, false, false},
		2 * 160000:    {true, true, false},
		2 * 163000:    {true, true, true},
	} {
		r := auto(memory, "degree")
		s := Scoring(&r, &g)
		require.Equal(t, want, [3]bool{s.Stamp, s.Neighbors, s.Weights}, memory)
		require.Equal(t, 2, s.Workers)
	}
}

// TestFewMissedListsShareReads: a batch keeps memory for the edges that it waits for, so that the fewer lists are
// missed, the more batches share reads.
func TestFewMissedListsShareReads(t *testing.T) {
	g := onDisk()
	g.Neighbors, g.Nodes, g.Types = 1<<30, 10_000_000, []int64{10_000_000}
	c := ofBatches()
	c.Nodes, c.NodesOfType, c.Edges, c.Expanded = 300_000, []int64{300_000}, 300_000, []int64{300_000}
	c.Wanted = 4 * c.Edges
	r := auto(1<<30, "belady")
	r.EpochBatches = 100
	z := newDivision(r, g, c)
	reads := func(held int64) float64 {
		of := Split{NeighborLists: z.graph.topology() / 10 * held, Together: 8 << 20, Superbatch: 100, Stored: true}
		return z.lists(&of).bytes
	}
	require.Less(t, reads(9), reads(0)/8)

	none, all := Split{}, Split{Together: 1 << 40, Stored: true}
	traces := int64(100 * c.traceRecord())
	require.Equal(t, none.records(z, 30)+traces, all.records(z, 30), "the traces of an epoch may wait")
	some := Split{Together: 8 << 20}
	require.Less(t, some.records(z, 30), all.records(z, 30))
}

// TestGroupsOfAnEpoch: groups have all batches of an epoch between them, whatever the windows, and as many of them as
// their memory is for.
func TestGroupsOfAnEpoch(t *testing.T) {
	c := ofBatches()
	c.Wanted = 1_234_567
	for _, batches := range []int64{1, 2, 17, 118, 1180} {
		r := auto(1<<30, "belady")
		r.EpochBatches = batches
		sizes := r.groups()
		require.Equal(t, batches, sizes[0], "an epoch in one group")
		require.EqualValues(t, 1, sizes[len(sizes)-1])
		for _, size := range sizes[:len(sizes)-1] {
			for _, missed := range []float64{0.01, 0.5, 1} {
				s := Split{Together: c.togetherBytes(size, missed)}
				for _, window := range []int64{1, 5, 100, batches} {
					total, largest := 0.0, 0.0
					for _, of := range c.groups(&s, batches, window, missed) {
						total += of.batches * of.times
						largest = max(largest, of.batches)
					}
					require.InEpsilon(t, float64(batches), total, 1e-9)
					require.GreaterOrEqual(t, largest, float64(min(size, window)))
				}
				inMemory := c.groups(&s, batches, batches, missed)
				s.Stored = true
				require.Equal(t, inMemory, c.groups(&s, batches, 5, missed), "windows in the scratch file end no group")
				s.Together -= c.togetherBytes(1, missed)
				require.Less(t, c.groups(&s, batches, batches, missed)[0].batches, float64(max(2, size)), "with less memory")
			}
		}
	}
}

// TestRunsOfPagesCostLess: a page by itself costs a request, a file from end to end one for each buffer.
func TestRunsOfPagesCostLess(t *testing.T) {
	const all = 100_000
	few, whole := pagesMoved(10, all), pagesMoved(20*all, all)
	require.InEpsilon(t, byPage*few.bytes, few.cost, 1e-2)
	require.InEpsilon(t, all*ssd.PageBytes, whole.bytes, 1e-6)
	require.InEpsilon(t, whole.bytes*(1+(byPage-1)*ssd.PageBytes/float64(MinSlot)), whole.cost, 1e-6)
}

// Plans have tables for the rows of all types up to the last one that has tensors which batches may have.
func TestPlansHaveRowsUpToTheLastTypeWithAny(t *testing.T) {
	g := Graph{Types: []int64{10, 200, 3000, 40_000}, Tensors: []Tensor{
		{Type: 1, Used: true}, {Type: 0, Used: true}, {Type: 2}, {Type: 3, Used: true, ByEdge: true},
	}}
	require.Equal(t, int64(210), g.planRows())
	g.Tensors[2].Used = true
	require.Equal(t, int64(3210), g.planRows())
	g.Tensors = nil
	require.Zero(t, g.planRows())
}
