package loader

import (
	"context"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// sampler is what makes drawers, of a homogeneous graph or of one with types. The loader does not know which.
type sampler interface {
	// HasPositions says whether edges have a place in the graph.
	HasPositions() bool
	// newDrawer makes a drawer of this many threads that has memory for batches up to a demand.
	newDrawer(budget *mem.Budget, stamp bool, threads int, d *sizing.Demand) (drawer, error)
	// drawerBytes is that memory.
	drawerBytes(d *sizing.Demand, stamp bool) int64
}

// drawer draws batches, one at a time.
type drawer interface {
	Draw(ctx context.Context, key sample.Key, r sample.Request, out *sample.Subgraph) error
	Close()
}

// plainSampler is the sampler of a homogeneous graph.
type plainSampler struct{ *sample.Sampler }

func (s plainSampler) newDrawer(budget *mem.Budget, stamp bool, threads int, d *sizing.Demand) (drawer, error) {
	w, err := s.NewWorker(budget, stamp, threads)
	if err != nil {
		return nil, err
	}
	if err := w.Reserve(sample.Demand{Nodes: d.Nodes, Edges: d.Edges}); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (s plainSampler) drawerBytes(d *sizing.Demand, stamp bool) int64 {
	return s.WorkerBytes(sample.Demand{Nodes: d.Nodes, Edges: d.Edges}, stamp)
}

// typedSampler is the sampler of a graph with types.
type typedSampler struct {
	*sample.HeteroSampler
	types *schema
}

func (s typedSampler) newDrawer(budget *mem.Budget, stamp bool, threads int, d *sizing.Demand) (drawer, error) {
	w, err := s.NewWorker(budget, s.stamps(stamp), threads)
	if err != nil {
		return nil, err
	}
	if err := w.Reserve(s.types.sampling(d)); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (s typedSampler) drawerBytes(d *sizing.Demand, stamp bool) int64 {
	return s.WorkerBytes(s.types.sampling(d), s.stamps(stamp))
}

func (s typedSampler) stamps(stamp bool) []bool {
	of := make([]bool, s.types.types())
	for t := range of {
		of[t] = stamp
	}
	return of
}

// sampling is what batches of a demand need of each type and relation.
func (s *schema) sampling(d *sizing.Demand) sample.HeteroDemand {
	c := s.demanded(d)
	out := sample.HeteroDemand{Edges: make([]int64, len(s.edges))}
	for t := range s.types() {
		out.Nodes = append(out.Nodes, c.nodes[t+1]-c.nodes[t])
	}
	copy(out.Edges, d.Rooms)
	return out
}

// newSampler is the sampler of relations whose topology is open.
func (s *schema) newSampler(o *Options, weights []*sample.Weights, times []*sample.Temporal) (sampler, error) {
	g := sample.HeteroGraph{}
	scratch := newFetchPool() // of all relations: a thread fetches along one at a time
	for t := range s.types() {
		g.NumNodes = append(g.NumNodes, s.count(t))
	}
	for i := range s.relations {
		r := &s.relations[i]
		of := sample.Relation{Source: r.source, Target: r.target, Indptr: r.indptr, Indices32: signed(r.neighbors.narrow), Indices64: r.neighbors.wide}
		if r.neighbors.disk != nil {
			of.Adjacency = newDiskAdjacency(&r.neighbors, scratch)
		}
		g.Relations = append(g.Relations, of)
	}
	made, err := sample.NewHetero(g, sample.HeteroConfig{
		Fanouts: o.RelationFanouts, Replace: o.Replace, Weights: weights, Labor: o.Labor, Metapaths: o.Metapaths,
		Disjoint: o.disjoint(), Temporal: times, Subgraph: s.subgraph, Reverse: s.reverse,
	})
	if err != nil {
		return nil, err
	}
	return typedSampler{made, s}, nil
}
