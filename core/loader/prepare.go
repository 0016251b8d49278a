package loader

import (
	"cmp"
	"fmt"

	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/plan"
	"freshgo/core/prune"
	"freshgo/core/sample"
)

// preparer makes one batch after the other. Its scratch is its own.
type preparer struct {
	epoch       *epoch
	loader      *Loader
	cache       rowCache
	of          draw.Inputs
	described   inputTensors // of these
	cachedTypes *draw.CachedTypes
	scratch     graph.Scratch
	lookup      lookup
	batchRows   draw.BatchRows
	graph       sample.Subgraph  // as it was drawn
	batch       *sample.Subgraph // as it is delivered: what pruning has left of it
	deliveries  deliveries       // with the tag invariants
	request     draw.Request
	typeOffsets draw.TypeOffsets // of batch
	ids         batchIDs         // in the batch's tensors
	owning      owning           // of bidirectional edges
	cut         *prune.Cut       // what pruning leaves of the batch
	wide        [][]byte         // the tensors of the batch that the graph has rows for
	step        plan.Step        // where the rows of the batch are, and what moves after it
	window      windowBatch      // of a planned batch
}

// prepare takes the next ticket and makes that batch. Past the end of the epoch
// it returns the ticket alone.
func (p *preparer) prepare() (int64, *Batch, error) {
	e := p.epoch
	worker, err := e.drawer.lease(e.ctx)
	if err != nil {
		return 0, nil, err
	}
	i := e.ticket.Add(1) - 1
	if i >= e.count {
		p.loader.draw.GiveBack(worker)
		return i, nil, nil
	}
	b := &Batch{Index: i}
	whole := false
	defer func() { // also when a broken invariant panics
		if !whole {
			b.Release()
		}
	}()
	if err := e.drawer.make(p, b, worker); err != nil {
		e.pruner.Fail(i)
		return i, nil, fmt.Errorf("loader: batch %d: %w", i, err)
	}
	whole = true
	return i, b, nil
}

// take makes a subgraph the one that the batch delivers.
func (p *preparer) take(g *sample.Subgraph) {
	p.batch = g
	p.loader.counters.edges.Add(int64(len(g.Row)))
	p.typeOffsets.Cut(p.loader.draw.Parts.Schema, g)
}

// takeWhole takes a subgraph as it was drawn, and lists the rows that it needs.
func (p *preparer) takeWhole(g *sample.Subgraph) error {
	p.take(g)
	return p.loader.draw.Compute(p.epoch.ctx, func() { p.batchRows.Fill(p.cachedTypes, g.Nodes, &p.typeOffsets) })
}

// takeCut takes what pruning has left of the subgraph that was drawn, and lists the rows that this needs. It returns
// the place of each drawn node there, or -1; nil: the batch stays whole.
func (p *preparer) takeCut() (places []int32) {
	g := &p.graph
	if p.cut.On() {
		places = p.cut.Build(&p.graph)
		g = p.cut.Batch.Graph()
	}
	p.take(g)
	p.batchRows.FillGraph(p.cachedTypes, &p.graph)
	return places
}

// makeTensors waits for room and copies what was sampled into tensors.
func (p *preparer) makeTensors(b *Batch) error {
	parts := &p.loader.draw.Parts
	b.NumSeeds = int64(len(p.request.Inputs))
	bytes := tensorBytes(&p.typeOffsets, parts, b.NumSeeds)
	if p.cut.On() {
		bytes += p.cut.Batch.LevelBytes(parts.Transposed)
	}
	return p.copyWhenRoom(b, bytes, p.copyOut)
}

// makeTrace waits for room and copies the ids of nodes and inputs into tensors.
func (p *preparer) makeTrace(b *Batch) error {
	b.NumSeeds = int64(len(p.request.Inputs))
	return p.copyWhenRoom(b, int64(len(p.batch.Nodes))*8+b.NumSeeds*8, p.copyIDs)
}

func (p *preparer) copyWhenRoom(b *Batch, bytes int64, copyOut func(*Batch) error) (err error) {
	if err := p.epoch.gate.acquire(b.Index, bytes); err != nil {
		return err
	}
	b.bytes = bytes
	stopped := p.loader.draw.Compute(p.epoch.ctx, func() { err = copyOut(b) })
	return cmp.Or(stopped, err)
}
