package store

import (
	"context"
	"runtime"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// EdgeSource is an edge list of shape [2, edges]: row 0 the sources, row 1 the targets.
type EdgeSource = Source

// CSC is a graph in memory, in-edges by target: those of node t are at the positions Indptr.Range(t), in the user's
// order. One of Indices32 and Indices64 holds the sources, and one of EdgeIDs32 and EdgeIDs64 the user's edge
// numbers, or neither where these are the positions. The slices are valid until Close.
type CSC struct {
	Indptr    *offsets.Table
	Indices32 []int32
	Indices64 []int64
	EdgeIDs32 []uint32
	EdgeIDs64 []int64
	blocks    []*mem.Block
}

// NumEdges returns the number of edges.
func (c *CSC) NumEdges() int64 { return c.Indptr.NumEdges() }

// Close frees the graph. Closing twice is no error.
func (c *CSC) Close() {
	for _, b := range c.blocks {
		b.Free()
	}
	if c.Indptr != nil {
		c.Indptr.Free()
	}
	*c = CSC{Indptr: offsets.Of([]int64{0})}
}

// BuildRelation sorts an edge list in memory, which messages call name, by target, stably, into memory counted as
// Topology. An id that is no node of its type is an ErrInvalid that names its place. While it runs, edges that are not
// sorted need another 6 to 17 bytes each, counted as Convert.
//
// It is Convert's sorter with everything in memory. A counting sort straight into the result would need no more than
// that, but misses the caches four times for each edge and took four times as long.
func BuildRelation(
	ctx context.Context, edges EdgeSource, name string, numSources, numTargets int64, budget *mem.Budget,
) (*CSC, error) {
	if edges.File != "" {
		return nil, invalid("%s is the file %s, expected memory", name, edges.File)
	}
	list, err := checkEdges(nil, []Source{edges}, name)
	if err != nil {
		return nil, err
	}
	for _, n := range []int64{numSources, numTargets} {
		if n < 0 || n > maxCount {
			return nil, invalid("%s: %d nodes, expected 0 to %d", name, n, int64(maxCount))
		}
	}
	if list.numbers == manifest.DType_UINT40 {
		list.numbers = manifest.DType_INT64 // in memory
	}
	plan, err := planEdges(list, numSources, numTargets, 0, runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	s := &edgeSorter{edges: list, sources: numSources, targets: numTargets, plan: plan, budget: budget,
		progress: func(string, int64, int64) {}}
	defer s.close()
	c := new(CSC)
	if err := c.build(ctx, s); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *CSC) build(ctx context.Context, s *edgeSorter) error {
	if err := s.count(ctx); err != nil {
		return err
	}
	var err error
	alloc := func(rows int64, dtype manifest.DType) *memorySink {
		var block *mem.Block
		if err == nil {
			block, err = s.budget.Alloc(mem.Topology, rows*int64(dtype.Size()))
		}
		if err != nil {
			return &memorySink{}
		}
		c.blocks = append(c.blocks, block)
		return &memorySink{left: block.Bytes()}
	}
	e, sourceType, idType := s.edges.count, indicesType(s.sources), s.edges.numbers
	indices := alloc(e, sourceType)
	if err != nil {
		return err
	}
	b, err := offsets.NewBuilder(s.budget, mem.Topology, s.targets, e)
	if err != nil {
		return err
	}
	c.Indptr = b.Table()
	if sourceType == manifest.DType_INT32 {
		c.Indices32 = mem.View[int32](indices.left)
	} else {
		c.Indices64 = mem.View[int64](indices.left)
	}
	out := topologySinks{indptr: &offsetSink{builder: b}, indices: indices}
	if s.sorted {
		s.plan.number = 0
	} else {
		ids := alloc(e, idType)
		out.edgeIDs = ids
		if idType == manifest.DType_UINT32 {
			c.EdgeIDs32 = mem.View[uint32](ids.left)
		} else {
			c.EdgeIDs64 = mem.View[int64](ids.left)
		}
	}
	if err != nil {
		return err
	}
	return s.sort(ctx, out)
}

// offsetSink takes offsets into a table.
type offsetSink struct {
	builder *offsets.Builder
	next    int64
}

func (o *offsetSink) write(p []byte) error {
	more := mem.View[int64](p)
	o.builder.Put(o.next, more)
	o.next += int64(len(more))
	return nil
}

// memorySink takes an array into memory.
type memorySink struct{ left []byte }

func (m *memorySink) write(p []byte) error {
	m.left = m.left[copy(m.left, p):]
	return nil
}
