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
			w = &sample.Weights{Source: &diskWeights{}}
		}
		weights = append(weights, w)
	}
	return other.newSampler(&trial.options, weights)
}
