package loader

import (
	"context"
	"fmt"
	"time"

	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/internal/reuse"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The ids of a batch, and the user's numbers of its edges.

// batchIDs are the ids of a batch in its tensors: of the nodes of each type, and of the edges of each relation.
type batchIDs struct {
	nodes [][]int64
	edges []edgeIDs
}

// edgeIDs are the edges of a relation. Those that are none of the graph's have neither numbers nor rows.
type edgeIDs struct {
	numbered            bool
	numbers, index, ptr []int64
}

func (ids *batchIDs) begin(s *draw.Schema) {
	ids.nodes, ids.edges = reuse.Slice(ids.nodes, s.NumTypes()), reuse.Slice(ids.edges, len(s.Edges))
}

// numberEdges replaces positions in the arrays of neighbours by the user's edge numbers.
func (p *preparer) numberEdges() error {
	s, ids := p.loader.draw.Parts.Schema, &p.drawn.ids
	for i, edges := range ids.edges {
		if !edges.numbered {
			continue
		}
		r := &s.Relations[i]
		d := sample.Drawn{Targets: ids.nodes[r.Target][:p.drawn.typeOffsets.Expanded[i]], Ptr: edges.ptr, Pos: edges.numbers}
		if s.Subgraph == sample.Bidirectional && r.EdgeIDs.Cached() { // its reverse is itself or none
			d = p.drawn.owners(r.Indptr, d, ids.nodes[r.Source], edges.index)
		}
		if err := p.replacePositions(&r.EdgeIDs, d); err != nil {
			return s.OfRelation(i, fmt.Errorf("numbering edges: %w", err))
		}
	}
	return nil
}

// replacePositions replaces positions by the edge numbers of an array.
func (p *preparer) replacePositions(edgeIDs *graph.IDs, d sample.Drawn) error {
	if edgeIDs.OnDisk() {
		start := time.Now()
		defer since(&p.loader.counters.reading, start)
		return edgeIDs.Gather(p.epoch.ctx, &p.scratch, d, d.Pos)
	}
	return p.loader.draw.Compute(p.epoch.ctx, func() {
		// In memory nothing can fail, and nothing waits.
		_ = edgeIDs.Gather(context.Background(), nil, d, d.Pos)
	})
}

// owning is in whose list each edge of a batch is.
type owning struct{ targets, ptr []int64 }

// owningBytes returns its memory for a batch of a demand.
func owningBytes(o *draw.Options, d *sizing.Demand) int64 {
	if o.Subgraph != sample.Bidirectional {
		return 0
	}
	return 16 * (d.Edges + 1)
}

// owners regroups bidirectional edges, each alone: an edge against one that was drawn has its position, which is in the
// list of its source.
func (d *drawnBatch) owners(indptr []int64, of sample.Drawn, nID, edgeIndex []int64) sample.Drawn {
	o := &d.owning
	o.targets, o.ptr = reuse.Slice(o.targets, len(of.Pos)), reuse.Slice(o.ptr, len(of.Pos)+1)
	for i, v := range of.Targets {
		for e := of.Ptr[i]; e < of.Ptr[i+1]; e++ {
			o.targets[e] = v
			if pos := of.Pos[e]; pos < indptr[v] || pos >= indptr[v+1] {
				o.targets[e] = nID[edgeIndex[e]]
			}
		}
	}
	for e := range o.ptr {
		o.ptr[e] = int64(e)
	}
	return sample.Drawn{Targets: o.targets, Ptr: o.ptr, Pos: of.Pos}
}
