package plan

import (
	"freshgo/core/cache"
	"freshgo/core/mem"
)

// Presence tracks the slots of a planned cache that hold the row that the plan expects there, where batches need fewer
// rows than were planned for: pruning is not always known ahead. A row that should enter the cache may not be needed,
// and then is not read, so that its slot is empty when a later batch counts on it. The later batch reads the row
// itself, and leaves it in the slot. The plan is an optimisation, never a condition.
//
// Batches adapt their steps in their order.
type Presence struct {
	block *mem.Block
	slots []uint8 // flags
}

const (
	resides  = 1 << iota // the slot will hold its row
	entering             // another row enters it with the current batch
)

// PresenceBytes is the cost of a slot.
const PresenceBytes = 1

// NewPresence returns a Presence of capacity empty slots.
func NewPresence(budget *mem.Budget, capacity int64) (*Presence, error) {
	block, err := budget.Alloc(mem.FeatureCache, capacity*PresenceBytes)
	if err != nil {
		return nil, err
	}
	return &Presence{block: block, slots: block.Bytes()}, nil
}

// Close frees the memory.
func (r *Presence) Close() { r.block.Free() }

// Begin starts from the actual content of the cache: held calls its argument with every slot that holds a row.
func (r *Presence) Begin(held func(yield func(slot int32, row uint32))) {
	clear(r.slots)
	held(func(slot int32, _ uint32) { r.slots[slot] = resides })
}

// Filled records that rows were read into the cache before the current batch.
func (r *Presence) Filled(fills []Fill) {
	for _, f := range fills {
		r.slots[f.Slot] = resides
	}
}

// Adapted is a planned step as a batch executes it that needs fewer rows.
type Adapted struct {
	Step   Step
	Vacate []int32 // slots that lose their row, because the one that should enter was not needed
}

// Adapt reduces a planned step to a batch that needs only some of its rows, and writes the result to own. needs reports
// whether the batch needs the row at a position.
func (r *Presence) Adapt(planned *Step, needs func(position int32) bool, own *Adapted) {
	slots := append(own.Step.Slots[:0], planned.Slots...)
	in, forward := own.Step.In[:0], own.Step.Forward[:0]
	own.Vacate = own.Vacate[:0]
	for _, f := range planned.Forward {
		if f.From >= 0 && r.slots[f.From]&resides != 0 || f.From < 0 && needs(^f.From) {
			forward = append(forward, f)
		}
	}
	for _, m := range planned.In {
		r.slots[m.Slot] |= entering
	}
	for pos, slot := range slots {
		if slot < 0 || r.slots[slot]&resides != 0 {
			continue
		}
		slots[pos] = cache.Miss
		if needs(int32(pos)) && r.slots[slot] == 0 {
			in = append(in, cache.Move{Pos: int32(pos), Slot: slot})
			r.slots[slot] = resides
		}
	}
	for _, m := range planned.In {
		if r.slots[m.Slot] = 0; needs(m.Pos) {
			r.slots[m.Slot] = resides
			in = append(in, m)
		} else {
			own.Vacate = append(own.Vacate, m.Slot)
		}
	}
	own.Step = Step{Step: cache.Step{Slots: slots, In: in}, Forward: forward, Extra: planned.Extra}
}
