package draw

import (
	"fmt"
	"math"
)

// Rows that the consumer holds, as a device holds the hottest ones (FGNN, section
// 6.1): they are marked when a batch is sampled, neither read nor copied, and take
// no part in plans, policies and rankings.
//
// A batch then brings place int32[nodes], the place of each of its nodes: v >= 0 is the
// consumer's row v, any other is row ^v of the batch's node tensors, which hold each
// missed node once. Every node type has such a tensor; its rows count within the tensors
// of the type.

// PlaceName is the tensor that Options.Held adds to a batch.
const PlaceName = "place"

// validateHeld validates the rows that the consumer holds.
func (o *Options) validateHeld(numNodes int64) error {
	if o.Holds < 0 {
		return fmt.Errorf("%w: holds must be at least 0 batches, got %d", ErrOption, o.Holds)
	}
	if o.Held == nil {
		return nil
	}
	if int64(len(o.Held)) != numNodes || numNodes > math.MaxUint32 {
		return fmt.Errorf("%w: held must have an entry for each of %d nodes, at most 2^32-1, got %d",
			ErrOption, numNodes, len(o.Held))
	}
	for node, at := range o.Held {
		if at < -1 {
			return fmt.Errorf("%w: held[%d] must be a row or -1, got %d", ErrOption, node, at)
		}
	}
	return nil
}
