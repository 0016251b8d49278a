package mem

import (
	"fmt"
	"sync/atomic"
)

// Buffer is memory that may outlive the package that filled it: a batch tensor belongs to its consumer, who may keep it
// for ever.
type Buffer interface {
	// Bytes returns the memory, 64-byte aligned. It is valid until Release.
	Bytes() []byte
	// Release gives the memory back. It is called exactly once.
	Release()
}

// Allocator makes Buffers. The C API injects one of pooled C memory; MapAllocator serves pure Go programs.
// Implementations are safe for concurrent use.
type Allocator interface {
	// Acquire returns a buffer of nBytes (zero is allowed) whose contents are undefined.
	Acquire(nBytes int64) (Buffer, error)
}

// MapAllocator is the Allocator of pure Go programs: each buffer is an anonymous map of its own. It counts what is
// live.
type MapAllocator struct {
	buffers atomic.Int64 // buffers acquired and not released; read by tests for leaks
	bytes   atomic.Int64 // their size
}

// NewAllocator returns a MapAllocator with nothing live.
func NewAllocator() *MapAllocator { return &MapAllocator{} }

// Live returns the number of buffers not yet released and their bytes.
func (a *MapAllocator) Live() (buffers, bytes int64) { return a.buffers.Load(), a.bytes.Load() }

// Acquire implements Allocator.
func (a *MapAllocator) Acquire(nBytes int64) (Buffer, error) {
	if nBytes < 0 {
		panic(fmt.Sprintf("mem: negative buffer size %d", nBytes))
	}
	data, err := mapAnonymous(nBytes)
	if err != nil {
		return nil, fmt.Errorf("mem: mapping a buffer of %d bytes: %w", nBytes, err)
	}
	a.buffers.Add(1)
	a.bytes.Add(nBytes)
	return &mapBuffer{owner: a, data: data}, nil
}

type mapBuffer struct {
	owner    *MapAllocator
	data     []byte
	released atomic.Bool // set by Release, so that a second one is seen
}

func (b *mapBuffer) Bytes() []byte { return b.data }

func (b *mapBuffer) Release() {
	if b.released.Swap(true) {
		panic("mem: buffer released twice")
	}
	b.owner.buffers.Add(-1)
	b.owner.bytes.Add(-int64(len(b.data)))
	unmap(b.data)
	b.data = nil
}
