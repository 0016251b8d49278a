package cache

// sieve is SIEVE (Zhang et al., NSDI 2024): rows stay in the order in which they
// came; the hand moves from the oldest to the newest, clears the bits of the rows
// that were accessed and evicts the first that was not, where it remains.
type sieve struct{ log }

func newSieve(t *table) Policy { return &sieve{newLog(t)} }

// Step implements Policy.
func (p *sieve) Step(rows []uint32, step *Step) { p.run(p, rows, step) }

func (p *sieve) touch(slot int32) { p.nodes[slot].state = accessed }

func (p *sieve) evict() {
	for pos := p.hand; ; pos++ {
		if pos == p.end {
			pos = p.oldest()
		}
		p.prefetchOrder(pos, p.end)
		slot := p.order[pos]
		switch n := &p.nodes[slot]; {
		case !p.valid(slot, pos):
		case n.state > 0:
			n.state = 0
		default:
			// Behind the newest row comes the oldest, not the one that enters now. The
			// last entry is the newest: something has entered since the last eviction.
			if p.hand = pos + 1; p.hand == p.end {
				p.hand = p.start
			}
			p.vacate(slot, Miss)
			return
		}
	}
}

// oldest skips the holes before the first valid entry, once and for all.
func (p *sieve) oldest() uint32 {
	for !p.valid(p.order[p.start], p.start) {
		p.start++
	}
	return p.start
}

func (p *sieve) insert(slot, _ int32) { p.add(slot) }
