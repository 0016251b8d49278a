package loader

import (
	"freshgo/core/batch"
	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/graph"
	"freshgo/core/history"
	"freshgo/core/links"
	"freshgo/core/plan"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// costsOf returns the memory of the parts of a loader with batches of a demand, sampled by workers of a sampler, which
// is nil where nothing was measured.
func costsOf(m *draw.Sampling, d *sizing.Demand, of *sample.Sampler, g *sizing.Graph) sizing.Costs {
	offsets := m.Parts.Schema.Demanded(d)
	c := sizing.Costs{
		Nodes: d.Nodes, NodesOfType: offsets.NodesOfTypes(), Edges: d.Edges, Expanded: expanded(m, d),
		Batch:       batch.TensorBytes(offsets, &m.Parts, m.Options.BatchSize),
		Rank:        draw.RankBytes(m, m.Options.Cache),
		FetchWorker: graph.ScratchBytes(d.HopEdges),
		FetchBatch: graph.ScratchBytes(d.Edges) + batch.OwningBytes(&m.Options, d) +
			batch.PaddingBytes(&m.Options, d.Nodes, d.Edges),
		Lookup:       fetch.LookupBytes(max(d.Nodes, fetched(m, d))) + draw.MissedBytes(&m.Options, d.Nodes),
		ResidentSlot: fetch.ResidentBytes, PlannedSlot: fetch.ResidentBytes,
	}
	if of != nil {
		if draw.SharesReads(m, of) {
			neighbors := int64(0)
			for _, n := range d.EdgesPerHop {
				neighbors += n
			}
			c.Wanted = graph.RequestBytes(neighbors, graph.WideRequests(m.Parts.NumNodes, m.Parts.NumEdges))
		}
		demand := m.Parts.Schema.SamplerDemand(d)
		c.Worker, c.StampWorker = of.WorkerBytes(demand, false), of.WorkerBytes(demand, true)
	}
	if h := m.Options.History; h != nil {
		c.PlannedSlot += plan.PresenceBytes
		if shape := m.Parts.Schema.Shape(); len(d.EdgesPerHop) > 0 { // else nothing was measured
			c.Batch += shape.LevelBytes(d.NodesPerHop, d.EdgesPerHop, m.Parts.Transposed)
			c.Prune = shape.BatchBytes(d.NodesPerHop, d.EdgesPerHop)
		}
		if h.Policy == history.Performance {
			// Temporary memory of expect in addition to its vectors, and of graph.Rows.Scan.
			c.Score = cache.ExpectedBytes(g.Nodes) - 4*g.Nodes + min(2*graph.ScanPiece, g.Neighbors+ssd.PageBytes)
		}
	}
	if m.Options.Trees() {
		c.Lookup += draw.NodeIndexBytes(d.Nodes)
	}
	return c
}

// expanded returns the nodes whose lists each hop of a batch of a demand draws from; nil where nothing was measured.
func expanded(m *draw.Sampling, d *sizing.Demand) (nodes []int64) {
	types := m.Parts.Schema
	if len(d.NodesPerHop) == 0 {
		return nil
	}
	for hop := range types.Hops {
		n := int64(0)
		for t := range types.NumTypes() {
			n += d.NodesPerHop[t*(types.Hops+1)+hop]
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// fetched returns the edges that a batch of a demand fetches at once.
func fetched(m *draw.Sampling, d *sizing.Demand) int64 {
	o, n := &m.Options, d.HopEdges
	if m.Kind.WholeLists {
		n = max(n, sample.FetchedEdges) // of whole lists
	}
	if k := o.Links; k != nil && (k.Strict || k.Exclude != links.ExcludeNone) { // which lists are looked through for
		n = max(n, min(sample.FetchedEdges, m.Parts.NumEdges))
	} else if k != nil && k.Sources == nil { // whose ends are looked up
		n = max(n, o.BatchSize)
	}
	return n
}

// roomy returns the division for the worst case of batches under the options if the memory has room for them beside the
// whole graph and all that makes draws fast, else nil. It names no smallest memory, as nothing was measured.
func roomy(m *draw.Sampling, r *sizing.Request, g *sizing.Graph) *sizing.Split {
	of, err := draw.SamplerOnDisk(m)
	if err != nil || r.Memory == 0 {
		return nil // opening will report the error
	}
	d := draw.MaxDemand(m)
	m.Options.Complete(&d)
	split, err := sizing.Divide(*r, *g, costsOf(m, &d, of, g))
	if err != nil || !split.AsAsked(r) || !split.HoldsAll(g) || split.TimesInOrder != g.TimesOfNodes {
		return nil
	}
	split.Smallest = 0
	return split
}
