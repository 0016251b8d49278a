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

// positionSets has for each batch the set of some of its positions; nil: none, or there was no memory.
type positionSets []*mem.Block

// add adds a position of batch b, which has size of them. Without memory for the set it does nothing.
func (s positionSets) add(budget *mem.Budget, b, size int, pos int32) {
	if s[b] == nil {
		if s[b], _ = budget.Alloc(mem.Trace, bitset.Bytes(int64(size))); s[b] == nil {
			return
		}
	}
	bitset.Set(mem.Slice[uint64](s[b])).Add(int64(pos))
}

// unite adds a set of positions to another of the same batch, and frees it.
func unite(to, from **mem.Block) {
	switch {
	case *from == nil:
		return
	case *to == nil:
		*to = *from
	default:
		positions := mem.Slice[uint64](*to)
		for i, word := range mem.Slice[uint64](*from) {
			positions[i] |= word
		}
		(*from).Free()
	}
	*from = nil
}

func (s positionSets) free() {
	for b, k := range s {
		if k != nil {
			k.Free()
			s[b] = nil
		}
	}
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

// held returns the set of positions that packs hold of a batch of a size; nil: none, or they are not known.
func (p *packed) held(at int64, size int) bitset.Set {
	k := p.batches[at]
	if k == nil || k.held == nil || k.size != size {
		return nil
	}
	return k.positions()
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
			k = &pack{size: w.batches[size.Dest].Len()}
			p.batches[at] = k
		}
		inMemory := min(memory, int64(size.Rows))
		memory -= inMemory
		k.memory += inMemory
		k.file += int64(size.Rows) - inMemory
		k.bytes += (int64(size.Rows) - inMemory) * record
	}
	for i, held := range w.held {
		if held != nil {
			unite(&p.batches[s.First+int64(w.current+i)].held, &w.held[i])
		}
	}
}
