package loader

import (
	"context"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// measuredBatches is how many batches are sampled to learn how large they are.
const measuredBatches = 8

// measure samples batches spread over the first epoch and returns the most that one of them needed,
// and the sampler that workers are to be sized for. What it allocates is gone when it returns, but
// for the neighbours: where they fit in half of the memory they are loaded first, for a batch costs
// thousands of reads, and openTopology finds them in l.loaded.
func (m *sampling) measure(
	ctx context.Context, r *sizing.Request, g *sizing.Graph,
) (d sizing.Demand, of *sample.Sampler, err error) {
	trial := &sampling{options: m.options, parts: m.parts, budget: mem.NewBudget(0), seeds: m.seeds}
	trial.options.Checksums = false
	trial.trial = true
	trial.split = sizing.Measuring(r, g)
	defer trial.undo()
	trial.parts.types = m.parts.types.again() // what the trial opens is its own
	if err := trial.openEngine(); err != nil {
		return d, nil, err
	}
	if err := trial.parts.types.openTopology(ctx, trial); err != nil {
		return d, nil, err
	}
	m.loaded, trial.loaded = trial.loaded, nil
	if err := trial.openSampler(ctx); err != nil {
		return d, nil, err
	}
	if of, err = trial.samplerOnDisk(); err != nil {
		return d, nil, err
	}
	if err := trial.measureBatches(ctx, &d); err != nil {
		return d, nil, err
	}
	m.parts.types.addRare(&d)
	m.options.complete(&d)
	return d, of, nil
}

// measureBatches adds what batches of the first epoch need to d.
func (m *sampling) measureBatches(ctx context.Context, d *sizing.Demand) error {
	order, err := m.newSeedOrder(ctx, m.epochKey(0))
	if err != nil {
		return err
	}
	defer order.free()
	worker := <-m.workers
	count := m.NumBatches()
	step := max(1, count/measuredBatches)
	var graph sample.Subgraph
	var r request
	var own roster
	missed := m.newListing(make([]bool, m.parts.types.types()))
	for i := int64(0); i < count; i += step {
		if i+step >= count && m.options.TimeAttr != "" {
			i = count - 1 // in the order of times the last one is the largest
		}
		if err := order.batch(ctx, i, &r); err != nil {
			return err
		}
		if err := worker.Draw(ctx, order.batchKey(i), r.Request, &graph); err != nil {
			return err
		}
		rows := int64(len(graph.Nodes))
		if m.options.Held != nil {
			own.fillGraph(&missed, &graph)
			rows = int64(len(own.ids))
		}
		d.Add(demandOf(&graph, rows))
	}
	return m.measureRuns(ctx, worker, order.batchKey(0), d)
}

// demandOf is what a batch needs that brings so many rows.
func demandOf(g *sample.Subgraph, rows int64) sizing.Demand {
	d := sizing.Demand{
		Nodes: int64(len(g.Nodes)), Rows: rows, Edges: g.Room,
		NodesPerHop: g.NodesPerHop, EdgesPerHop: g.EdgesPerHop, Rooms: g.Rooms,
	}
	for _, n := range g.EdgesPerHop {
		d.HopEdges = max(d.HopEdges, n)
	}
	return d
}

// samplerOnDisk is the sampler that workers are sized for: as if all that a store holds stayed there, which takes the
// most.
func (m *sampling) samplerOnDisk() (*sample.Sampler, error) {
	if m.parts.store == nil {
		return m.sampler, nil
	}
	other := m.parts.types.again()
	for i := range other.relations {
		other.relations[i].Neighbors = graph.Stays()
	}
	var weights []*sample.Weights
	for _, t := range m.weightTensors() {
		var w *sample.Weights
		if t != nil {
			of := m.weightColumn(t)
			w = of.Stay()
		}
		weights = append(weights, w)
	}
	return other.newSampler(&m.options, weights, other.timesOnDisk(m))
}

// again is the schema for another loader of the same options, which shares the offsets.
func (s *schema) again() *schema {
	other := *s
	other.relations = slices.Clone(s.relations)
	return &other
}

// measureRuns measures the input nodes of each type by themselves, as many of them as a batch has:
// those of a type that has few are in none of the batches that were measured, and may need what no
// others do. With shuffling these are a type's share of a batch, else a whole batch.
func (m *sampling) measureRuns(ctx context.Context, worker *sample.Worker, key sample.Key, d *sizing.Demand) error {
	if len(m.parts.types.runs) < 2 { // every batch has nodes of the only type, or of links of both their types
		return nil
	}
	total := m.seeds.count()
	for _, r := range m.parts.types.runs {
		most := m.options.BatchSize
		if m.options.Shuffle {
			most = int64(float64(r.to-r.from)/float64(total)*float64(min(most, total))) + 1
		}
		var seeds, times []int64
		for at := r.from; at < r.to && int64(len(seeds)) < most; at++ {
			v := at
			if m.options.Seeds != nil {
				v = m.options.Seeds[at]
			}
			seeds = append(seeds, v)
			if m.options.TimeAttr != "" {
				times = append(times, m.seedTimes[at])
			}
		}
		var graph sample.Subgraph
		if err := worker.Draw(ctx, key, sample.Request{Seeds: seeds, Times: times}, &graph); err != nil {
			return err
		}
		d.Add(demandOf(&graph, int64(len(graph.Nodes))))
	}
	return nil
}

// addRare makes room for an edge of each relation, and a node of each type, that none of the
// measured batches had and another may have: buffers that none of them used are not there at all,
// and the least that a buffer takes is more than what the margin leaves.
func (s *schema) addRare(d *sizing.Demand) {
	if len(d.Rooms) == 0 {
		return // no batch was measured
	}
	for i, of := range s.edges {
		if d.Rooms[i] > 0 || !s.reached[of.source] || !s.reached[of.target] ||
			!s.walked && s.relations[i].numEdges == 0 {
			continue
		}
		d.Rooms[i]++
		d.Edges++
		d.HopEdges = max(d.HopEdges, 1)
		if s.hops > 0 { // without hops a batch may still have the edges between its seeds
			last := i*s.hops + s.hops - 1
			d.EdgesPerHop[last] = max(d.EdgesPerHop[last], 1)
		}
		for _, t := range []int{of.source, of.target} {
			if hops := d.NodesPerHop[t*(s.hops+1) : (t+1)*(s.hops+1)]; slices.Max(hops) == 0 {
				hops[s.hops]++
				d.Nodes++
				d.Rows++
			}
		}
	}
}
