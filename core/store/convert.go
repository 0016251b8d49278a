package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// tensorChunks are the sizes in which tensors are written, in order of preference. A disk reaches its rate with 1 MiB;
// with 4 the processor may be busy elsewhere for longer before the disk waits.
var tensorChunks = []int{4 << 20, 1 << 20, frugal.chunk}

// ConvertOptions are the choices of Convert.
type ConvertOptions struct {
	Memory    int64 // bytes to work in; 0 for no limit
	Overwrite bool  // replace a store that is at the path
	// Progress, which may be nil, is called with the rows of a stage that are done and those there are, by one
	// goroutine at a time.
	Progress func(stage string, done, total int64)
}

// Convert writes a graph as a store at path, which must not exist unless opts.Overwrite is set and it is a store.
//
// It streams: beside opts.Memory it needs a few MiB of heap, whatever the size of the graph. Edges that come sorted by
// target are copied. Others are sorted in memory, in rounds that each read all of them, where that moves fewer bytes
// than a temporary file of up to 13 bytes an edge or where the disk has no room for one. A budget that is too small is
// a *mem.BudgetError with the smallest that works, and a disk that is too small a *SpaceError, before anything is
// written. The store appears complete or not at all: it is built in path+".partial" and renamed. On an
// error or a cancellation nothing stays; what a killed process left is removed by the next Convert to the same path.
// Bad input is ErrInvalid and names tensor, place and value.
func Convert(ctx context.Context, fs ssd.FS, in Input, path string, opts ConvertOptions) error {
	return convert(ctx, fs, in, path, opts, mem.NewBudget(opts.Memory))
}

// convert is Convert with the budget given.
func convert(ctx context.Context, fs ssd.FS, in Input, path string, opts ConvertOptions, budget *mem.Budget) error {
	s, m, err := build(ctx, fs, in, path, opts, budget, func(*graph) (int64, error) { return 0, nil })
	if s == nil {
		return err
	}
	return s.conclude(ctx, m, err, opts.Overwrite)
}

// build writes all arrays of a store beside its path, once check has accepted the graph and said how much disk space is
// needed later for a while, beside them. It returns no site where nothing was written, else one that the caller
// concludes or discards, whatever the error.
func build(
	ctx context.Context, fs ssd.FS, in Input, path string, opts ConvertOptions, budget *mem.Budget,
	check func(*graph) (later int64, err error),
) (*site, *manifest.Manifest, error) {
	c := &conversion{sourceWriter: sourceWriter{fs: fs, budget: budget, progress: opts.Progress}}
	if c.progress == nil {
		c.progress = func(string, int64, int64) {}
	}
	var err error
	if c.graph, err = in.check(ctx, fs); err != nil {
		return nil, nil, err
	}
	if err := c.makePlan(); err != nil {
		return nil, nil, err
	}
	later, err := check(&c.graph)
	if err != nil {
		return nil, nil, err
	}
	if c.site, err = prepareSite(fs, path, opts.Overwrite); err != nil {
		return nil, nil, err
	}
	if err := c.countEdges(ctx); err != nil {
		return c.site, nil, err
	}
	if err := c.takeSpace(ctx, later); err != nil {
		return c.site, nil, err
	}
	m, err := c.write(ctx)
	return c.site, m, err
}

// conversion is one run of Convert.
type conversion struct {
	sourceWriter
	edgePlans   []edgePlan // of each edge type
	weightPlans []edgePlan // of each edge type; zero where no weights are asked for
	sorters     []sorters  // of each edge type
}

// sorters sort the edges of a type, and its weights, if it has any.
type sorters struct{ edges, weights *edgeSorter }

// countEdges reads the targets of all edges, so that before the first byte is written it is known which are sorted and
// how much the others spill.
func (c *conversion) countEdges(ctx context.Context) error {
	for i := range c.graph.edges {
		p := &c.graph.edges[i]
		count := func(edges edgeList, sources int64, plan edgePlan) (*edgeSorter, error) {
			s := &edgeSorter{
				fs: c.fs, dir: c.site.dir, edges: edges, sources: sources, targets: c.graph.nodes[p.to].count,
				plan: plan, budget: c.budget, progress: c.progress, relation: relationWords(p),
			}
			return s, s.count(ctx)
		}
		var of sorters
		var err error
		if of.edges, err = count(p.edges, c.graph.nodes[p.from].count, c.edgePlans[i]); err == nil && p.weights != nil {
			of.weights, err = count(p.weightEdges(), weightLimit(p.weights.DType), c.weightPlans[i])
		}
		if err != nil {
			return err
		}
		c.sorters = append(c.sorters, of)
	}
	return nil
}

// makePlan chooses sizes that keep every step within the budget.
func (c *conversion) makePlan() error {
	limit := c.budget.Limit()
	g := &c.graph
	need := func(chunk int) int64 {
		most := tensorsBytes(g.attachments, chunk)
		for i := range g.nodes {
			most = max(most, g.nodes[i].bytes(chunk))
		}
		for i := range g.edges {
			most = max(most, tensorsBytes(g.edges[i].tensors, chunk))
		}
		return most
	}
	for _, c.tensorChunk = range tensorChunks {
		if limit <= 0 || need(c.tensorChunk) <= limit {
			break
		}
	}
	smallest := need(frugal.chunk)
	for i := range g.edges {
		e := &g.edges[i]
		plan, err := planEdges(e.edges, g.nodes[e.from].count, g.nodes[e.to].count, limit, runtime.NumCPU())
		var short *mem.BudgetError
		if errors.As(err, &short) {
			smallest = max(smallest, short.Need)
		} else if err != nil {
			return err
		}
		c.edgePlans = append(c.edgePlans, plan)
		var weights edgePlan
		if e.weights != nil {
			if weights, err = g.planWeights(e, limit); errors.As(err, &short) {
				smallest = max(smallest, short.Need)
			} else if err != nil {
				return err
			}
		}
		c.weightPlans = append(c.weightPlans, weights)
	}
	if limit > 0 && smallest > limit {
		return needsMemory("converting this graph", smallest, limit)
	}
	return nil
}

// bytes returns the memory of writing what belongs to a node type.
func (p *nodePart) bytes(chunk int) int64 {
	most := tensorsBytes(p.tensors, chunk)
	for _, t := range p.splits {
		most = max(most, arrayWriterBytes(chunk)+idReaderBytes(t.Source, splitRows))
	}
	return most
}

// tensorsBytes returns the memory of writing one tensor after the other.
func tensorsBytes(tensors []NamedSource, chunk int) int64 {
	most := int64(0)
	for _, t := range tensors {
		most = max(most, t.most(func(s Source) int64 { return planTensor(s, chunk).bytes }))
	}
	return most
}

// write writes all arrays, one type after the other, and returns the manifest.
func (c *conversion) write(ctx context.Context) (*manifest.Manifest, error) {
	m := &manifest.Manifest{}
	if err := reissue(m); err != nil {
		return nil, err
	}
	if c.graph.details != "" {
		addConversion(m, c.graph.details)
	}
	for i := range c.graph.nodes {
		node, err := c.writeNodes(ctx, &c.graph.nodes[i])
		if err != nil {
			return nil, err
		}
		m.NodeTypes = append(m.NodeTypes, node)
	}
	for i := range c.graph.edges {
		edge, err := c.writeEdges(ctx, &c.graph.edges[i], c.sorters[i])
		if err != nil {
			return nil, err
		}
		m.EdgeTypes = append(m.EdgeTypes, edge)
	}
	for i, t := range c.graph.attachments {
		written, err := c.writeTensor(ctx, tensorFile(attachedPrefix, i, t.Name), attachmentLabel, t, anyValue)
		if err != nil {
			return nil, err
		}
		m.Attachments = append(m.Attachments, written)
	}
	return m, nil
}

// writeNodes writes splits and tensors of a node type.
func (c *conversion) writeNodes(ctx context.Context, p *nodePart) (*manifest.NodeType, error) {
	node := &manifest.NodeType{Name: p.name, Count: p.count}
	for i, t := range p.splits {
		written, err := c.writeSplit(ctx, p, tensorFile(p.file+"split", i, t.Name), t)
		if err != nil {
			return nil, err
		}
		node.Splits = append(node.Splits, written)
	}
	for i, t := range p.tensors {
		written, err := c.writeTensor(ctx, tensorFile(p.file+"node", i, t.Name), p.label, t, anyValue)
		if err != nil {
			return nil, err
		}
		node.Tensors = append(node.Tensors, written)
	}
	return node, nil
}

// writeEdges writes the tensors of an edge type, sorts the counted edges and writes the topology and, where they are
// asked for, weights.
func (c *conversion) writeEdges(ctx context.Context, p *edgePart, sorters sorters) (*manifest.EdgeType, error) {
	edge := &manifest.EdgeType{Source: p.source, Relation: p.relation, Target: p.target, Count: p.edges.count}
	for i, t := range p.tensors {
		check := visitRows(anyValue)
		if p.weights != nil && t.Name == p.weights.Name {
			check = weightCheck(p.weights, p.label)
		}
		written, err := c.writeTensor(ctx, tensorFile(p.file+"edge", i, t.Name), p.label, t, check)
		if err != nil {
			return nil, err
		}
		edge.Tensors = append(edge.Tensors, written)
	}
	if err := c.writeTopology(ctx, sorters.edges, p.file, edge); err != nil || p.weights == nil {
		return edge, err
	}
	return edge, c.writeWeights(ctx, p, sorters.weights, edge)
}

// relationWords ends what progress says of an edge type.
func relationWords(p *edgePart) string {
	if p.relation == "" {
		return ""
	}
	return " of " + p.relation
}

// writeTopology writes the counted edges.
func (c *conversion) writeTopology(ctx context.Context, s *edgeSorter, file string, edge *manifest.EdgeType) error {
	defer s.close()
	var err error
	var writers []*arrayWriter
	open := func(name string, dtype manifest.DType) sink {
		var w *arrayWriter
		if err == nil {
			w, err = newArrayWriter(s.fs, s.dir, file+name, dtype, nil, s.plan.chunk, s.budget)
		}
		if err == nil {
			writers = append(writers, w)
		}
		return rowSink{w}
	}
	defer func() {
		for _, w := range writers {
			w.abort()
		}
	}()
	out := topologySinks{indptr: open("indptr", manifest.DType_INT64), indices: open("indices", indicesType(s.sources))}
	if s.sorted {
		s.plan.number = 0
	} else if !s.edges.unnumbered {
		out.edgeIDs = open(edgeIDsName, s.edges.numbers)
	}
	if err != nil {
		return err
	}
	if err := s.sort(ctx, out); err != nil {
		return err
	}
	if edge.Indptr, err = writers[0].finish(s.targets + 1); err != nil {
		return err
	}
	if edge.Indices, err = writers[1].finish(s.edges.count); err != nil {
		return err
	}
	if out.edgeIDs != nil {
		edge.EdgeIds, err = writers[2].finish(s.edges.count)
	}
	edge.Unnumbered = !s.sorted && s.edges.unnumbered
	return err
}

// newUUID returns 16 random bytes, as a version 4 UUID.
func newUUID() ([]byte, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("store: making a uuid: %w", err)
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id, nil
}
