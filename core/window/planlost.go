package window

import (
	"errors"
	"math"

	"freshgo/core/mem"
	"freshgo/core/scratch"
)

// A part of a plan may be lost with the scratch file. From the first batch without its part on, the contents of the
// cache are no longer known in advance, so these batches do not change it. They read their rows, except for rows that
// are in the slots where they expect them. The next epoch is planned again, from the cached rows. Where training
// changes rows, the epoch ends with the error instead.

// nonePlanLost is the number of the first batch without a plan where no plan is lost.
const nonePlanLost = math.MaxInt64

// isPlanLost reports whether the plan is lost for batch n.
func (in *inspector) isPlanLost(n int64) bool { return n >= in.planLost.Load() }

// markPlanLost records that the plan is lost from batch n on, if the error is that a part of the plan is lost or that
// there was no memory to load it. It returns other errors.
func (in *inspector) markPlanLost(n int64, err error) error {
	if !errors.Is(err, scratch.ErrBroken) && !errors.Is(err, mem.ErrBudget) || len(in.cache.trained.tables) > 0 {
		return err
	}
	for {
		first := in.planLost.Load()
		if n >= first || in.planLost.CompareAndSwap(first, n) {
			return nil
		}
	}
}
