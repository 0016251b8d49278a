package loader

import (
	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/plan"
)

// promises say which slots of a planned cache hold the row that the plan believes
// to be there. A plan is made before its batches are pruned: a row that should
// enter the cache may not be needed, and then is not read, so that its slot is
// empty when a later batch counts on it. That batch reads the row itself, and
// leaves it in the slot. The plan is an optimisation, never a condition.
//
// Batches change the promises in their order, as they are pruned.
type promises struct {
	block *mem.Block
	slots []uint8 // flags
}

const (
	kept     = 1 << iota // the slot will hold its row
	entering             // another row enters it with the batch at hand
)

// promiseBytes is the cost of a slot.
const promiseBytes = 1

func (k *promises) open(budget *mem.Budget, capacity int64) error {
	block, err := budget.Alloc(mem.FeatureCache, capacity*promiseBytes)
	if err != nil {
		return err
	}
	k.block, k.slots = block, block.Bytes()
	return nil
}

// begin starts from what is really in the cache.
func (k *promises) begin(r *resident) {
	for slot, row := range r.rows {
		k.slots[slot] = 0
		if row != vacant {
			k.slots[slot] = kept
		}
	}
}

// adaptedStep is a planned step as a pruned batch executes it.
type adaptedStep struct {
	slots   []int32
	in      []cache.Move
	forward []plan.Forward
	vacate  []int32 // slots that lose their row, because the one that should enter was not needed
}

// adapt makes the planned step what this batch does of it.
func (p *preparer) adapt() {
	s, own := p.super, &p.adapted
	planned, slots := &s.plan.Steps[p.number-s.first], p.loader.promises.slots
	if p.number == s.first {
		for _, f := range s.plan.Prologue.Fill {
			slots[f.Slot] = kept // read before this batch
		}
	}
	wanted := func(pos int32) bool { return p.roster.tensorRow(pos) >= 0 }
	own.slots = append(own.slots[:0], planned.Slots...)
	own.in, own.forward, own.vacate = own.in[:0], own.forward[:0], own.vacate[:0]
	for _, f := range planned.Forward {
		if f.From >= 0 && slots[f.From]&kept != 0 || f.From < 0 && wanted(^f.From) {
			own.forward = append(own.forward, f)
		}
	}
	for _, m := range planned.In {
		slots[m.Slot] |= entering
	}
	for pos, slot := range own.slots {
		if slot < 0 || slots[slot]&kept != 0 {
			continue
		}
		own.slots[pos] = cache.Miss
		if wanted(int32(pos)) && slots[slot] == 0 {
			own.in = append(own.in, cache.Move{Pos: int32(pos), Slot: slot})
			slots[slot] = kept
		}
	}
	for _, m := range planned.In {
		if slots[m.Slot] = 0; wanted(m.Pos) {
			slots[m.Slot] = kept
			own.in = append(own.in, m)
		} else {
			own.vacate = append(own.vacate, m.Slot)
		}
	}
	p.step = plan.Step{Step: cache.Step{Slots: own.slots, In: own.in}, Forward: own.forward, Extra: planned.Extra}
}
