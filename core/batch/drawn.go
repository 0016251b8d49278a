package batch

import (
	"iter"

	"freshgo/core/draw"
	"freshgo/core/internal/reuse"
	"freshgo/core/offsets"
	"freshgo/core/prune"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Drawn is a batch as far as the sampler takes it: its inputs, its subgraph, and the rows that it needs.
type Drawn struct {
	Parts       *draw.Parts
	Counters    *Counters
	Inputs      draw.Inputs
	described   inputTensors // of Inputs
	Request     draw.Request
	Graph       sample.Subgraph  // as it was drawn
	Delivered   *sample.Subgraph // what pruning has left of Graph
	Cut         *prune.Cut       // what pruning leaves of the batch
	Padding     *Padding         // what pads the batch; nil: nothing
	TypeOffsets draw.TypeOffsets // of Delivered
	CachedTypes *draw.CachedTypes
	BatchRows   draw.BatchRows
	ids         batchIDs // in the batch's tensors
	owning      owning   // of bidirectional edges
}

// Take makes a subgraph the one that the batch delivers.
func (d *Drawn) Take(g *sample.Subgraph) {
	d.Delivered = g
	d.Counters.Edges.Add(int64(len(g.Row)))
	d.TypeOffsets.Cut(d.Parts.Schema, g)
}

// TakeCut takes what pruning has left of the subgraph that was drawn, and lists the rows of the subgraph, which have no
// tensor row where pruning leaves them unread.
func (d *Drawn) TakeCut() {
	left, places := d.Cut.Build(&d.Graph)
	d.Take(left)
	if places == nil {
		d.BatchRows.Fill(d.CachedTypes, left.Nodes, &d.TypeOffsets)
		return
	}
	d.BatchRows.FillGraph(d.CachedTypes, &d.Graph)
	d.BatchRows.TakeOut(places, &d.TypeOffsets)
}

// FirstRow returns the first tensor row of a node type, counted over all types.
func (d *Drawn) FirstRow(typ int) int32 { return int32(d.TypeOffsets.Rows[typ]) }

// IDsOf returns the ids of a tensor's rows in the batch.
func (d *Drawn) IDsOf(t *draw.Tensor) []int64 {
	if t.ByEdge {
		return d.ids.edges[t.Type].numbers
	}
	return d.BatchRows.Delivered(t.Type, d.ids.nodes[t.Type])
}

// ClearUnloaded zeroes the rows of a tensor that are no rows of the graph, or not loaded. Seeds are loaded, so no such
// row was copied.
func (d *Drawn) ClearUnloaded(dst []byte, t *draw.Tensor) {
	next, width := 0, int(t.Delivered())
	for from, to := range d.Runs(t, len(d.IDsOf(t))) {
		clear(dst[next*width : from*width])
		next = to
	}
	clear(dst[next*width:])
}

// estimate computes what each new embedding would have saved, for the update.
func (d *Drawn) estimate() error { return d.Cut.Estimate(d.Parts.RowCost()) }

// SetInputs sets the inputs of the batches to come, and their description.
func (d *Drawn) SetInputs(of draw.Inputs) {
	d.Inputs, d.described = of, seedTensors{}
	if k := of.Linked(); k != nil {
		d.described = linkTensors{k}
	}
}

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

// Positions yields the edges of a relation, grouped by the node whose list each is in. Their positions in the array of
// neighbours are in the memory where the user's numbers belong. Edges that pad a batch are left out.
func (d *Drawn) Positions(i int) iter.Seq[sample.Drawn] {
	s, ids := d.Parts.Schema, &d.ids
	r, edges := &s.Relations[i], &ids.edges[i]
	return func(yield func(sample.Drawn) bool) {
		for from, to := range targets(d, i) {
			ptr := edges.ptr[from : to+1]
			of := sample.Drawn{Targets: ids.nodes[r.Target][from:to], Ptr: ptr, Pos: edges.numbers[ptr[0]:ptr[to-from]]}
			if s.Subgraph == sample.Bidirectional && r.EdgeIDs.Cached() { // its reverse is itself or none
				of = d.owners(r.Indptr, of, ids.nodes[r.Source], edges.index)
			}
			if !yield(of) {
				return
			}
		}
	}
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
func (d *Drawn) owners(indptr *offsets.Table, of sample.Drawn, nID, edgeIndex []int64) sample.Drawn {
	o := &d.owning
	o.targets, o.ptr = reuse.Slice(o.targets, len(of.Pos)), reuse.Slice(o.ptr, len(of.Pos)+1)
	for i, v := range of.Targets {
		begin, end := indptr.Range(v)
		for e := of.Ptr[i]; e < of.Ptr[i+1]; e++ {
			o.targets[e] = v
			if pos := of.Pos[e]; pos < begin || pos >= end {
				o.targets[e] = nID[edgeIndex[e]]
			}
		}
	}
	for e := range o.ptr {
		o.ptr[e] = int64(e)
	}
	return sample.Drawn{Targets: o.targets, Ptr: o.ptr, Pos: of.Pos}
}
