package plan

import (
	"sync"

	"freshgo/core/mem"
)

// arena is memory that is freed as a whole, or kept and used again.
type arena struct {
	budget  *mem.Budget
	purpose mem.Purpose
	keep    bool // one block after the other serves all requests, and reset makes one of them
	blocks  []*mem.Block
	free    []byte // rest of the last shared block
	want    int64  // size of the next block, if it is kept
}

// chunkBytes is the size of the blocks that small slices share. Those above a quarter of it get a block of their own,
// so that at most a quarter of a shared block is left over.
const chunkBytes = 64 << 10

// alloc returns memory for n elements of T, which must contain no pointers. It is zeroed unless the arena keeps its
// memory.
func alloc[T any](a *arena, n int) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	nBytes := int64(n) * size[T]()
	if !a.keep && nBytes > chunkBytes/4 {
		block, err := a.add(nBytes)
		if err != nil {
			return nil, err
		}
		return mem.Slice[T](block), nil
	}
	rounded := (nBytes + 7) &^ 7
	if int64(len(a.free)) < rounded {
		block, err := a.add(max(rounded, chunkBytes, a.want))
		if err != nil {
			return nil, err
		}
		a.free, a.want = block.Bytes(), 0
	}
	part := a.free[:nBytes:nBytes]
	a.free = a.free[rounded:]
	return mem.View[T](part), nil
}

func (a *arena) add(nBytes int64) (*mem.Block, error) {
	block, err := a.budget.Alloc(a.purpose, nBytes)
	if err == nil {
		a.blocks = append(a.blocks, block)
	}
	return block, err
}

// reset makes the memory of a kept arena free for other use. Fresh memory costs a page fault for every four KiB, a
// quarter of the time of a plan.
func (a *arena) reset() {
	if len(a.blocks) == 1 {
		a.free = a.blocks[0].Bytes()
		return
	}
	total := a.bytes()
	a.release()
	a.want = total
}

// bytes is what the arena holds.
func (a *arena) bytes() (n int64) {
	for _, b := range a.blocks {
		n += int64(len(b.Bytes()))
	}
	return n
}

// release frees all memory.
func (a *arena) release() {
	for _, b := range a.blocks {
		b.Free()
	}
	a.blocks, a.free = nil, nil
}

// spare is memory of plans that were released, for those to come. mu guards it.
type spare struct {
	mu     sync.Mutex
	arenas []arena
	closed bool
}

// take returns an arena that keeps its memory.
func (s *spare) take(budget *mem.Budget) arena {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.arenas); n > 0 {
		a := s.arenas[n-1]
		s.arenas = s.arenas[:n-1]
		a.reset()
		return a
	}
	return arena{budget: budget, purpose: mem.Trace, keep: true}
}

func (s *spare) give(a arena) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		a.release()
	} else if len(a.blocks) > 0 {
		s.arenas = append(s.arenas, a)
	}
}

// drop frees what it holds.
func (s *spare) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.arenas {
		s.arenas[i].release()
	}
	s.arenas = nil
}

func (s *spare) close() {
	s.drop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// list is a growing array outside the Go heap. Append to items after reserve has made room.
type list[T any] struct {
	budget  *mem.Budget
	purpose mem.Purpose
	block   *mem.Block
	items   []T
}

// firstItems is what a list has room for at first. Arbitrary.
const firstItems = 1024

// reserve makes room for another item.
func (l *list[T]) reserve() error {
	n := len(l.items)
	if n < cap(l.items) {
		return nil
	}
	block, err := l.budget.Alloc(l.purpose, int64(max(n+n/2, firstItems))*size[T]())
	if err != nil {
		return err
	}
	items := mem.Slice[T](block)[:n]
	copy(items, l.items)
	l.release()
	l.block, l.items = block, items
	return nil
}

func (l *list[T]) release() {
	if l.block != nil {
		l.block.Free()
	}
	l.block, l.items = nil, nil
}
