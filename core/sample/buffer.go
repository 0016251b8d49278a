package sample

import (
	"unsafe"

	"freshgo/core/mem"
)

// minBuffer is the least that a buffer allocates, in bytes. Arbitrary: a few pages.
const minBuffer = 64 << 10

// buffer is memory outside the Go heap that grows and is kept from batch to batch. Its element type holds no pointers.
type buffer[T any] struct {
	block *mem.Block
	data  []T // all of block
}

// grow makes room for n elements, keeping the first keep of them. Views of the old memory become invalid. On an error
// the buffer is as before.
func (b *buffer[T]) grow(budget *mem.Budget, p mem.Purpose, n, keep int64) error {
	have := int64(len(b.data))
	if n <= have {
		return nil
	}
	var zero T
	size := int64(unsafe.Sizeof(zero)) // unsafe: only a size
	room := max(n, minBuffer/size)
	block, err := budget.Alloc(p, max(room, have+have/2)*size)
	if err != nil && room < have+have/2 {
		// Growing by half at least keeps reallocation rare; under a tight budget what is needed is enough.
		block, err = budget.Alloc(p, room*size)
	}
	if err != nil {
		return err
	}
	data := mem.Slice[T](block)
	copy(data, b.data[:keep])
	b.free()
	b.block, b.data = block, data
	return nil
}

// renew makes room for n elements and keeps none, so that the old memory need not be there beside the new.
func (b *buffer[T]) renew(budget *mem.Budget, n int64) error {
	if n > int64(len(b.data)) {
		b.free()
	}
	return b.grow(budget, mem.Trace, n, 0)
}

func (b *buffer[T]) free() {
	if b.block != nil {
		b.block.Free()
	}
	b.block, b.data = nil, nil
}
