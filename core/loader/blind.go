package loader

import (
	"errors"
	"math"

	"freshgo/core/mem"
	"freshgo/core/scratch"
)

// What becomes of planned batches when a part of their plan is lost with the scratch file: from the batch on that it
// was lost for, nobody knows what the cache will hold, so nobody changes it any more. Those batches read their rows,
// but for what is really in the slots where they expected it. The next epoch is planned anew, from what is cached.

// noBlind is the number of the first blind batch where there is none.
const noBlind = math.MaxInt64

// isBlind reports whether the plan is lost for batch n.
func (in *inspector) isBlind(n int64) bool { return n >= in.blind.Load() }

// survive makes the batches from n on blind if the error is that a part of the plan is lost, or that there was no
// memory to load it; other errors stay.
func (in *inspector) survive(n int64, err error) error {
	if !errors.Is(err, scratch.ErrBroken) && !errors.Is(err, mem.ErrBudget) {
		return err
	}
	for {
		first := in.blind.Load()
		if n >= first || in.blind.CompareAndSwap(first, n) {
			return nil
		}
	}
}
