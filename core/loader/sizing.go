package loader

import (
	"cmp"
	"runtime"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/history"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/store"
)

// What package sizing is told of a loader: what the options ask for, how large the arrays of the graph are, and what
// batches cost.

// request returns the memory that the options ask for.
func (m *sampling) request(g *sizing.Graph) sizing.Request {
	o := &m.options
	r := sizing.Request{
		Memory: o.Memory, FeatureCache: o.FeatureCache, NeighborCache: o.NeighborCache, Cache: o.Cache,
		Workers: min(cmp.Or(o.Workers, runtime.NumCPU()), most), Prefetch: min(o.Prefetch, most), Holds: o.Holds,
		EpochBatches: m.seeds.count()/o.BatchSize + 1, Superbatch: o.Superbatch, Reorder: o.Reorder,
		TraceMemory: o.TraceMemory, BufferMemory: o.BufferMemory,
		History: m.historySizes(g),
	}
	if o.Scratch != "" {
		r.Scratch = o.ScratchBytes
	}
	if why := m.parts.unplannable(); why != nil {
		r.Unplannable = why.Error()
	}
	return r
}

// historySizes returns the memory of the history.
func (m *sampling) historySizes(g *sizing.Graph) (of sizing.History) {
	o, n := m.options.History, m.parts.numNodes
	if o == nil {
		return of
	}
	of.Buffer = sizing.HistoryBuffer(o.Memory, g.Tensors)
	c := m.options.historyConfig(&m.parts, of.Buffer, 1)
	of.Memory = history.MetadataBytes(c)
	if c.GradFraction == 1 {
		of.Ahead = of.Memory
	}
	if !o.Outside {
		of.Memory += of.Buffer
	}
	if m.weighs() {
		for layer := 1; layer <= c.Layers; layer++ {
			if c.Keeps(layer) {
				of.Memory += 4 * n // expect's vector
			}
		}
	}
	return of
}

// weighs reports whether the history's policy weighs what embeddings save.
func (m *sampling) weighs() bool {
	return m.options.History != nil && m.options.History.Policy == history.Performance
}

// graphSizes returns the sizes of the parts of the graph.
func (m *sampling) graphSizes() sizing.Graph {
	p := &m.parts
	g := graphSizes{checksums: m.options.Checksums, Graph: sizing.Graph{
		OnDisk: p.store != nil, Nodes: p.numNodes, Stamp: sample.StampBytes(p.numNodes),
		Fixed: m.seeds.bytes() + m.seedTimesBytes() + 8*int64(len(m.seedSums)),
	}}
	for t := range p.types.types() {
		g.Types = append(g.Types, p.types.count(t))
	}
	for i := range p.tensors {
		g.Tensors = append(g.Tensors, p.tensorSizes(&p.tensors[i]))
	}
	if m.reorders() {
		g.Order = m.seeds.count() * 8
	}
	m.weightSizes(&g)
	if p.store == nil {
		g.Fixed += p.inMemory.Used()
		g.Held, g.Weights, g.UserWeights = g.Weights, 0, 0
		return g.Graph
	}
	for i := range p.tensors {
		g.read(&p.tensors[i].onDisk.Array)
	}
	p.topologySizes(&g)
	g.Choosing = choosingBytes(p.numNodes, g.Lists)
	return g.Graph
}

// tensorSizes describes a tensor.
func (p *parts) tensorSizes(t *tensor) sizing.Tensor {
	of := sizing.Tensor{Width: t.width, Rows: t.numRows, ByEdge: t.byEdge, Type: t.typ, Used: p.reaches(t)}
	if t.onDisk != nil {
		of.Span = int(t.onDisk.Layout.SpanBytes())
	}
	return of
}

// graphSizes are the sizes of a graph while they are added up.
type graphSizes struct {
	sizing.Graph
	checksums bool // of the pages that are read
}

// read counts what reading an array takes, whole or by row.
func (g *graphSizes) read(a *store.Array) {
	g.Loading = max(g.Loading, a.LoadBytes())
	if g.checksums {
		g.Checks += a.CRCBytes()
	}
}

// topologySizes counts the neighbour lists of a store and what lies beside them.
func (p *parts) topologySizes(g *graphSizes) {
	types := p.types
	for i := range types.relations {
		r := &types.relations[i]
		if !r.used {
			continue
		}
		g.Fixed += r.onDisk.Indptr.Bytes
		g.read(r.onDisk.Indices)
		g.Neighbors += r.numEdges * int64(r.onDisk.Indices.Layout.RowBytes)
		if ids := r.onDisk.EdgeIDs; ids != nil && !types.walked && !r.unnumbered {
			g.read(ids)
			g.EdgeIDs += r.numEdges * int64(ids.Layout.RowBytes)
		}
		if types.mayList(i) {
			g.Lists += types.count(r.target)
			g.ListTables += cache.NeighborTableBytes(types.count(r.target))
		}
	}
	ordered := false
	for _, t := range p.store.NodeTypes() {
		if t.Order != nil {
			ordered = true
			g.Loading = max(g.Loading, t.Order.LoadBytes())
		}
	}
	if ordered {
		g.Fixed += 4 * p.numNodes // the row of every node
	}
}

// weightSizes counts the weights or times that edges are drawn by.
func (m *sampling) weightSizes(g *graphSizes) {
	for _, t := range m.weightTensors() {
		if t == nil {
			continue
		}
		g.Weights += weightBytes(t)
		if m.parts.store != nil {
			g.UserWeights = max(g.UserWeights, m.userWeights(t))
			if of := m.byPosition(t); of != nil {
				g.Checks += graph.PositionBytes(of)
				g.read(&of.Array)
				g.read(&of.Sums)
			}
		}
	}
	times, largest := m.parts.types.sizeTimes(m)
	g.Weights, g.UserWeights = g.Weights+times, max(g.UserWeights, largest)
}
