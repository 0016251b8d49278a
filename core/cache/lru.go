package cache

// lru evicts the row that was accessed longest ago: the oldest entry of a log of
// accesses, in which the last one of each row is valid.
type lru struct{ log }

func newLRU(t *table) Policy { return &lru{newLog(t)} }

// Step implements Policy.
func (p *lru) Step(rows []uint32, step *Step) { p.run(p, rows, step) }

func (p *lru) touch(slot int32) { p.add(slot) }

func (p *lru) evict() {
	for {
		pos := p.start
		p.prefetchOrder(pos, p.end)
		p.start++
		if slot := p.order[pos]; p.valid(slot, pos) {
			p.vacate(slot, Miss)
			return
		}
	}
}

func (p *lru) insert(slot, _ int32) { p.add(slot) }
