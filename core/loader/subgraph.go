package loader

import (
	"fmt"

	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// What a batch of bidirectional or induced edges asks of the loader beside what the sampler makes of it: little, for to
// caches, plans and traces it is a batch like any other.

// validateSubgraph checks what goes together with edges that were not drawn.
func (o *Options) validateSubgraph() error {
	switch {
	case o.Subgraph > sample.Induced:
		return fmt.Errorf("%w: subgraph_type must be 0 (directional), 1 (bidirectional) or 2 (induced), got %d", ErrOption, o.Subgraph)
	case o.Subgraph == sample.Directional:
	case o.walk():
		return fmt.Errorf("%w: subgraph_type: random walks give no edges of the graph that could be completed, only \"directional\"", ErrOption)
	case o.Labor != nil && !o.NoEdgeWeight:
		return fmt.Errorf("%w: subgraph_type: LABOR's edge_weight is for the edges that were drawn: let it give none, or take \"directional\"", ErrOption)
	case o.Subgraph == sample.Induced && o.disjoint():
		return fmt.Errorf("%w: subgraph_type \"induced\" joins what is disjoint, and has edges of any time: take \"directional\" or \"bidirectional\"", ErrOption)
	case o.History != nil:
		return fmt.Errorf("%w: subgraph_type: a history prunes edges hop by hop, which only \"directional\" has", ErrOption)
	}
	return nil
}

// complete adds to the measured demand what edges take that were not drawn: all edges of a batch are read at once where
// edge numbers are on disk, and whole lists where neighbours are.
func (o *Options) complete(d *sizing.Demand) {
	switch o.Subgraph {
	case sample.Bidirectional:
		d.HopEdges = max(d.HopEdges, d.Edges)
	case sample.Induced:
		d.HopEdges = max(d.HopEdges, d.Edges, sample.FetchedEdges)
	}
}

// owning is in whose list each edge of a batch is.
type owning struct{ targets, ptr []int64 }

// owningBytes is what that takes of a batch of a demand.
func (o *Options) owningBytes(d *sizing.Demand) int64 {
	if o.Subgraph != sample.Bidirectional {
		return 0
	}
	return 16 * (d.Edges + 1)
}

// owners regroups bidirectional edges, each alone: an edge against one that was drawn has its position, which is in the
// list of its source.
func (p *preparer) owners(indptr []int64, d sample.Drawn, nID, edgeIndex []int64) sample.Drawn {
	o := &p.owning
	o.targets, o.ptr = grown(o.targets, len(d.Pos)), grown(o.ptr, len(d.Pos)+1)
	for i, v := range d.Targets {
		for e := d.Ptr[i]; e < d.Ptr[i+1]; e++ {
			o.targets[e] = v
			if pos := d.Pos[e]; pos < indptr[v] || pos >= indptr[v+1] {
				o.targets[e] = nID[edgeIndex[e]]
			}
		}
	}
	for e := range o.ptr {
		o.ptr[e] = int64(e)
	}
	return sample.Drawn{Targets: o.targets, Ptr: o.ptr, Pos: d.Pos}
}
