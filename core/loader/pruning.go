package loader

import (
	"cmp"

	"freshgo/core/plan"
	"freshgo/core/prune"
	"freshgo/core/sample"
)

// A batch's way through pruning: see core/prune.

// keep copies what a worker has drawn, so that the worker may draw the next batch while this one waits to be pruned.
func keep(to, from *sample.Subgraph) {
	to.Nodes, to.Ptr = append(to.Nodes[:0], from.Nodes...), append(to.Ptr[:0], from.Ptr...)
	to.Row, to.Pos = append(to.Row[:0], from.Row...), append(to.Pos[:0], from.Pos...)
	to.Weight, to.Tree = append(to.Weight[:0], from.Weight...), append(to.Tree[:0], from.Tree...)
	to.NodesPerHop, to.EdgesPerHop = from.NodesPerHop, from.EdgesPerHop
}

// prune waits for the batch's turn and takes out of it what the history makes needless, before any row is read.
func (p *preparer) prune(b *Batch) error {
	build := func() {}
	var failed error
	if p.super != nil { // what the cache will hold depends on it, batch by batch
		build = func() {
			p.build()
			failed = p.adapt()
		}
	}
	err := p.cut.Prune(p.epoch.ctx, b.Index, &p.graph, int64(len(p.request.inputs)), build)
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	if p.super == nil {
		p.build()
	}
	return nil
}

// build makes the batch of what was decided, and the list of the rows it needs.
func (p *preparer) build() {
	l := p.loader
	var places []int32
	if p.cut.On() {
		places = p.cut.Build(&p.graph)
		p.batch = p.cut.Batch.Graph()
	}
	if len(l.onDisk) == 0 {
		return
	}
	p.batchRows.fillGraph(&l.cachedTypes, &p.graph)
	switch {
	case p.super != nil:
		p.buildPlanned(places)
	case p.cut.On():
		p.batchRows.cut(places)
	}
}

// buildPlanned lists the rows that are planned, and those that were not foreseen.
func (p *preparer) buildPlanned(places []int32) {
	if places != nil {
		p.batchRows.moveTo(places)
	}
	batch := p.super.batches[p.number-p.super.first]
	if !batch.planned.known {
		return // all that were drawn are planned
	}
	var needed, wrong int64
	p.now, p.moved, needed, wrong = p.batchRows.cutToPlan(batch.planned.set(), p.now)
	batch.planned.free()
	p.super.inspector.unforeseen.Add(wrong)
	p.loader.planned.foreknown.add(Foreseen{Epoch: batch.epoch, ReadRows: needed, UnforeseenRows: wrong})
	if p.moved {
		p.planned.MoveTo(p.now, len(p.batchRows.rows))
		p.step = p.planned
	}
}

// adapt makes the planned step what this batch does of it.
func (p *preparer) adapt() error {
	s, presence := p.super, p.loader.planned.presence
	if s.inspector.isPlanLost(p.number) {
		return nil
	}
	if p.number == s.first { // rows that are read before this batch
		err := s.plan.ReadAhead(p.epoch.ctx, fillChunk, func(fills []plan.Fill, _ []plan.Extra) error {
			presence.Filled(fills)
			return nil
		})
		if err := s.inspector.markPlanLost(p.number, err); err != nil {
			return err
		}
	}
	needs := func(pos int32) bool { return p.batchRows.tensorRow(pos) >= 0 }
	presence.Adapt(&p.planned, needs, &p.adapted)
	p.step = p.adapted.Step
	return nil
}

// estimate computes what each new embedding would have saved, for the update.
func (p *preparer) estimate() error { return p.cut.Estimate(p.loader.rowCost()) }

// rowCost returns the cost of loading a node's rows: zero where its type has none, but other types have some.
func (l *Loader) rowCost() func(node int64) float32 {
	first := l.parts.types.first
	costs := make([]float32, l.parts.types.types())
	for i := range l.tables {
		if !l.tables[i].byEdge {
			costs[l.tables[i].typ] = 1
		}
	}
	if len(costs) == 1 {
		return func(int64) float32 { return 1 }
	}
	return func(node int64) float32 { return costs[sample.TypeOf(first, node)] }
}

var _ pruner = prune.None{}
