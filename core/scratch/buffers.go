package scratch

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"freshgo/core/mem"
)

// slabBytes is the size of the memory that buffers are cut from, large enough for huge pages: a disk then takes a
// buffer in one piece, where other memory is a piece for every four KiB. On a virtual disk, writes of 64 KiB beside as
// many reads went at 1.4 GB/s instead of 0.8.
const slabBytes = 4 << 20

// tablesShare is the part of the pool's memory, a divisor, that buffers leave for the tables of streams: 12 bytes for a
// chunk of 64 KiB, whether it is in a buffer or in the file.
const tablesShare = 64

// buffers hands out the buffers that streams fill, from the pool's memory. It is safe for concurrent use.
type buffers struct {
	pool  *Pool
	chunk int // bytes of most of them
	held  atomic.Int64

	mu    sync.Mutex
	slabs []*slab // with a free buffer, the first that had one first
}

// slab is memory that is cut into buffers.
type slab struct {
	block *mem.Block
	count int
	free  []*buffer
}

// buffer is memory for a chunk, or for less where that is all that a stream has.
type buffer struct {
	data []byte
	slab *slab
}

// take returns a buffer of at least size bytes, at most a chunk, that leaves memory for as many others of a chunk as
// given, or ErrFull.
func (b *buffers) take(size, others int) (*buffer, error) {
	if others > 0 && !b.fit(size, others) {
		return nil, fmt.Errorf("%w for %d bytes in memory", ErrFull, size)
	}
	if size < b.chunk {
		if s, err := b.newSlab(size, 1); err == nil {
			return s.free[0], nil
		} // a whole one may be free
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.slabs) == 0 {
		s, err := b.newSlab(b.chunk, max(slabBytes/b.chunk, 1))
		if err != nil {
			return nil, err
		}
		b.slabs = append(b.slabs, s)
	}
	s := b.slabs[0]
	one := s.free[len(s.free)-1]
	if s.free = s.free[:len(s.free)-1]; len(s.free) == 0 {
		b.slabs = b.slabs[1:]
	}
	return one, nil
}

// fit reports whether there is memory for buffers of size bytes, and for as many others of a chunk as given.
func (b *buffers) fit(size, others int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := max(b.left(), 0)
	for _, s := range b.slabs {
		free += int64(len(s.free) * b.chunk)
	}
	return free >= int64(size+others*b.chunk)
}

// left returns the part of the pool's memory that neither packs nor buffers have, without the share of tables.
func (b *buffers) left() int64 {
	packs, left := b.pool.left()
	return min(left, b.pool.options.MemoryBytes-b.pool.options.tables(b.chunk)-packs-b.held.Load())
}

// newSlab returns a slab of up to count buffers. If it has more than one, half of the memory that is left stays free.
// The share of tables always stays free.
func (b *buffers) newSlab(each, count int) (*slab, error) {
	left := b.left()
	for count > 1 && int64(2*each*count) > left {
		count /= 2
	}
	if int64(each*count) > left {
		return nil, fmt.Errorf("%w for %d bytes in memory", ErrFull, each)
	}
	block, err := b.pool.alloc(int64(each*count), false)
	if err != nil && count > 1 { // the budget of all has less
		count = 1
		block, err = b.pool.alloc(int64(each), false)
	}
	if err != nil {
		return nil, err
	}
	b.held.Add(int64(each * count))
	s := &slab{block: block, count: count}
	for i := range count {
		s.free = append(s.free, &buffer{block.Bytes()[i*each : (i+1)*each : (i+1)*each], s})
	}
	return s, nil
}

// give gives a buffer back, and its slab once nothing of it is used.
func (b *buffers) give(one *buffer) {
	s := one.slab
	if len(one.data) < b.chunk {
		b.drop(s)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.free = append(s.free, one); len(s.free) == 1 {
		b.slabs = append(b.slabs, s)
	}
	if len(s.free) == s.count {
		b.slabs = slices.DeleteFunc(b.slabs, func(other *slab) bool { return other == s })
		b.drop(s)
	}
}

func (b *buffers) drop(s *slab) {
	n := int64(len(s.block.Bytes()))
	b.pool.free(s.block, false)
	b.held.Add(-n)
}
