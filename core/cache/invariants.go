package cache

import "fmt"

// check panics unless rows and slots point at each other, the list of vacant slots is right, and the moves of the step
// name the slots of their rows. It looks at every row and slot.
func (t *table) check(rows []uint32) {
	cached, empty := int32(0), int32(0)
	for row, slot := range t.addresses {
		if slot >= 0 {
			if !(slot < t.capacity) {
				violated("row %d is in slot %d of %d", row, slot, t.capacity)
			}
			n := &t.nodes[slot]
			if !(n.state != vacant && n.row == uint32(row)) {
				violated("row %d is in slot %d, which has %+v", row, slot, *n)
			}
			cached++
		}
	}
	last := uint32(t.capacity)
	for slot := t.nodes[last].pos; slot != uint32(t.capacity); slot = t.nodes[slot].pos {
		n := &t.nodes[slot]
		if !(n.state == vacant && n.row == last && empty < t.capacity) {
			violated("slot %d behind %d is vacant: %+v", slot, last, *n)
		}
		last = slot
		empty++
	}
	if !(cached+empty == t.capacity) {
		violated("%d rows and %d vacant slots, %d slots", cached, empty, t.capacity)
	}
	for _, m := range t.step.In {
		if !(t.addresses[rows[m.Pos]] == m.Slot) {
			violated("row %d moves in to slot %d, its slot is %d", rows[m.Pos], m.Slot, t.addresses[rows[m.Pos]])
		}
	}
}

func violated(format string, args ...any) { panic("cache: " + fmt.Sprintf(format, args...)) }
