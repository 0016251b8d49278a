package loader

import (
	"context"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// measuredBatches is how many batches are sampled to learn how large they are.
const measuredBatches = 8

// measure samples batches spread over the first epoch and tells z the most that
// one of them needed. What it allocates is gone when it returns.
func (l *Loader) measure(ctx context.Context, indptr []int64, z *sizer) error {
	trial := &Loader{options: l.options, parts: l.parts, budget: mem.NewBudget(0)}
	trial.options.Checksums = false
	trial.split = split{working: working{workers: 1, prefetch: 1, depth: minDepth}, slot: minSlot}
	defer trial.undo()
	if err := trial.openEngine(); err != nil {
		return err
	}
	neighbors, err := trial.openTopology(ctx)
	if err != nil {
		return err
	}
	if err := trial.openSampler(indptr, neighbors); err != nil {
		return err
	}
	z.sampler = trial.sampler
	e, err := trial.newEpoch(0, 0, true)
	if err != nil {
		return err
	}
	defer e.free()
	worker := <-trial.workers
	count := trial.NumBatches()
	var graph sample.Subgraph
	var seeds, inputs []int64
	for i := int64(0); i < count; i += max(1, count/measuredBatches) {
		seeds, inputs = e.batchSeeds(i, seeds, inputs)
		key := e.key
		key.Batch = uint64(i)
		if err := worker.Sample(ctx, key, seeds, &graph); err != nil {
			return err
		}
		z.demand.add(&graph)
	}
	return nil
}

func (d *demand) add(g *sample.Subgraph) {
	d.nodes = max(d.nodes, int64(len(g.Nodes)))
	d.edges = max(d.edges, int64(len(g.Row)))
	for _, n := range g.EdgesPerHop {
		d.hopEdges = max(d.hopEdges, n)
	}
}
