package loader

import (
	"cmp"
	"fmt"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/prune"
	"freshgo/core/sample"
	"freshgo/core/window"
)

// preparer makes one batch after the other.
type preparer struct {
	loader *Loader
	drawn  batch.Drawn
	epoch  *epoch
	filler fetch.Filler
	window window.Batch // of a planned batch
}

// open readies a preparer that lists the rows of these types, prunes with cut and takes rows from a source.
func (p *preparer) open(l *Loader, cached *draw.CachedTypes, cut *prune.Cut, rows fetch.Source) {
	p.loader = l
	p.drawn = batch.Drawn{Parts: &l.draw.Parts, Counters: &l.counters, CachedTypes: cached, Cut: cut}
	p.filler = fetch.Filler{
		Sampling: &l.draw, Features: &l.rows, Counters: &l.counters, Drawn: &p.drawn, Source: rows,
	}
}

// begin makes the batches to come those of an epoch.
func (p *preparer) begin(e *epoch) { p.epoch, p.filler.Turns = e, e.turns }

// prepare takes the next ticket and makes that batch. Past the end of the epoch
// it returns the ticket alone.
func (p *preparer) prepare() (int64, *batch.Batch, error) {
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
	b := batch.NewBatch(i, p.loader.alloc)
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

// takeWhole takes a subgraph as it was drawn, and lists the rows that it needs.
func (p *preparer) takeWhole(g *sample.Subgraph) error {
	p.drawn.Take(g)
	return p.loader.draw.Compute(p.epoch.ctx, func() {
		p.drawn.BatchRows.Fill(p.drawn.CachedTypes, g.Nodes,
			&p.drawn.TypeOffsets)
	})
}

// makeTensors waits for room and copies what was sampled into tensors.
func (p *preparer) makeTensors(b *batch.Batch) error {
	parts := &p.loader.draw.Parts
	b.NumSeeds = int64(len(p.drawn.Request.Inputs))
	bytes := batch.TensorBytes(&p.drawn.TypeOffsets, parts, b.NumSeeds) + p.drawn.Cut.LevelBytes(parts.Transposed)
	return p.copyWhenRoom(b, bytes, p.drawn.CopyOut)
}

// makeTrace waits for room and copies the ids of nodes and inputs into tensors.
func (p *preparer) makeTrace(b *batch.Batch) error {
	b.NumSeeds = int64(len(p.drawn.Request.Inputs))
	return p.copyWhenRoom(b, int64(len(p.drawn.Delivered.Nodes))*8+b.NumSeeds*8, p.drawn.CopyIDs)
}

func (p *preparer) copyWhenRoom(b *batch.Batch, bytes int64, copyOut func(*batch.Batch) error) (err error) {
	if err := p.epoch.gate.acquire(b.Index, bytes); err != nil {
		return err
	}
	b.Reserved = bytes
	stopped := p.loader.draw.Compute(p.epoch.ctx, func() { err = copyOut(b) })
	return cmp.Or(stopped, err)
}
