package loader

import (
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The graph of a loader as the sampler has it.

// newSampler is the sampler of relations whose topology is open. weights and times are those of each relation, or none.
func (s *schema) newSampler(o *Options, weights []*sample.Weights, times []*sample.Temporal) (*sample.Sampler, error) {
	g := sample.Graph{Named: !s.unnamed()}
	scratch := newFetchPool() // of all relations: a thread fetches along one at a time
	for t := range s.types() {
		g.NumNodes = append(g.NumNodes, s.count(t))
	}
	for i := range s.relations {
		r := &s.relations[i]
		of := sample.Relation{
			Source: r.source, Target: r.target,
			Indptr: r.indptr, Indices32: signed(r.neighbors.narrow), Indices64: r.neighbors.wide,
		}
		if r.neighbors.disk != nil {
			of.Adjacency = newDiskAdjacency(&r.neighbors, scratch)
		}
		g.Relations = append(g.Relations, of)
	}
	cfg := sample.Config{
		Fanouts: o.RelationFanouts, Replace: o.Replace, Weights: weights, Labor: o.Labor, Metapaths: o.Metapaths,
		Disjoint: o.disjoint(), Temporal: times, Subgraph: o.Subgraph, Reverse: s.reverse,
	}
	if s.unnamed() {
		cfg.Fanouts = [][]int64{o.Fanouts}
		if o.Walks != nil {
			cfg.Metapaths = []sample.Metapath{{Path: []int{0}, Walks: o.Walks}}
		}
		if o.Subgraph == sample.Bidirectional {
			cfg.Reverse = []int{0}
		}
	}
	return sample.New(g, cfg)
}

// newHomogeneousSampler is newSampler of a graph whose topology is the loader's.
func (s *schema) newHomogeneousSampler(
	o *Options, indptr []int64, neighbors *idArray, weights *sample.Weights, times *sample.Times,
) (*sample.Sampler, error) {
	graph := s.again()
	graph.relations[0].indptr, graph.relations[0].neighbors = indptr, *neighbors
	var byWeight []*sample.Weights
	if weights != nil {
		byWeight = []*sample.Weights{weights}
	}
	var byTime []*sample.Temporal
	if times != nil {
		byTime = []*sample.Temporal{o.temporal(times)}
	}
	return graph.newSampler(o, byWeight, byTime)
}

// newWorker makes a worker of this many threads that has memory for the batches that the loader expects.
func (l *Loader) newWorker(threads int) (*sample.Worker, error) {
	w, err := l.sampler.NewWorker(l.budget, l.split.Stamp, threads)
	if err != nil {
		return nil, err
	}
	if err := w.Reserve(l.parts.samplerDemand(&l.demand)); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// samplerDemand is a demand by node type and relation.
func (p *parts) samplerDemand(d *sizing.Demand) sample.Demand {
	out := sample.Demand{Edges: d.Rooms}
	if p.types.unnamed() {
		out.Edges = []int64{d.Edges}
	} else if len(d.Rooms) == 0 { // nothing was measured
		out.Edges = make([]int64, len(p.types.edges))
	}
	for t := range p.types.types() {
		out.Nodes = append(out.Nodes, p.nodesOfType(d, t))
	}
	return out
}
