package window

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
	"freshgo/core/scratch"
)

// sampled is a batch that the inspector has sampled ahead. Its rows wait for the
// planner and its trace, the subgraph, until it is executed: in memory, or in the
// scratch file where memory has no room. Where neither has, or the file loses it,
// the batch is sampled again then, which gives the same: a batch is a function of
// its key.
type sampled struct {
	cache    *Cache
	epoch    int64
	index    int64 // the number of its seeds and its key
	numSeeds int64
	ends     int64 // of links
	nodes    int64
	edges    int64
	perHop   hopCounts
	numRows  int          // distinct rows that are planned
	rows     plan.Record  // these, uint32; until they are planned, or executed where byRows
	planned  forecastRows // positions of the rows that will be read among the drawn ones; until the batch is executed
	trace    plan.Record
	byRows   bool // the trace leaves nodes out: they are the rows
	lengths  lengths
	spans    []span // of the tables that training changes
}

// lengths are the lengths of the parts of a trace that not all subgraphs have.
type lengths struct{ weights, trees, ptrs, positions, sources int64 }

// traceScratch is memory for the pieces of a trace.
type traceScratch struct {
	words []uint32
	bytes []byte
}

type hopCounts struct{ nodes, edges []int64 }

// Len returns the number of rows.
func (s *sampled) Len() int { return s.numRows }

// Load returns the rows, as they are planned. Where their record is lost, the batch is sampled again.
func (s *sampled) Load(ctx context.Context) (plan.Batch, func(), error) {
	data, release, err := s.rows.Load(ctx)
	if err == nil {
		return mem.View[uint32](data), release, nil
	}
	if !errors.Is(err, scratch.ErrBroken) {
		return nil, nil, err
	}
	var r draw.Request
	var found draw.BatchRows
	err = s.again(ctx, &r, func(g *sample.Subgraph) { found.FillGraph(&s.cache.features.CachedTypes, g) })
	if set := s.planned.set(); err == nil && set != nil {
		found.Keep(set)
	}
	return found.Rows, func() {}, err
}

// again samples a batch whose trace is lost, and passes it to use in a worker's memory.
func (s *sampled) again(ctx context.Context, r *draw.Request, use func(g *sample.Subgraph)) error {
	c := s.cache
	c.counters.Resampled.Add(1)
	order, err := c.draw.NewSeedOrder(ctx, c.draw.EpochKey(s.epoch))
	if err != nil {
		return err
	}
	defer order.Free()
	if err := order.Batch(ctx, s.index, r); err != nil {
		return err
	}
	worker, err := c.draw.Lease(ctx)
	if err != nil {
		return err
	}
	defer c.draw.GiveBack(worker)
	var g sample.Subgraph
	if err := c.draw.Draw(ctx, worker, order.BatchKey(s.index), r, &g); err != nil {
		return err
	}
	use(&g)
	return nil
}

// dropRows frees what only the planner needs.
func (s *sampled) dropRows() {
	s.rows.Free()
	s.rows = lost{}
}

func (s *sampled) free() {
	s.dropRows()
	s.planned.free()
	s.dropTrace()
}

// endPlanning frees memory that only planning needs.
func (s *sampled) endPlanning() {
	if !s.byRows {
		s.dropRows()
	}
}

// fetch begins to load what load does.
func (s *sampled) fetch(ctx context.Context) {
	plan.Fetch(ctx, s.trace)
	if s.byRows {
		plan.Fetch(ctx, s.rows)
	}
}

// dropTrace frees what only the executor needs.
func (s *sampled) dropTrace() {
	s.trace.Free()
	s.trace = lost{}
	s.dropRows()
}

// keep copies a sampled subgraph to the record store, without its nodes where the planned rows, which are kept, are
// these, and without positions that no batch needs. Where there is no room, the trace is lost, which is no error.
func (s *sampled) keep(c *Cache, rows []uint32, g *sample.Subgraph, r *draw.Request, own *traceScratch) {
	if int64(len(g.Row)) > math.MaxUint32 {
		return
	}
	// Where plans are in memory, that is for rows until they are planned.
	s.byRows = c.draw.Split.Stored && sameNodes(rows, g.Nodes)
	kept := *g
	if !c.positions {
		kept.Pos = nil
	}
	trace, err := c.recordStore.tryPut(s.pack(&kept, r, own)...)
	if err != nil {
		trace, s.byRows = lost{}, false
	}
	s.trace = trace
}

// sameNodes reports whether rows are nodes, in their order.
func sameNodes(rows []uint32, nodes []int64) bool {
	if len(rows) != len(nodes) {
		return false
	}
	for i, node := range nodes {
		if int64(rows[i]) != node {
			return false
		}
	}
	return true
}

// pack returns the pieces of a trace, in the memory of own.
func (s *sampled) pack(g *sample.Subgraph, r *draw.Request, own *traceScratch) [][]byte {
	words := own.words[:0]
	if !s.byRows {
		for _, node := range g.Nodes {
			words = append(words, uint32(node))
		}
	}
	others := len(words)
	words = packedSources(words, g.Row)
	own.words, own.bytes = words, packedSteps(packedSteps(own.bytes[:0], g.Ptr), g.Pos)
	s.lengths = lengths{
		weights: int64(len(g.Weight)), trees: int64(len(g.Tree)), ptrs: int64(len(g.Ptr)),
		positions: int64(len(g.Pos)), sources: int64(len(words) - others),
	}
	return [][]byte{
		mem.Bytes(r.Inputs), mem.Bytes(r.Places.Ends), mem.Bytes(g.Weight), mem.Bytes(g.Tree), mem.Bytes(words), own.bytes,
	}
}

// load reads a trace into a subgraph, and its inputs and links into the request, reusing their memory.
func (s *sampled) load(ctx context.Context, g *sample.Subgraph, r *draw.Request) error {
	data, release, err := s.trace.Load(ctx)
	if err != nil {
		return err
	}
	defer release()
	var nodes []byte
	if s.byRows {
		rows, release, err := s.rows.Load(ctx)
		if err != nil {
			return err
		}
		defer release()
		nodes = rows
	}
	s.unpack(data, nodes, g, r)
	return nil
}

// unpack is load for a trace in memory, and nodes if the trace omits them.
func (s *sampled) unpack(data, nodes []byte, g *sample.Subgraph, r *draw.Request) {
	take := func(n int64) []byte {
		piece := data[:n]
		data = data[n:]
		return piece
	}
	r.Inputs = append(r.Inputs[:0], mem.View[int64](take(8*s.numSeeds))...)
	r.Places.Ends = append(r.Places.Ends[:0], mem.View[int64](take(8*s.ends))...)
	g.Weight = append(g.Weight[:0], mem.View[float32](take(4*s.lengths.weights))...)
	g.Tree = append(g.Tree[:0], mem.View[uint32](take(4*s.lengths.trees))...)
	if !s.byRows {
		nodes = take(4 * s.nodes)
	}
	g.Nodes = g.Nodes[:0]
	for _, node := range mem.View[uint32](nodes) {
		g.Nodes = append(g.Nodes, int64(node))
	}
	g.Row = unpackedSources(g.Row, s.edges, mem.View[uint32](take(4*s.lengths.sources)))
	g.Ptr, data = unpackedSteps(g.Ptr, s.lengths.ptrs, data)
	g.Pos, _ = unpackedSteps(g.Pos, s.lengths.positions, data)
	g.NodesPerHop, g.EdgesPerHop = s.perHop.nodes, s.perHop.edges
}

// packedSources appends the sources of edges to dst. Nearly every one is the next node, which no edge before has: a bit
// says so. The others follow, and one beyond the next node makes the node behind it the next.
func packedSources(dst, sources []uint32) []uint32 {
	bits, next := len(dst), uint32(0)
	dst = append(dst, make([]uint32, wordsOf(len(sources)))...)
	for i, source := range sources {
		if source == next {
			dst[bits+i/32] |= 1 << (i % 32)
		} else {
			dst = append(dst, source)
		}
		next = max(next, source+1)
	}
	return dst
}

// unpackedSources returns count sources from what packedSources has appended.
func unpackedSources(dst []uint32, count int64, packed []uint32) []uint32 {
	words := wordsOf(int(count))
	bits, others := packed[:words], packed[words:]
	dst, next := dst[:0], uint32(0)
	for i := range count {
		source := next
		if bits[i/32]>>(i%32)&1 == 0 {
			source, others = others[0], others[1:]
		}
		dst = append(dst, source)
		next = max(next, source+1)
	}
	return dst
}

func wordsOf(bits int) int { return (bits + 31) / 32 }

// packedSteps appends each value less the value before it to dst, as a varint: one byte for nearly every degree, and
// for positions of one target's edges, which are near each other.
func packedSteps(dst []byte, values []int64) []byte {
	before := int64(0)
	for _, v := range values {
		dst = binary.AppendVarint(dst, v-before)
		before = v
	}
	return dst
}

// unpackedSteps returns count values from what packedSteps has appended, in the memory of dst, and the rest.
func unpackedSteps(dst []int64, count int64, packed []byte) ([]int64, []byte) {
	dst = dst[:0]
	v := int64(0)
	for range count {
		n, step := 1, int64(packed[0]>>1)^-int64(packed[0]&1)
		if packed[0] >= 1<<7 {
			step, n = binary.Varint(packed)
		}
		v, packed = v+step, packed[n:]
		dst = append(dst, v)
	}
	return dst, packed
}
