package batch

import (
	"freshgo/core/draw"
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

// Positions returns the edges of a relation, grouped by the node whose list each is in. Their positions in the array of
// neighbours are in the memory where the user's numbers belong.
func (d *Drawn) Positions(i int) sample.Drawn {
	s, ids := d.Parts.Schema, &d.ids
	r, edges := &s.Relations[i], &ids.edges[i]
	of := sample.Drawn{Targets: ids.nodes[r.Target][:d.TypeOffsets.Expanded[i]], Ptr: edges.ptr, Pos: edges.numbers}
	if s.Subgraph == sample.Bidirectional && r.EdgeIDs.Cached() { // its reverse is itself or none
		of = d.owners(r.Indptr, of, ids.nodes[r.Source], edges.index)
	}
	return of
}

// Numbered reports whether the edges of a relation have the user's numbers, and rows.
func (d *Drawn) Numbered(i int) bool { return d.ids.edges[i].numbered }

// owning is in whose list each edge of a batch is.
type owning struct{ targets, ptr []int64 }

// OwningBytes returns its memory for a batch of a demand.
func OwningBytes(o *draw.Options, d *sizing.Demand) int64 {
	if o.Subgraph != sample.Bidirectional {
		return 0
	}
	return 16 * (d.Edges + 1)
}

// owners regroups bidirectional edges, each alone: an edge against one that was drawn has its position, which is in the
// list of its source.
func (d *Drawn) owners(indptr []int64, of sample.Drawn, nID, edgeIndex []int64) sample.Drawn {
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
