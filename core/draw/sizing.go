package draw

import (
	"cmp"
	"runtime"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/history"
	"freshgo/core/packed"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/store"
)

// The inputs of package sizing: the memory options, the sizes of the graph's arrays, and the costs of batches.

// RequestOf returns the memory options.
func RequestOf(m *Sampling, g *sizing.Graph) sizing.Request {
	o := &m.Options
	r := sizing.Request{
		Memory: o.Memory, FeatureCache: o.FeatureCache, NeighborCache: o.NeighborCache, Cache: o.Cache,
		Workers: min(cmp.Or(o.Workers, runtime.NumCPU()), most), Prefetch: ahead(o), Holds: o.Holds,
		EpochBatches: max(1, m.NumBatches()), Superbatch: o.Superbatch, Reorder: o.Reorder,
		TraceMemory: o.TraceMemory, BufferMemory: o.BufferMemory, Transfer: o.Transfer,
		History: HistorySizes(m, g),
	}
	if o.Scratch != "" {
		r.Scratch = o.ScratchBytes
	}
	if why := m.Parts.unplannable(); why != nil {
		r.Unplannable = why.Error()
	}
	return r
}

// ahead returns the batches to prepare ahead, or sizing.Auto. With a history, whose lag they bound, training would
// depend on the threads of the machine.
func ahead(o *Options) int {
	if o.Prefetch == Auto && o.History != nil {
		return sizing.FewAhead
	}
	return min(o.Prefetch, most)
}

// HistorySizes returns the memory of the history.
func HistorySizes(m *Sampling, g *sizing.Graph) (of sizing.History) {
	o, n := m.Options.History, m.Parts.NumNodes
	if o == nil {
		return of
	}
	of.Buffer = sizing.HistoryBuffer(o.Memory, g.Tensors)
	c := m.Options.HistoryConfig(&m.Parts, of.Buffer, 1)
	of.Memory = history.MetadataBytes(c)
	if c.GradFraction == 1 && len(m.Options.Tables) == 0 {
		of.Ahead = of.Memory
	}
	if !o.Outside {
		of.Memory += of.Buffer
	}
	if o.Policy == history.Performance { // which weighs what embeddings save
		for layer := 1; layer <= c.Layers; layer++ {
			if c.Keeps(layer) {
				of.Memory += 4 * n // expect's vector
			}
		}
	}
	return of
}

// SizesOf returns the sizes of the parts of the graph.
func SizesOf(m *Sampling) sizing.Graph {
	p := &m.Parts
	g := graphSizes{checksums: m.Options.Checksums, Graph: sizing.Graph{
		Nodes: p.NumNodes, Stamp: sample.StampBytes(p.NumNodes),
		Fixed:   m.Seeds.bytes() + seedTimesBytes(m) + 8*int64(len(m.seedSums)) + m.Locked,
		Growing: func(memory int64) int64 { return trainedBytes(m, memory) },
	}}
	g.Fixed += g.Growing(m.Options.Memory)
	for t := range p.Schema.NumTypes() {
		g.Types = append(g.Types, p.Schema.NumNodes(t))
	}
	for i := range p.Tensors {
		g.Tensors = append(g.Tensors, p.tensorSizes(&p.Tensors[i]))
	}
	if m.listed() {
		g.Order = m.Seeds.Count() * 8
	}
	weightSizes(m, &g)
	p.addSizes(p, &g)
	g.Packs = packs(m, &g.Graph)
	p.Schema.packs = g.Packs
	return g.Graph
}

// packs reports whether neighbours that are held whole are packed: where the sampler can read them so, and all arrays
// would take more than half of the memory. Reading them packed takes the sampler 1.06 times the processor time.
func packs(m *Sampling, g *sizing.Graph) bool {
	o := &m.Options
	if !g.OnDisk || o.Memory == 0 && o.NeighborCache <= 0 || !m.Kind.MayPack(o.asks(m.Parts.Schema)) {
		return false
	}
	all := g.Fixed + g.Neighbors + g.EdgeIDs
	for i := range g.Tensors {
		all += g.Tensors[i].Rows * int64(g.Tensors[i].Width)
	}
	return all > o.Memory/2
}

// addMemory adds the sizes of a Graph.
func (p *Parts) addMemory(g *graphSizes) {
	g.Fixed += p.allocated
	g.Held, g.Weights, g.UserWeights = g.Weights, 0, 0
}

// addStored adds the sizes of a store.
func (p *Parts) addStored(g *graphSizes) {
	g.OnDisk = true
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Trained == nil {
			g.read(&t.OnDisk.Array)
		}
	}
	p.topologySizes(g)
	g.Choosing = p.NumNodes*4 + 2*graph.ScanPiece + cache.NeighborScratchBytes(g.Lists) // see chooseLists
}

// tensorSizes describes a tensor.
func (p *Parts) tensorSizes(t *Tensor) sizing.Tensor {
	return sizing.Tensor{
		Width: t.Width, Rows: t.NumRows, ByEdge: t.ByEdge, Type: t.Type, Used: p.Reaches(t), Span: t.span,
		Trained: t.Trained != nil,
	}
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

// topologySizes counts the neighbour lists of a store and their accompanying arrays.
func (p *Parts) topologySizes(g *graphSizes) {
	types := p.Schema
	for i, r := range types.stored() {
		g.Fixed += r.OnDisk.IndptrBytes()
		g.read(r.OnDisk.Indices)
		g.Neighbors += r.NumEdges * int64(r.OnDisk.Indices.Layout.RowBytes)
		g.PackedNeighbors += packed.Bytes(r.NumEdges, packed.Width(types.NumNodes(r.Source)))
		columns := 1
		if ids := r.OnDisk.EdgeIDs; ids != nil && !types.Walked && !r.unnumbered {
			columns++
			g.read(ids)
			g.EdgeIDs += r.NumEdges * int64(ids.IDBytes())
			g.PackedEdgeIDs += packed.Bytes(r.NumEdges, packed.Width(r.NumEdges))
		}
		if types.MayList(i) {
			g.Lists += types.NumNodes(r.Target)
			g.ListTables += cache.NeighborTableBytes(types.NumNodes(r.Target)) + cache.ColumnsBytes(columns)
		}
	}
	for _, t := range p.stored {
		if t.Order != nil {
			g.Loading = max(g.Loading, t.Order.LoadBytes())
		}
	}
	if p.ordered() {
		g.Fixed += 4 * p.NumNodes // the row of every node
	}
}

// weightSizes counts the weights or times that edges are drawn by.
func weightSizes(m *Sampling, g *graphSizes) {
	for _, t := range weightTensors(m) {
		if t == nil {
			continue
		}
		whole := graph.WeightColumn{Column: t.column()}
		g.Weights += whole.Bytes()
		if of := t.positions; of != nil {
			g.Checks += graph.PositionBytes(of)
			g.read(&of.Array)
			g.read(&of.Sums)
		} else { // in the user's order, while they are put into the order of positions
			g.UserWeights = max(g.UserWeights, t.Bytes())
		}
	}
	sizeTimes(m, &g.Graph)
}
