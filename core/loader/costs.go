package loader

import (
	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/links"
	"freshgo/core/plan"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// costs returns the memory of the parts of a loader with batches of a demand, sampled by workers of a sampler, which is
// nil where nothing was measured.
func (m *sampling) costs(d *sizing.Demand, of *sample.Sampler, g *sizing.Graph) sizing.Costs {
	batch := m.parts.types.demanded(d)
	c := sizing.Costs{
		Nodes: d.Nodes, NodesOfType: batch.nodesOfTypes(), Edges: d.Edges, Expanded: m.expanded(d),
		Batch:       batch.bytes(&m.parts, m.options.BatchSize) + m.levelBytes(d),
		Rank:        rankBytes(m.options.Cache, m.parts.numNodes),
		FetchWorker: graph.ScratchBytes(d.HopEdges), FetchBatch: graph.ScratchBytes(d.Edges) + m.options.owningBytes(d),
		ResidentSlot: residentBytes, PlannedSlot: residentBytes,
	}
	if of != nil {
		demand := m.parts.types.samplerDemand(d)
		c.Worker, c.StampWorker = of.WorkerBytes(demand, false), of.WorkerBytes(demand, true)
	}
	if m.options.History != nil {
		c.PlannedSlot += plan.PresenceBytes
		if len(d.EdgesPerHop) > 0 {
			c.Prune = m.pruningBytes(d)
		}
	}
	if m.weighs() {
		c.Score = cache.ExpectedBytes(g.Nodes) - 4*g.Nodes // what expect takes for a while beside its vectors
		if g.OnDisk {
			c.Score += min(2*graph.ScanPiece, g.Neighbors+ssd.PageBytes) // see graph.Rows.Scan
		}
	}
	if g.OnDisk {
		c.Lookup = lookupBytes(max(d.Nodes, m.fetched(d)))
		if m.options.disjoint() {
			c.Lookup += nodeIndexBytes(d.Nodes)
		}
	}
	return c
}

// expanded is the nodes whose lists each hop of a batch of a demand draws from; nil where nothing was measured.
func (m *sampling) expanded(d *sizing.Demand) (nodes []int64) {
	types := m.parts.types
	if len(d.NodesPerHop) == 0 {
		return nil
	}
	for hop := range types.hops {
		n := int64(0)
		for t := range types.types() {
			n += d.NodesPerHop[t*(types.hops+1)+hop]
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// fetched is the edges that a batch of a demand fetches at once.
func (m *sampling) fetched(d *sizing.Demand) int64 {
	o, n := &m.options, d.HopEdges
	if o.weighted() || o.TimeAttr != "" || o.Labor != nil {
		n = max(n, sample.FetchedEdges) // of whole lists
	}
	if k := o.Links; k != nil && (k.Strict || k.Exclude != links.ExcludeNone) { // which lists are looked through for
		n = max(n, min(sample.FetchedEdges, m.parts.numEdges))
	}
	return n
}

// levelBytes returns the most memory of the level tables of a batch.
func (m *sampling) levelBytes(d *sizing.Demand) int64 {
	if m.options.History == nil || len(d.EdgesPerHop) == 0 { // the latter: nothing was measured
		return 0
	}
	shape := m.parts.types.shape()
	return shape.LevelBytes(d.NodesPerHop, d.EdgesPerHop, m.parts.transposed)
}

// pruningBytes returns the memory that a preparer needs to prune.
func (m *sampling) pruningBytes(d *sizing.Demand) int64 {
	shape := m.parts.types.shape()
	return shape.BatchBytes(d.NodesPerHop, d.EdgesPerHop)
}

// rankBytes returns the memory that rank takes for a while, beyond the address table.
func rankBytes(kind string, numNodes int64) int64 {
	switch kind {
	case "expected":
		return cache.ExpectedBytes(numNodes) - 4*numNodes
	case "presc":
		return cache.ExpectedBytes(numNodes)
	}
	return 0
}
