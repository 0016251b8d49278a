package history

// entries names the node and the layer of the embedding in each slot, and the slot of each embedding.
type entries struct {
	config *Config
	ring
	numSlots int32   // that fit into the buffer and the tables
	tables   []table // by layer that is kept, from 1: the slot of each node
	price    prices
	counts   counters
}

// grow adds a slot to the region, or returns -1 when it ends at the buffer's end.
func (e *entries) grow() int32 {
	if e.top >= e.numSlots {
		return -1
	}
	e.top++
	return e.top - 1
}

// enter makes the entry of a slot that holds none.
func (e *entries) enter(at int32, node, i int64, c *candidate) {
	s := &e.slots[at]
	s.admitted, s.node, s.layer, s.bucket, s.need = i, uint32(node), c.layer, c.bucket, c.need
	e.link(at)
	e.tables[c.layer].set(node, at)
	e.price.add(s)
	count := &e.counts.layers[c.layer-1]
	count.Live++
	count.Admitted++
}

// overwrite ends the entry that the sweep has found and returns its slot.
func (e *entries) overwrite(s *sweep) int32 {
	at := s.take()
	e.drop(at)
	e.claim(at)
	e.counts.Overwritten++
	return at
}

// expire ends the entries that no later iteration can use.
func (e *entries) expire(i int64) {
	for b := e.lowest(0); b < numBuckets; b = e.lowest(b + 1) {
		// i+1 - admitted > Stale
		for slot := e.heads[b]; slot >= 0 && e.config.Stale <= i-e.slots[slot].admitted; slot = e.heads[b] {
			e.drop(slot)
			e.counts.Expired++
		}
	}
}

// drop ends the entry of a slot.
func (e *entries) drop(slot int32) {
	s := &e.slots[slot]
	e.tables[s.layer].set(int64(s.node), absent)
	e.price.forget(s)
	e.counts.layers[s.layer-1].Live--
	e.unlink(slot)
	if s.layer = 0; s.pins == 0 {
		e.release(slot)
	}
}
