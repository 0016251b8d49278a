package mem

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// hugeBytes is the size from which a block requests huge pages: two of them on amd64, as alignment may leave none whole
// in smaller ones. They make random access to large tables 1.1 to 1.5 times as fast.
const hugeBytes = 4 << 20

// Block is a zeroed, page-aligned anonymous map counted in a Budget.
//
// Its owner frees it after the last use of every view: an access after Free is an unrecoverable fault. The garbage
// collector does not free blocks, because views of them (Slice) do not keep them alive.
type Block struct {
	budget  *Budget
	purpose Purpose
	data    []byte
	freed   atomic.Bool // set by the first Free, so that only that one unmaps
}

// Alloc returns a zeroed block of n bytes, counted under p, or an error that wraps ErrBudget or the system's errno.
// The rounding up to whole pages is not counted.
func (b *Budget) Alloc(p Purpose, n int64) (*Block, error) {
	if err := b.Reserve(p, n); err != nil {
		return nil, err
	}
	data, err := b.mapZeroed(n)
	if err != nil {
		b.Release(p, n)
		return nil, fmt.Errorf("mem: mapping %d bytes for %s: %w", n, p, err)
	}
	return &Block{budget: b, purpose: p, data: data}, nil
}

// Bytes returns the memory. It is valid until Free.
func (k *Block) Bytes() []byte { return k.data }

// Free returns the memory to the system and to the budget. Calls after the first do nothing.
func (k *Block) Free() {
	if k.freed.Swap(true) {
		return
	}
	n, data := int64(len(k.data)), k.data[:cap(k.data)]
	k.data = nil
	if !k.budget.keep(k.purpose, n, data) {
		unmap(data)
		k.budget.Release(k.purpose, n)
	}
}

// Shrink keeps the first n bytes of the block. What lies beyond them returns to the budget, and its whole pages to the
// system.
func (k *Block) Shrink(n int64) {
	beyond := k.data[n:cap(k.data)]
	page := uintptr(syscall.Getpagesize())
	if pad := -uintptr(unsafe.Pointer(unsafe.SliceData(beyond))) % page; pad < uintptr(len(beyond)) { // its address alone
		discard(beyond[pad:])
	}
	k.budget.Release(k.purpose, int64(len(k.data))-n)
	k.data = k.data[:n]
}

// Recount counts the block in another budget from now on, or returns an error that wraps ErrBudget and changes nothing.
func (k *Block) Recount(b *Budget, p Purpose) error {
	n := int64(len(k.data))
	if err := b.Reserve(p, n); err != nil {
		return err
	}
	k.budget.Release(k.purpose, n)
	k.budget, k.purpose = b, p
	return nil
}

// Slice returns the block as a slice of T, which must contain no pointers. It is valid until Free.
func Slice[T any](k *Block) []T { return View[T](k.data) }

// View returns p as a slice of T, which must contain no pointers. It panics when p is not aligned for T or is not a
// whole number of T.
func View[T any](p []byte) []T {
	var zero T
	size, align := unsafe.Sizeof(zero), unsafe.Alignof(zero)
	if len(p) == 0 {
		return nil
	}
	base := unsafe.Pointer(unsafe.SliceData(p)) // the first byte of p, which has at least one
	if uintptr(base)%align != 0 || uintptr(len(p))%size != 0 {
		panic(fmt.Sprintf("mem: %d bytes at %p are no slice of %T", len(p), base, zero))
	}
	return unsafe.Slice((*T)(base), uintptr(len(p))/size) // aligned, and exactly as long as p
}

// Bytes returns the memory of values, which must contain no pointers: the inverse of View.
func Bytes[T any](values []T) []byte {
	var zero T
	// exactly the values
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), uintptr(len(values))*unsafe.Sizeof(zero))
}

func mapAnonymous(n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	data, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if n >= hugeBytes {
		adviseHuge(data)
	}
	return data, nil
}

func unmap(data []byte) {
	if len(data) == 0 {
		return
	}
	if err := syscall.Munmap(data); err != nil {
		panic(fmt.Sprintf("mem: unmapping %d bytes: %v", len(data), err))
	}
}
