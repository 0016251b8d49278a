package loader

import (
	"context"
	"slices"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// measuredBatches is how many batches are sampled to learn how large they are.
const measuredBatches = 8

// measure samples batches spread over the first epoch and tells z the most that
// one of them needed. What it allocates is gone when it returns, but for the
// neighbours: where they fit in half of the memory they are loaded first, for a
// batch costs thousands of reads, and openIDs finds them in l.loaded.
func (l *Loader) measure(ctx context.Context, indptr []int64, z *sizer) error {
	limit := l.options.Memory
	trial := &Loader{options: l.options, parts: l.parts, budget: mem.NewBudget(0), links: l.links}
	trial.options.Checksums = false
	trial.trial = true
	trial.split = split{working: working{workers: 1, prefetch: 1, depth: minDepth}, slot: minSlot}
	if fullDepth*minSlot <= limit/modest {
		trial.split.depth = fullDepth
	}
	defer trial.undo()
	if !l.parts.types.unnamed() {
		trial.parts.types = l.parts.types.again() // what the trial opens is its own
	}
	neighbors, err := l.trialTopology(ctx, trial, z)
	if err != nil {
		return err
	}
	if err := trial.openSampler(ctx, indptr, neighbors); err != nil {
		return err
	}
	z.sampler = trial.sampler
	if !l.parts.types.unnamed() {
		if z.sampler, err = l.parts.types.onDisk(z, trial); err != nil {
			return err
		}
	} else if trial.split.neighbors {
		// Room is made as if they stayed on disk, which takes the sampler more.
		if z.sampler, err = newSampler(l.options, l.parts.numNodes, indptr, &idArray{disk: &diskRows{}}, trial.weights(), trial.times()); err != nil {
			return err
		}
	}
	e, err := trial.newEpoch(0, 0, true)
	if err != nil {
		return err
	}
	defer e.free()
	worker := <-trial.workers
	count := trial.NumBatches()
	var graph sample.Subgraph
	var r request
	var own roster
	for i := int64(0); i < count; i += max(1, count/measuredBatches) {
		if i+max(1, count/measuredBatches) >= count && l.options.TimeAttr != "" {
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
			own.fill(trial, graph.Nodes, int64(len(r.Seeds)))
			rows = int64(len(own.rows))
		}
		z.demand.add(&graph, rows)
	}
	if err := trial.measureRuns(ctx, worker, e.order.batchKey(0), z); err != nil {
		return err
	}
	if d := &z.demand; d.edges == 0 && l.parts.numEdges > 0 { // of few edges none is in these batches, but one may be in another
		d.edges, d.hopEdges, d.nodes, d.rows = 1, 1, d.nodes+1, d.rows+1
	}
	if types := l.parts.types; !types.unnamed() {
		types.addRare(&z.demand)
	}
	z.completing()
	return nil
}

func (l *Loader) trialTopology(ctx context.Context, trial *Loader, z *sizer) (*idArray, error) {
	if !l.parts.types.unnamed() {
		return nil, l.parts.types.openTrial(ctx, trial, z)
	}
	if l.parts.store != nil && z.neighbors <= l.options.Memory/2 {
		block, err := l.parts.store.LoadIndices(ctx, trial.budget, mem.NeighborCache)
		if err != nil {
			return nil, err
		}
		l.loaded = block
		trial.split.neighbors = true
		ids := &idArray{limit: l.parts.numNodes}
		ids.hold(block, l.parts.store.Topology().Indices)
		if l.options.WeightAttr == "" && l.options.TimeAttr == "" {
			return ids, nil
		}
		return ids, trial.openForWeights(ctx)
	}
	if err := trial.openEngine(); err != nil {
		return nil, err
	}
	return trial.openTopology(ctx)
}

// openForWeights opens what reading weights takes beside them.
func (l *Loader) openForWeights(ctx context.Context) error {
	if err := l.openEngine(); err != nil {
		return err
	}
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

// weights are those of the loader as if they stayed on disk.
func (l *Loader) weights() *sample.Weights {
	t, _ := l.weightTensor() // its error was looked at
	if t == nil {
		return nil
	}
	return l.weightsOnDisk(t)
}

func (d *demand) add(g *sample.Subgraph, rows int64) {
	d.nodes = max(d.nodes, int64(len(g.Nodes)))
	d.rows = max(d.rows, rows)
	d.edges = max(d.edges, g.Room)
	if g.Rooms != nil {
		d.rooms = most(d.rooms, g.Rooms)
	}
	for _, n := range g.EdgesPerHop {
		d.hopEdges = max(d.hopEdges, n)
	}
	d.nodesPerHop, d.edgesPerHop = most(d.nodesPerHop, g.NodesPerHop), most(d.edgesPerHop, g.EdgesPerHop)
}

// most is the larger of two numbers in each place.
func most(a, b []int64) []int64 {
	if a == nil {
		return slices.Clone(b)
	}
	for i, n := range b {
		a[i] = max(a[i], n)
	}
	return a
}
