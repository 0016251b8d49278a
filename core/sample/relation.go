package sample

import "fmt"

// relation is a Relation with its sampler. A metapath has the lists of its first step, leads from the sources of its
// last, and draws by walks.
type relation struct {
	Relation
	numSources int64 // nodes of type Source
	degree     int64 // average in-degree of a target, rounded up
	fanouts    []int64
	replace    bool
	method     method  // nil: uniform draws
	widest     int64   // length of the longest list, if the method needs it
	steps      []int64 // for a metapath: steps of the walks of a target, by hop

	subgraph SubgraphType
	temporal *Temporal // nil: no times
	disjoint bool
}

// setMethod sets the method that the Config asks for.
func (r *relation) setMethod(k *Kind, cfg *Config, i int) (err error) {
	if len(cfg.Temporal) > 0 {
		r.temporal = cfg.Temporal[i]
	}
	if r.method, err = k.along(cfg, i, &r.Relation); err != nil || r.method == nil {
		return err
	}
	r.widest = r.Indptr.Longest()
	return nil
}

func (r *Relation) numTargets() int64 { return r.Indptr.NumNodes() }

func (r *Relation) numEdges() int64 { return r.Indptr.NumEdges() }

// source returns an element of an index array in memory.
func (r *Relation) source(p int64) int64 {
	switch {
	case r.Indices32 != nil:
		return int64(r.Indices32[p])
	case r.Packed != nil:
		return r.Packed.At(p)
	}
	return r.Indices64[p]
}

// check validates the shape of a relation of g.
func (r *Relation) check(g *Graph) error {
	if types := len(g.NumNodes); r.Source < 0 || r.Source >= types || r.Target < 0 || r.Target >= types {
		return fmt.Errorf("from node type %d to %d, expected types below %d: %w", r.Source, r.Target, types, ErrGraph)
	}
	if r.Indptr == nil {
		return fmt.Errorf("no indptr: %w", ErrGraph)
	}
	if numTargets := g.NumNodes[r.Target]; r.numTargets() != numTargets {
		return fmt.Errorf("indptr has the lists of %d nodes, expected %d: %w", r.numTargets(), numTargets, ErrGraph)
	}
	if first := r.Indptr.Begin(0); first != 0 {
		return fmt.Errorf("indptr starts with %d, expected 0: %w", first, ErrGraph)
	}
	arrays := 0
	for _, present := range []bool{r.Indices32 != nil, r.Indices64 != nil, r.Packed != nil, r.Adjacency != nil} {
		if present {
			arrays++
		}
	}
	if arrays > 1 || arrays == 0 && r.numEdges() != 0 {
		return fmt.Errorf("%d index arrays, expected one of Indices32, Indices64, Packed and Adjacency: %w", arrays, ErrGraph)
	}
	have := int64(len(r.Indices32) + len(r.Indices64))
	if r.Packed != nil {
		have = r.Packed.Len()
	}
	if r.Adjacency == nil && have != r.numEdges() {
		return fmt.Errorf("%d indices, expected %d as indptr ends: %w", have, r.numEdges(), ErrGraph)
	}
	return nil
}
