package cache

// clock goes round the slots with a hand and gives every row that was accessed
// since the hand last passed a second chance (Corbató, 1968). A row enters with
// its bit clear, just behind the hand.
type clock struct {
	*table
	hand uint32
}

const clockBytes = orderBytes

func newClock(t *table) Policy {
	t.arrange(1)
	return &clock{table: t}
}

// Step implements Policy.
func (p *clock) Step(rows []uint32, step *Step) { p.run(p, rows, step) }

func (p *clock) touch(slot int32) { p.nodes[slot].state = accessed }

func (p *clock) evict() {
	for {
		slot := p.order[p.hand]
		if p.nodes[slot].state == 0 {
			p.vacate(slot, Miss)
			return
		}
		p.nodes[slot].state = 0
		p.advance()
	}
}

// insert puts the row into the frame at the hand, which is the one that evict
// has emptied.
func (p *clock) insert(slot, _ int32) {
	p.place(slot, p.hand)
	p.advance()
}

func (p *clock) advance() {
	p.prefetchOrder(p.hand, uint32(p.capacity))
	if p.hand++; p.hand == uint32(p.capacity) {
		p.hand = 0
	}
}
