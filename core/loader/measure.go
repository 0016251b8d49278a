package loader

import (
	"context"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// measuredBatches is how many batches are sampled to learn how large they are.
const measuredBatches = 8

// measure samples batches spread over the first epoch and returns the most that one of them needed, and the sampler
// that workers are to be sized for. What it allocates is gone when it returns, but for the neighbours: where they fit in
// half of the memory they are loaded first, for a batch costs thousands of reads, and openIDs finds them in l.loaded.
func (l *Loader) measure(
	ctx context.Context, indptr []int64, r *sizing.Request, g *sizing.Graph,
) (d sizing.Demand, of *sample.Sampler, err error) {
	trial := &Loader{options: l.options, parts: l.parts, budget: mem.NewBudget(0), links: l.links}
	trial.options.Checksums = false
	trial.trial = true
	trial.cachedTypes = make([]bool, l.parts.types.types())
	trial.split = sizing.Measuring(r, g)
	defer trial.undo()
	trial.parts.types = l.parts.types.again() // what the trial opens is its own
	neighbors, err := l.trialTopology(ctx, trial)
	if err != nil {
		return d, nil, err
	}
	if err := trial.openSampler(ctx, indptr, neighbors); err != nil {
		return d, nil, err
	}
	if of, err = trial.samplerOnDisk(indptr); err != nil {
		return d, nil, err
	}
	if err := trial.measureBatches(ctx, &d); err != nil {
		return d, nil, err
	}
	l.parts.types.addRare(&d)
	l.options.complete(&d)
	return d, of, nil
}

// measureBatches adds what batches of the first epoch need to d.
func (l *Loader) measureBatches(ctx context.Context, d *sizing.Demand) error {
	e, err := l.newEpoch(0, 0, true)
	if err != nil {
		return err
	}
	defer e.free()
	worker := <-l.workers
	count := l.NumBatches()
	step := max(1, count/measuredBatches)
	var graph sample.Subgraph
	var r request
	var own roster
	for i := int64(0); i < count; i += step {
		if i+step >= count && l.options.TimeAttr != "" {
			i = count - 1 // in the order of times the last one is the largest
		}
		if err := e.order.batch(ctx, i, &r); err != nil {
			return err
		}
		if err := worker.Draw(ctx, e.order.batchKey(i), r.Request, &graph); err != nil {
			return err
		}
		rows := int64(len(graph.Nodes))
		if l.options.Held != nil {
			own.fillGraph(l, &graph)
			rows = int64(len(own.ids))
		}
		d.Add(demandOf(&graph, rows))
	}
	return l.measureRuns(ctx, worker, e.order.batchKey(0), d)
}

// demandOf is what a batch needs that brings so many rows.
func demandOf(g *sample.Subgraph, rows int64) sizing.Demand {
	d := sizing.Demand{
		Nodes: int64(len(g.Nodes)), Rows: rows, Edges: g.Room,
		NodesPerHop: g.NodesPerHop, EdgesPerHop: g.EdgesPerHop, Rooms: g.Rooms,
	}
	if d.Rooms == nil { // one relation
		d.Rooms = []int64{g.Room}
	}
	for _, n := range g.EdgesPerHop {
		d.HopEdges = max(d.HopEdges, n)
	}
	return d
}

// trialTopology opens the topology that batches are measured with.
func (l *Loader) trialTopology(ctx context.Context, trial *Loader) (*idArray, error) {
	if err := trial.openEngine(); err != nil {
		return nil, err
	}
	if !l.parts.types.unnamed() {
		return nil, trial.parts.types.openTopology(ctx, trial)
	}
	if l.parts.store == nil || !trial.split.Neighbors {
		return trial.openTopology(ctx)
	}
	block, err := l.parts.store.LoadIndices(ctx, trial.budget, mem.NeighborCache)
	if err != nil {
		return nil, err
	}
	l.loaded = block
	ids := &idArray{limit: l.parts.numNodes}
	ids.hold(block, l.parts.store.Topology().Indices)
	if l.options.WeightAttr == "" && l.options.TimeAttr == "" {
		return ids, nil
	}
	return ids, trial.openForWeights(ctx)
}

// openForWeights opens what reading weights takes beside the neighbours.
func (l *Loader) openForWeights(ctx context.Context) error {
	topology := l.parts.store.Topology()
	if topology.EdgeIDs == nil {
		return nil
	}
	ids, err := l.openIDs(ctx, topology.EdgeIDs, false, l.parts.numEdges, l.parts.store.LoadEdgeIDs)
	if err == nil {
		l.edgeIDs = *ids
	}
	return err
}

// samplerOnDisk is the sampler that workers are sized for: as if all that a store holds stayed there, which takes the
// most.
func (l *Loader) samplerOnDisk(indptr []int64) (*sample.Sampler, error) {
	switch types := l.parts.types; {
	case l.parts.store == nil:
		return l.sampler, nil
	case !types.unnamed():
		return types.onDisk(l)
	case l.split.Neighbors:
		return types.newHomogeneousSampler(&l.options, indptr, &idArray{disk: &diskRows{}}, l.weights(), l.times())
	}
	return l.sampler, nil
}

// weights are those of the loader as if they stayed on disk.
func (l *Loader) weights() *sample.Weights {
	t, _ := l.weightTensor() // its error was looked at
	if t == nil {
		return nil
	}
	return l.weightsOnDisk(t)
}
