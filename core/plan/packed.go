package plan

import "freshgo/core/internal/bitset"

// packed tracks the rows in packs of earlier plans for batches that have not been planned yet, and the room of packs.
type packed struct {
	batches map[int64]*pack
}

// pack counts the rows that plans put into the packs of one batch.
type pack struct {
	held         bitset.Set // positions
	size         int        // of the batch
	memory, file int64      // rows
	bytes        int64      // of those in the file
}

// forget drops what is known of batches before first.
func (p *packed) forget(first int64) {
	for at := range p.batches {
		if at < first {
			delete(p.batches, at)
		}
	}
}

// room returns the room that earlier plans leave while their packs for the batches from first on exist.
func (p *packed) room(all room, first int64) room {
	for at, k := range p.batches {
		if at >= first {
			all.memory -= k.memory
			all.file -= k.file
		}
	}
	return room{max(all.memory, 0), max(all.file, 0)}
}

// fileBytes returns the bytes that the packs of the batches from lo to hi hold in the file.
func (p *packed) fileBytes(lo, hi int64) (n int64) {
	for at, k := range p.batches {
		if at >= lo && at < hi {
			n += k.bytes
		}
	}
	return n
}

// mark adds the accesses that packs hold to a set.
func (p *packed) mark(first int64, h *horizon, delivered bitset.Set) {
	for b, batch := range h.batches {
		k := p.batches[first+int64(b)]
		if k == nil || k.size != batch.Len() {
			continue
		}
		for i := range k.held.Within(0, int64(k.size)) {
			delivered.Add(int64(h.offsets[b]) + i)
		}
	}
}

// remember keeps what a plan puts into packs. The nearest are in memory.
func (p *packed) remember(w *window) {
	if p.batches == nil {
		p.batches = map[int64]*pack{}
	}
	s := w.plan
	memory, record := w.room.memory, w.config.recordBytes()
	for _, size := range s.Packs {
		at := s.First + int64(size.Dest)
		k := p.batches[at]
		if k == nil {
			n := w.batches[size.Dest].Len()
			k = &pack{held: bitset.New(int64(n)), size: n}
			p.batches[at] = k
		}
		inMemory := min(memory, int64(size.Rows))
		memory -= inMemory
		k.memory += inMemory
		k.file += int64(size.Rows) - inMemory
		k.bytes += (int64(size.Rows) - inMemory) * record
	}
	for b := w.current; b < len(w.batches) && len(s.Packs) > 0; b++ {
		lo, hi := int64(w.offsets[b]), int64(w.offsets[b+1])
		for i := range w.held.Within(lo, hi) {
			p.batches[s.First+int64(b)].held.Add(i - lo)
		}
	}
}
