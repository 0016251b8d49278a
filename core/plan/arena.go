package plan

import (
	"unsafe"

	"freshgo/core/cache"
	"freshgo/core/mem"
)

// size is the number of bytes of a T.
func size[T any]() int64 {
	var zero T
	return int64(unsafe.Sizeof(zero))
}

// arena is memory that is freed as a whole.
type arena struct {
	budget *mem.Budget
	blocks []*mem.Block
}

// alloc returns zeroed memory for n elements of T, which must contain no pointers.
func alloc[T any](a *arena, n int) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	block, err := a.budget.Alloc(mem.Trace, int64(n)*size[T]())
	if err != nil {
		return nil, err
	}
	a.blocks = append(a.blocks, block)
	return mem.Slice[T](block), nil
}

// release frees all memory.
func (a *arena) release() {
	for _, b := range a.blocks {
		b.Free()
	}
	a.blocks = nil
}

// buffers is memory for one batch at a time, for the widest of a horizon.
type buffers struct {
	block                     *mem.Block
	next, misses, then, freed []uint32
	slots                     []int32
	moves                     []cache.Move
}

// bufferBytes is the size of the buffers for each row of the widest batch.
const bufferBytes = 5*4 + 8

// fit makes the buffers large enough for batches of up to widest rows. They are kept from plan to plan: fresh memory
// costs a page fault for every four KiB.
func (s *buffers) fit(budget *mem.Budget, widest int) error {
	if len(s.next) >= widest && len(s.next) <= 2*widest {
		return nil
	}
	s.release()
	block, err := budget.Alloc(mem.Trace, int64(widest)*bufferBytes)
	if err != nil {
		return err
	}
	s.block = block
	data := block.Bytes()
	take := func(each int) []byte {
		part := data[: widest*each : widest*each]
		data = data[widest*each:]
		return part
	}
	for _, part := range []*[]uint32{&s.next, &s.misses, &s.then, &s.freed} {
		*part = mem.View[uint32](take(4))
	}
	s.slots = mem.View[int32](take(4))
	s.moves = mem.View[cache.Move](take(8))
	return nil
}

func (s *buffers) release() {
	if s.block != nil {
		s.block.Free()
	}
	*s = buffers{}
}
