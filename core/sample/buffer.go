package sample

import (
	"unsafe"

	"freshgo/core/mem"
)

// minBuffer is the smallest allocation of a buffer, in bytes. Arbitrary: a few pages.
const minBuffer = 64 << 10

// buffer is memory outside the Go heap that grows and is kept from batch to batch. Its element type holds no pointers.
type buffer[T any] struct {
	block *mem.Block
	data  []T // all of block
}

// bytes returns the size of n elements.
func (*buffer[T]) bytes(n int64) int64 {
	var zero T
	return n * int64(unsafe.Sizeof(zero)) // unsafe: only a size
}

// grow makes room for n elements and keeps the first keep of them. Views of the old memory become invalid. After an
// error the buffer is unchanged.
func (b *buffer[T]) grow(budget *mem.Budget, p mem.Purpose, n, keep int64) error {
	have := int64(len(b.data))
	if n <= have {
		return nil
	}
	size := b.bytes(1)
	room := max(n, minBuffer/size)
	block, err := budget.Alloc(p, max(room, have+have/2)*size)
	if err != nil && room < have+have/2 {
		// Growing by at least half keeps reallocation rare; under a tight budget it grows by no more than needed.
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

// renew makes room for n elements and keeps none, so that it can free the old memory before it allocates the new.
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

// room holds a buffer of any type, its capacity n, and the number of first elements that growing keeps.
type room struct {
	buffer interface {
		bytes(n int64) int64
		grow(budget *mem.Budget, p mem.Purpose, n, keep int64) error
		free()
	}
	n, keep int64
}

// reserve grows buffers.
func reserve(budget *mem.Budget, rooms ...room) error {
	for _, r := range rooms {
		if err := r.buffer.grow(budget, mem.Trace, r.n, r.keep); err != nil {
			return err
		}
	}
	return nil
}

// reservedBytes returns the memory of buffers that were empty before they were reserved.
func reservedBytes(rooms []room) (total int64) {
	for _, r := range rooms {
		if r.n > 0 {
			total += max(r.buffer.bytes(r.n), minBuffer)
		}
	}
	return total
}

func freeAll(rooms []room) {
	for _, r := range rooms {
		r.buffer.free()
	}
}
