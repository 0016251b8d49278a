package loader

import (
	"freshgo/core/draw"
	"freshgo/core/prune"
	"freshgo/core/sample"
)

// drawnBatch is a batch as far as the sampler takes it: its inputs, its subgraph, and the rows that it needs.
type drawnBatch struct {
	loader      *Loader
	of          draw.Inputs
	described   inputTensors // of these
	request     draw.Request
	graph       sample.Subgraph  // as it was drawn
	batch       *sample.Subgraph // as it is delivered: what pruning has left of it
	cut         *prune.Cut       // what pruning leaves of the batch
	typeOffsets draw.TypeOffsets // of batch
	cachedTypes *draw.CachedTypes
	batchRows   draw.BatchRows
	ids         batchIDs // in the batch's tensors
	owning      owning   // of bidirectional edges
}

// take makes a subgraph the one that the batch delivers.
func (d *drawnBatch) take(g *sample.Subgraph) {
	d.batch = g
	d.loader.counters.edges.Add(int64(len(g.Row)))
	d.typeOffsets.Cut(d.loader.draw.Parts.Schema, g)
}

// takeCut takes what pruning has left of the subgraph that was drawn, and lists the rows that this needs. It returns
// the place of each drawn node there, or -1; nil: the batch stays whole.
func (d *drawnBatch) takeCut() (places []int32) {
	g := &d.graph
	if d.cut.On() {
		places = d.cut.Build(&d.graph)
		g = d.cut.Batch.Graph()
	}
	d.take(g)
	d.batchRows.FillGraph(d.cachedTypes, &d.graph)
	return places
}

// countRows counts the rows of a batch, and returns the number of rows that the consumer does not hold.
func (d *drawnBatch) countRows() int64 {
	c, n := &d.loader.counters, int64(len(d.batch.Nodes))
	if d.cut.On() {
		n = int64(len(d.cut.Batch.Loaded()))
	}
	c.rows.Add(n)
	c.held.Add(d.batchRows.Held)
	return n - d.batchRows.Held
}

// base returns the first tensor row of a table, counted over all types.
func (d *drawnBatch) base(t *table) int32 { return int32(d.typeOffsets.Rows[t.Type]) }

// idsOf returns the ids of a table's rows in the batch.
func (d *drawnBatch) idsOf(t *table) []int64 {
	if t.ByEdge {
		return d.ids.edges[t.Type].numbers
	}
	return d.batchRows.Delivered(t.Type, d.ids.nodes[t.Type])
}

// clearUnloaded zeroes the rows of a node tensor that are not loaded. Seeds are, so that none of these was copied.
func (d *drawnBatch) clearUnloaded(dst []byte, t *table) {
	next, width := 0, int(t.Delivered())
	loaded, base := d.cut.Batch.LoadedOf(t.Type)
	for _, at := range loaded {
		clear(dst[next*width : int(at-base)*width])
		next = int(at-base) + 1
	}
	clear(dst[next*width:])
}

// estimate computes what each new embedding would have saved, for the update.
func (d *drawnBatch) estimate() error { return d.cut.Estimate(d.loader.draw.Parts.RowCost()) }

// setInputs sets the inputs of the batches to come, and their description.
func (d *drawnBatch) setInputs(of draw.Inputs) {
	d.of, d.described = of, seedTensors{}
	if k := of.Linked(); k != nil {
		d.described = linkTensors{k}
	}
}

// keep copies what a worker has drawn, so that the worker may draw the next batch while this one waits to be pruned.
func keep(to, from *sample.Subgraph) {
	to.Nodes, to.Ptr = append(to.Nodes[:0], from.Nodes...), append(to.Ptr[:0], from.Ptr...)
	to.Row, to.Pos = append(to.Row[:0], from.Row...), append(to.Pos[:0], from.Pos...)
	to.Weight, to.Tree = append(to.Weight[:0], from.Weight...), append(to.Tree[:0], from.Tree...)
	to.NodesPerHop, to.EdgesPerHop = from.NodesPerHop, from.EdgesPerHop
}
