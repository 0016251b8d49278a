package loader

import (
	"context"
	"slices"

	"freshgo/core/sample"
)

// again is the schema for another loader of the same options, which shares the offsets.
func (s *schema) again() *schema {
	other := *s
	other.relations = slices.Clone(s.relations)
	return &other
}

// openTrial opens the topology that batches are measured with: in memory where it fits in half of it, for a batch costs thousands of reads.
func (s *schema) openTrial(ctx context.Context, trial *Loader, z *sizer) error {
	trial.split.neighbors = z.neighbors <= trial.options.Memory/2
	if err := trial.openEngine(); err != nil {
		return err
	}
	return trial.parts.types.openTopology(ctx, trial)
}

// measureRuns measures the input nodes of each type by themselves, as many of them as a batch has: those of a type that has few are in none of the
// batches that were measured, and may need what no others do. With shuffling these are a type's share of a batch, else a whole batch.
func (l *Loader) measureRuns(ctx context.Context, worker drawer, key sample.Key, z *sizer) error {
	if l.parts.types.unnamed() || l.links != nil { // every batch of links has nodes of both their types
		return nil
	}
	total := l.numSeeds()
	for _, r := range l.parts.types.runs {
		most := l.options.BatchSize
		if l.options.Shuffle {
			most = int64(float64(r.to-r.from)/float64(total)*float64(min(most, total))) + 1
		}
		var seeds, times []int64
		for at := r.from; at < r.to && int64(len(seeds)) < most; at++ {
			v := at
			if l.options.Seeds != nil {
				v = l.options.Seeds[at]
			}
			seeds = append(seeds, v)
			if l.options.TimeAttr != "" {
				times = append(times, l.seedTimes[at])
			}
		}
		var graph sample.Subgraph
		if err := worker.Draw(ctx, key, sample.Request{Seeds: seeds, Times: times}, &graph); err != nil {
			return err
		}
		z.demand.add(&graph, int64(len(graph.Nodes)))
	}
	return nil
}

// addRare makes room for an edge of each relation, and a node of each type, that none of the measured batches had and another may have: buffers
// that none of them used are not there at all, and the least that a buffer takes is more than what the margin leaves.
func (s *schema) addRare(d *demand) {
	if len(d.rooms) == 0 {
		return // no batch was measured
	}
	for i, of := range s.edges {
		if d.rooms[i] > 0 || !s.reached[of.source] || !s.reached[of.target] || !s.walked && s.relations[i].numEdges == 0 {
			continue
		}
		d.rooms[i]++
		d.edges++
		d.hopEdges = max(d.hopEdges, 1)
		last := i*s.hops + s.hops - 1
		d.edgesPerHop[last] = max(d.edgesPerHop[last], 1)
		for _, t := range []int{of.source, of.target} {
			if hops := d.nodesPerHop[t*(s.hops+1) : (t+1)*(s.hops+1)]; slices.Max(hops) == 0 {
				hops[s.hops]++
				d.nodes++
				d.rows++
			}
		}
	}
}

// onDisk is the sampler that drawers are sized for: as if all that a store holds stayed there, which takes the most.
func (s *schema) onDisk(z *sizer, trial *Loader) (sampler, error) {
	if z.parts.store == nil {
		return trial.sampler, nil
	}
	other := s.again()
	for i := range other.relations {
		r := &other.relations[i]
		r.neighbors = idArray{disk: &diskRows{}}
	}
	var weights []*sample.Weights
	for _, t := range trial.weightTensors() {
		var w *sample.Weights
		if t != nil {
			w = trial.weightsOnDisk(t)
		}
		weights = append(weights, w)
	}
	return other.newSampler(&trial.options, weights, s.timesOnDisk(trial))
}
