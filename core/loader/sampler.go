package loader

import (
	"freshgo/core/graph"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The graph of a loader as the sampler has it.

// newSampler is the sampler of relations whose topology is open. weights and times are those of each relation, or none.
func (s *schema) newSampler(o *Options, weights []*sample.Weights, times []*sample.Temporal) (*sample.Sampler, error) {
	g := sample.Graph{Named: !s.unnamed()}
	scratch := graph.NewScratchPool() // of all relations: a thread fetches along one at a time
	for t := range s.types() {
		g.NumNodes = append(g.NumNodes, s.count(t))
	}
	for i := range s.relations {
		r := &s.relations[i]
		of := sample.Relation{Source: r.source, Target: r.target, Indptr: r.Indptr}
		of.Indices32, of.Indices64 = r.Neighbors.Memory()
		if r.Neighbors.OnDisk() {
			of.Adjacency = r.Neighbors.Adjacency(scratch)
		}
		g.Relations = append(g.Relations, of)
	}
	cfg := sample.Config{
		Fanouts: o.RelationFanouts, Replace: o.Replace, Weights: weights, Labor: o.Labor, Metapaths: o.Metapaths,
		Disjoint: o.disjoint(), Temporal: times, Subgraph: o.Subgraph, Reverse: s.reverse,
	}
	if o.Walks != nil { // along the only relation
		cfg.Metapaths = []sample.Metapath{{Path: []int{0}, Walks: o.Walks}}
	}
	return sample.New(g, cfg)
}

// newWorker makes a worker of this many threads that has memory for the batches that the loader expects.
func (l *Loader) newWorker(threads int) (*sample.Worker, error) {
	w, err := l.sampler.NewWorker(l.budget, l.split.Stamp, threads)
	if err != nil {
		return nil, err
	}
	if err := w.Reserve(l.parts.types.samplerDemand(&l.demand)); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// samplerDemand is a demand by node type and relation.
func (s *schema) samplerDemand(d *sizing.Demand) sample.Demand {
	out := sample.Demand{Nodes: s.demanded(d).nodesOfTypes(), Edges: make([]int64, len(s.edges))}
	copy(out.Edges, d.Rooms) // which are none where nothing was measured
	return out
}
