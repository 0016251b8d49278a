package loader

import (
	"context"
	"slices"

	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// again is the schema for another loader of the same options, which shares the offsets.
func (s *schema) again() *schema {
	other := *s
	other.relations = slices.Clone(s.relations)
	return &other
}

// measureRuns measures the input nodes of each type by themselves, as many of them as a batch has: those of a type that
// has few may be in none of the batches that were measured, and need what no others do. With shuffling these are the
// type's share of a batch, else a whole batch.
func (l *Loader) measureRuns(ctx context.Context, worker *sample.Worker, key sample.Key, d *sizing.Demand) error {
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
		d.Add(demandOf(&graph, int64(len(graph.Nodes))))
	}
	return nil
}

// addRare makes room for an edge of each relation, and a node of each type, that none of the measured batches had and
// another may have: buffers that none of them used are not there at all, and the least that a buffer takes is more than
// what the margin leaves.
func (s *schema) addRare(d *sizing.Demand) {
	if len(d.Rooms) == 0 {
		return // no batch was measured
	}
	for i, of := range s.edges {
		if d.Rooms[i] > 0 || !s.reached[of.source] || !s.reached[of.target] || !s.walked && s.relations[i].numEdges == 0 {
			continue
		}
		d.Rooms[i]++
		d.Edges++
		d.HopEdges = max(d.HopEdges, 1)
		last := i*s.hops + s.hops - 1
		d.EdgesPerHop[last] = max(d.EdgesPerHop[last], 1)
		for _, t := range []int{of.source, of.target} {
			if hops := d.NodesPerHop[t*(s.hops+1) : (t+1)*(s.hops+1)]; slices.Max(hops) == 0 {
				hops[s.hops]++
				d.Nodes++
				d.Rows++
			}
		}
	}
}

// onDisk is the sampler of what stays on disk all of it, see samplerOnDisk.
func (s *schema) onDisk(trial *Loader) (*sample.Sampler, error) {
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
