package loader

import (
	"errors"
	"fmt"
	"slices"

	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// Errors of this package. Those of the parts (mem.ErrBudget, store.ErrCorrupt,
// *ssd.PathError, ...) pass through unchanged and wrapped with context.
var (
	ErrOption  = errors.New("loader: invalid option")
	ErrClosed  = errors.New("loader: closed")
	ErrNoEpoch = errors.New("loader: no epoch is running")
)

// Auto asks the loader to choose a size or a count itself.
const Auto = -1

// caches are the values of Options.Cache.
var caches = []string{"none", "degree"}

// Options says what to load and how. The zero value of a field is its own
// meaning; where the loader may choose, Auto asks for it.
type Options struct {
	Fanouts []int64 // neighbours per hop, nearest the seeds first; -1 takes all
	Replace bool    // draw with replacement

	Seeds     []int64 // global node ids in the user's order; nil is every node
	BatchSize int64   // seeds per batch
	Shuffle   bool    // a new permutation of the seeds every epoch, keyed by Seed and epoch
	DropLast  bool    // leave out a last batch that is not full
	Seed      uint64  // everything random comes from it

	Workers  int // sampling threads; 0 chooses
	Prefetch int // batches prepared ahead of the consumer; 0 works only when asked

	Memory        int64  // bytes for everything the loader allocates; 0 is unlimited
	FeatureCache  int64  // bytes of it for cached feature rows, or Auto
	NeighborCache int64  // bytes of it for adjacency held in memory, or Auto
	Cache         string // "none" or "degree"

	IO        ssd.Kind // which read engine; ssd.Auto probes
	Checksums bool     // verify every page read against its checksum

	Transpose bool // batches bring their edges grouped by source too, see TransposedNames
}

func (o Options) validate(numNodes int64) error {
	switch {
	case o.BatchSize < 1:
		return fmt.Errorf("%w: batch_size must be at least 1, got %d", ErrOption, o.BatchSize)
	case o.Workers < 0:
		return fmt.Errorf("%w: num_workers must be at least 0, got %d", ErrOption, o.Workers)
	case o.Prefetch < 0:
		return fmt.Errorf("%w: prefetch must be at least 0, got %d", ErrOption, o.Prefetch)
	case o.Memory < 0:
		return fmt.Errorf("%w: memory must be at least 0 bytes, got %d", ErrOption, o.Memory)
	case o.FeatureCache < Auto:
		return fmt.Errorf("%w: feature_cache must be at least 0 bytes, got %d", ErrOption, o.FeatureCache)
	case o.NeighborCache < Auto:
		return fmt.Errorf("%w: neighbor_cache must be at least 0 bytes, got %d", ErrOption, o.NeighborCache)
	}
	if !slices.Contains(caches, o.Cache) {
		return fmt.Errorf("%w: cache must be one of %q, got %q", ErrOption, caches, o.Cache)
	}
	if o.Seeds != nil && len(o.Seeds) == 0 {
		return fmt.Errorf("%w: input_nodes names no node, expected at least one", ErrOption)
	}
	for i, v := range o.Seeds {
		if uint64(v) >= uint64(numNodes) {
			return fmt.Errorf("%w: input_nodes[%d] is %d, expected an id in [0, %d)", sample.ErrSeed, i, v, numNodes)
		}
	}
	return nil
}
