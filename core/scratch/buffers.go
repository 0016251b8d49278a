package scratch

import (
	"slices"
	"sync"

	"freshgo/core/mem"
)

// slabBytes is how much memory buffers are cut from, so that it has huge pages: a disk then takes a buffer in one
// piece, where other memory is a piece for every four KiB. On a virtual disk, writes of 64 KiB beside as many reads
// went at 1.4 GB/s instead of 0.8.
const slabBytes = 4 << 20

// buffers are those that streams fill, out of the pool's memory. It is safe for concurrent use.
type buffers struct {
	pool  *Pool
	chunk int // bytes of most of them

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

// take returns a buffer, or ErrFull.
func (b *buffers) take(size int) (*buffer, error) {
	if size < b.chunk {
		s, err := b.newSlab(size, 1)
		if err != nil {
			return nil, err
		}
		return s.free[0], nil
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

// newSlab returns one of so many buffers, or of fewer: where there is more than one, half of the memory that is left
// stays for others.
func (b *buffers) newSlab(each, count int) (*slab, error) {
	for left := b.pool.left(); count > 1 && int64(2*each*count) > left; {
		count /= 2
	}
	block, err := b.pool.alloc(int64(each*count), false)
	if err != nil && count > 1 { // the budget of all has less
		count = 1
		block, err = b.pool.alloc(int64(each), false)
	}
	if err != nil {
		return nil, err
	}
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
		b.pool.free(s.block, false)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.free = append(s.free, one); len(s.free) == 1 {
		b.slabs = append(b.slabs, s)
	}
	if len(s.free) == s.count {
		b.slabs = slices.DeleteFunc(b.slabs, func(other *slab) bool { return other == s })
		b.pool.free(s.block, false)
	}
}
