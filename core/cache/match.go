package cache

import "freshgo/core/internal/asm"

// match is FastGL's Match (section 4.2): the cache holds the rows of the previous batch and nothing else. The rows that
// the next batch shares with it stay, and its other rows are loaded, as far as the capacity allows. If a batch is
// larger, the shared rows stay first and then the others enter in order.
type match struct {
	*table
	previous []int32 // the slots of the previous batch; one half of the order
	mark     int32   // the state of their nodes
}

const matchBytes = 2 * orderBytes

func newMatch(t *table) Policy {
	t.arrange(2)
	return &match{table: t, previous: t.order[:0]}
}

// Step implements Policy.
func (p *match) Step(rows []uint32, step *Step) {
	p.begin(rows, step)
	if p.capacity == 0 {
		return
	}
	p.mark = 1 - p.mark
	current := p.order[p.mark*p.capacity:][:0:p.capacity]
	for i, slot := range step.Slots {
		if i%ahead == 0 {
			asm.Prefetch(p.nodes, step.Slots[i:min(i+ahead, len(rows))])
		}
		if slot >= 0 {
			p.nodes[slot].state = p.mark
			current = append(current, slot)
		}
	}
	for i, slot := range p.previous {
		if i%ahead == 0 {
			asm.Prefetch(p.nodes, p.previous[i:min(i+ahead, len(p.previous))])
		}
		if p.nodes[slot].state != p.mark {
			p.vacate(slot, Miss)
		}
	}
	for i, slot := range step.Slots {
		if slot >= 0 {
			continue
		}
		if slot = p.nextVacant(); slot == p.capacity {
			break
		}
		p.take(slot)
		p.nodes[slot] = node{row: rows[i], state: p.mark}
		p.addresses[rows[i]] = slot
		current = append(current, slot)
		step.In = append(step.In, Move{Pos: int32(i), Slot: slot})
	}
	p.previous = current
}
