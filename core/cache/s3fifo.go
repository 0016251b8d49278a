package cache

import "freshgo/core/mem"

// s3fifo is S3-FIFO (Yang et al., SOSP 2023, algorithm 1): a small queue for a tenth of the rows, which passes to the
// main queue only rows that are accessed more than once in it, and a ghost queue that remembers as many rows as the
// main queue holds and admits them to it directly when they return.
//
// The ghost queue is a ring of rows, indexed by the address table: a row at position g of the ring has the address
// -2-g. An address is valid only while the ring holds the row there, so overwriting needs no access to the table (the
// paper's section 4.2 does the same with times of insertion).
type s3fifo struct {
	*table
	small, main ring
	smallSize   uint32 // from which on the small queue is the one that evicts
	mainSize    uint32 // above which the main queue is full
	ghost       []uint32
	oldest      int32 // the position of the ghost queue that is overwritten next
}

const (
	s3fifoBytes = 2*orderBytes + 4 // two rings, and the ghost queue

	maxFreq = 3 // two bits (section 4.1)
	inMain  = 4 // added to the frequency of a row in the main queue
)

func newS3FIFO(t *table) Policy {
	t.arrange(2)
	size := uint32(t.capacity)
	p := &s3fifo{table: t, small: ring{table: t, size: size}, main: ring{table: t, first: size, size: size},
		smallSize: (size + 9) / 10}
	p.mainSize = size - p.smallSize
	p.ghost = mem.View[uint32](t.extra)[:p.mainSize]
	return p
}

// ring is a queue in a part of the order that has an entry for every slot.
type ring struct {
	table       *table
	first, size uint32 // the part
	tail, held  uint32 // the oldest entry, from first on, and the number of entries
}

func (r *ring) push(slot int32) {
	at := r.tail + r.held
	if at >= r.size {
		at -= r.size
	}
	r.table.place(slot, r.first+at)
	r.held++
}

func (r *ring) pop() int32 {
	at := r.first + r.tail
	r.table.prefetchOrder(at, r.first+r.size)
	if r.tail++; r.tail == r.size {
		r.tail = 0
	}
	r.held--
	return r.table.order[at]
}

// Step implements Policy.
func (p *s3fifo) Step(rows []uint32, step *Step) { p.run(p, rows, step) }

func (p *s3fifo) touch(slot int32) {
	if n := &p.nodes[slot]; n.state&maxFreq < maxFreq {
		n.state++
	}
}

func (p *s3fifo) evict() {
	for p.small.held+p.main.held == uint32(p.capacity) {
		if p.small.held >= p.smallSize {
			p.evictSmall()
		} else {
			p.evictMain()
		}
	}
}

func (p *s3fifo) evictSmall() {
	for p.small.held > 0 {
		slot := p.small.pop()
		if n := &p.nodes[slot]; n.state <= 1 {
			p.vacate(slot, p.remember(n.row))
			return
		}
		p.insertMain(slot)
		if p.main.held > p.mainSize {
			p.evictMain()
		}
	}
}

func (p *s3fifo) evictMain() {
	for p.main.held > 0 {
		slot := p.main.pop()
		n := &p.nodes[slot]
		if n.state == inMain {
			p.vacate(slot, Miss)
			return
		}
		n.state--
		p.main.push(slot)
	}
}

// remember puts a row into the ghost queue and returns its address.
func (p *s3fifo) remember(row uint32) int32 {
	if len(p.ghost) == 0 {
		return Miss
	}
	at := p.oldest
	p.ghost[at] = row
	if p.oldest++; int(p.oldest) == len(p.ghost) {
		p.oldest = 0
	}
	return -2 - at
}

func (p *s3fifo) insert(slot, address int32) {
	// The address may be of before the batch, in which the ring may have gone on.
	if address < Miss && p.ghost[-2-address] == p.nodes[slot].row {
		p.insertMain(slot)
		return
	}
	p.small.push(slot)
}

func (p *s3fifo) insertMain(slot int32) {
	p.nodes[slot].state = inMain
	p.main.push(slot)
}
