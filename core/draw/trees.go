package draw

import (
	"fmt"
	"slices"
)

// Batches of trees, one for each seed, which draws by time need too.

const (
	// TreeName and SeedTimeName are the tensors that Options.Disjoint and TimeAttr add to a batch,
	// int64: the place of the seed in whose tree each node is, and the time of each seed.
	TreeName     = "batch"
	SeedTimeName = "seed_time"
)

// Trees reports whether every seed has its own tree.
func (o *Options) Trees() bool { return o.Disjoint || o.TimeAttr != "" }

// validateTrees validates the options of trees and times.
func (o *Options) validateTrees(numNodes int64) error {
	numSeeds := int64(len(o.Seeds))
	if o.Seeds == nil {
		numSeeds = numNodes
	}
	switch {
	case o.TimeWindow < 0:
		return fmt.Errorf("%w: time_window must be at least 1, or 0 for none, got %d", ErrOption, o.TimeWindow)
	case o.TimeAttr == "" && (o.TemporalLast || o.TimeWindow > 0 || o.SeedTimes != nil):
		return fmt.Errorf("%w: temporal_strategy, time_window and input_time need time_attr, the tensor of times",
			ErrOption)
	case o.SeedTimes != nil && o.Links == nil && int64(len(o.SeedTimes)) != numSeeds:
		return fmt.Errorf("%w: input_time has %d times, expected one for each of %d input nodes",
			ErrOption, len(o.SeedTimes), numSeeds)
	}
	return nil
}

// checkTreeNames returns an error for tensors whose names collide with tensors of trees: of node types, which have the
// trees and times of seeds; of relations, which have the times of links; and all tensors of a homogeneous graph, which
// has one name for both.
func checkTreeNames(m *Sampling) error {
	clash := func(name string) bool {
		return slices.ContainsFunc(m.Parts.Tensors, func(t Tensor) bool {
			return t.Name == name && (!t.ByEdge || t.Label == t.Name || name == LinkTimeName)
		})
	}
	name := SeedTimeName
	if k := m.Options.Links; k != nil && !k.Triplets {
		name = LinkTimeName
	}
	for name, given := range map[string]bool{TreeName: m.Parts.Disjoint, name: m.Parts.Timed} {
		if given && clash(name) {
			return fmt.Errorf("%w: the graph has a tensor %q, a name that batches use for a tensor of their own: "+
				"rename the tensor", ErrOption, name)
		}
	}
	return nil
}
