package loader

import (
	"errors"
	"fmt"
	"math"

	"freshgo/core/mem"
	"freshgo/core/scratch"
)

// What becomes of planned batches when a part of their plan is lost with the scratch file: from the batch on that it
// was lost for, nobody knows what the cache will hold, so nobody changes it any more. Those batches read their rows,
// but for what is really in the slots where they expected it. The next epoch is planned anew, from what is cached.

// noBlind is the number of the first blind batch where there is none.
const noBlind = math.MaxInt64

// isBlind says whether the plan is lost for batch n.
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

// repair reads the rows of a blind batch that are not in the slots where its step expects them.
func (p *preparer) repair(tensors [][]byte) error {
	l, k := p.loader, &p.lookup
	k.hitRows, k.hitSlots, k.cold = k.hitRows[:0], k.hitSlots[:0], k.cold[:0]
	for i, slot := range p.step.Slots {
		to := p.roster.tensorRow(int32(i))
		switch {
		case slot < 0 || to < 0:
		case l.resident.rows[slot] == p.roster.rows[i]:
			k.hitRows, k.hitSlots = append(k.hitRows, to), append(k.hitSlots, slot)
		default:
			k.cold = append(k.cold, int32(i))
		}
	}
	if len(k.cold) == 0 {
		return nil
	}
	l.counters.hits.Add(-int64(len(k.cold)))
	l.counters.misses.Add(int64(len(k.cold)))
	for _, t := range l.onDisk {
		if tensors[t.index] == nil {
			continue
		}
		if err := p.readCold(t, tensors[t.index]); err != nil {
			return fmt.Errorf("reading %s: %w", l.parts.types.describe(&t.tensor), err)
		}
	}
	return nil
}
