package plan

import (
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// packed tracks the rows in packs of earlier plans for batches that have not been planned yet, and the room of packs.
type packed struct {
	batches map[int64]*pack
}

// pack counts the rows that plans put into the packs of one batch.
type pack struct {
	held         *mem.Block // the set of positions of a batch ahead; nil: nobody counts on them, for want of memory
	size         int        // of the batch
	memory, file int64      // rows
	bytes        int64      // of those in the file
}

// forget drops what is known of batches before first.
func (p *packed) forget(first int64) {
	for at := range p.batches {
		if at < first {
			p.batches[at].free()
			delete(p.batches, at)
		}
	}
}

// forgetAll drops all that is known.
func (p *packed) forgetAll() {
	for _, k := range p.batches {
		k.free()
	}
	clear(p.batches)
}

func (k *pack) free() {
	if k.held != nil {
		k.held.Free()
	}
}

// positions returns the set of positions.
func (k *pack) positions() bitset.Set { return mem.Slice[uint64](k.held) }

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

// mark adds the accesses that packs hold to a set, and returns the end of the last batch with any.
func (p *packed) mark(first int64, h *horizon, delivered bitset.Set) (end uint32) {
	for b, batch := range h.batches {
		k := p.batches[first+int64(b)]
		if k == nil || k.held == nil || k.size != batch.Len() {
			continue
		}
		for i := range k.positions().Within(0, int64(k.size)) {
			delivered.Add(int64(h.offsets[b]) + i)
		}
		end = h.offsets[b+1]
	}
	return end
}

// remember keeps what a plan puts into packs. The nearest are in memory.
func (p *packed) remember(budget *mem.Budget, w *window) {
	if p.batches == nil {
		p.batches = map[int64]*pack{}
	}
	s := w.plan
	memory, record := w.room.memory, w.config.recordBytes()
	for _, size := range s.Packs {
		at := s.First + int64(size.Dest)
		k := p.batches[at]
		if k == nil {
			k = &pack{size: w.batches[size.Dest].Len()}
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
		k := p.batches[s.First+int64(b)]
		if k != nil && k.held == nil {
			k.held, _ = budget.Alloc(mem.Trace, bitset.Bytes(int64(k.size)))
		}
		if k == nil || k.held == nil {
			continue
		}
		positions := k.positions()
		for i := range w.held.Within(lo, hi) {
			positions.Add(i - lo)
		}
	}
}
