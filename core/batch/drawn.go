package batch

import (
	"freshgo/core/draw"
	"freshgo/core/prune"
	"freshgo/core/sample"
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

// TakeCut takes what pruning has left of the subgraph that was drawn, and lists the rows that this needs. It returns
// the place of each drawn node there, or -1; nil where the batch stays whole.
func (d *Drawn) TakeCut() []int32 {
	left, places := d.Cut.Build(&d.Graph)
	d.Take(left)
	d.BatchRows.FillGraph(d.CachedTypes, &d.Graph)
	return places
}

// CountRows counts the rows of a batch, and returns the number of rows that the consumer does not hold.
func (d *Drawn) CountRows() int64 {
	c, n := d.Counters, int64(d.Cut.NumLoaded(len(d.Delivered.Nodes)))
	c.Rows.Add(n)
	c.Held.Add(d.BatchRows.Held)
	return n - d.BatchRows.Held
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

// ClearUnloaded zeroes the rows of a node tensor that are not loaded. Seeds are, so that none of these was copied.
func (d *Drawn) ClearUnloaded(dst []byte, t *draw.Tensor) {
	next, width := 0, int(t.Delivered())
	for from, to := range d.Cut.LoadedRuns(t.Type, int(d.TypeOffsets.Rows[t.Type+1]-d.TypeOffsets.Rows[t.Type])) {
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
