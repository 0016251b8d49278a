// Package csrc is the C side of the library seen from Go: memory for tensors that leave it.
//
// It is a Go package so that the C files are built, and rebuilt, by the Go tool like any other source. It guarantees
// that memory handed out is aligned to 64 bytes, is never Go memory, and is given back by C alone: a tensor may be
// deleted on any thread, without the interpreter's lock, in a forked child or while the process exits. The operators
// (aggregate.c and its neighbours) are plain C that Python calls directly, without Go in between: they are here to be
// built with the rest. capi is the only user of the Go side. Acquiring a pooled buffer costs two calls into C, about
// 100 ns.
package csrc

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra -I${SRCDIR}/include
#cgo LDFLAGS: -lm
#include "buffer.h"
#include "lock.h"
*/
import "C"

import (
	"embed"
	"fmt"
	"sync/atomic"
	"unsafe"

	"freshgo/core/mem"
)

// The Go tool hashes what lies in a package's own directory and what it embeds. Embedding the headers and the symbol
// list makes a change to them rebuild this package and everything that imports it.
//
//go:embed include freshgo.map
var _ embed.FS

// Buffer is C memory with counted references; it implements mem.Buffer and holds one of them.
type Buffer struct {
	c     *C.fgi_buffer
	bytes []byte // of C memory, which does not move
	held  atomic.Bool
}

// Allocator hands out Buffers of batches. It implements mem.Allocator and is safe for concurrent use.
type Allocator struct {
	// Locked: of memory that is locked for devices, see fg_buffers_lock. It has a pool of its own.
	Locked bool
}

func (a Allocator) pool() *C.fgi_pool {
	if a.Locked {
		return &C.fgi_sent
	}
	return &C.fgi_batches
}

// Acquire returns a buffer of n bytes with undefined contents. Its error wraps mem.ErrBudget.
func (a Allocator) Acquire(n int64) (mem.Buffer, error) {
	if n < 0 {
		panic(fmt.Sprintf("csrc: negative buffer size %d", n))
	}
	c := C.fgi_buffer_acquire(a.pool(), C.size_t(n))
	if c == nil {
		return nil, fmt.Errorf("csrc: the system has no memory for a buffer of %d bytes: %w", n, mem.ErrBudget)
	}
	b := &Buffer{c: c, bytes: unsafe.Slice((*byte)(C.fgi_buffer_data(c)), n)} // C gave at least n bytes
	b.held.Store(true)
	return b, nil
}

// Lent returns a buffer over memory, never of Go, that its owner keeps for longer than the buffer. Its error wraps
// mem.ErrBudget.
func Lent(data []byte) (*Buffer, error) {
	c := C.fgi_buffer_lent(unsafe.Pointer(unsafe.SliceData(data))) // C keeps the address, of memory that is not Go's
	if c == nil {
		return nil, fmt.Errorf("csrc: the system has no memory for a buffer: %w", mem.ErrBudget)
	}
	b := &Buffer{c: c, bytes: data}
	b.held.Store(true)
	return b, nil
}

// Bytes returns the memory. It is valid until Release.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Retain returns another reference.
func (b *Buffer) Retain() mem.Buffer {
	C.fgi_buffer_retain(b.c)
	other := &Buffer{c: b.c, bytes: b.bytes}
	other.held.Store(true)
	return other
}

// Release drops the reference. It is called exactly once.
func (b *Buffer) Release() {
	if !b.held.Swap(false) {
		panic("csrc: a buffer was released twice")
	}
	C.fgi_buffer_release(b.c)
}

// DType is an element type as DLPack writes it, with one lane.
type DType struct{ Code, Bits uint8 }

// Tensor is a DLPack structure: a DLManagedTensorVersioned or a DLManagedTensor. Whoever has it calls its deleter once.
type Tensor struct {
	Managed   unsafe.Pointer // C memory
	Name      unsafe.Pointer // a zero-terminated string that lives as long
	versioned C.int
}

// Tensor makes a row-major tensor over the start of the buffer, with a reference of its own. Its error wraps
// mem.ErrBudget.
func (b *Buffer) Tensor(name string, dtype DType, shape []int64, versioned bool) (Tensor, error) {
	var t Tensor
	if versioned {
		t.versioned = 1
	}
	// C only reads the shape and the name, and copies them.
	t.Managed = C.fgi_tensor_new(b.c, C.DLDataType{code: C.uint8_t(dtype.Code), bits: C.uint8_t(dtype.Bits), lanes: 1},
		C.int32_t(len(shape)), (*C.int64_t)(unsafe.SliceData(shape)), t.versioned,
		(*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name)))
	if t.Managed == nil {
		return Tensor{}, fmt.Errorf("csrc: the system has no memory for tensor %q: %w", name, mem.ErrBudget)
	}
	t.Name = unsafe.Pointer(C.fgi_tensor_name(t.Managed))
	return t, nil
}

// Delete calls the deleter, for a tensor that nobody will receive.
func (t Tensor) Delete() { C.fgi_tensor_delete(t.Managed, t.versioned) }

// GrowPool raises (or lowers, if negative) the bytes of unused buffers that its pool may keep: kept bytes at any time,
// and reserved bytes while buffers in use do not need them. A pool begins with none.
func (a Allocator) GrowPool(kept, reserved int64) {
	C.fgi_pool_grow(a.pool(), C.int64_t(kept), C.int64_t(reserved))
}

// Counters returns the number of buffers in use, their memory, and the memory that their pools keep in addition.
func Counters() (live, liveBytes, pooledBytes int64) {
	for _, a := range []Allocator{{}, {Locked: true}} {
		var c C.fgi_buffer_counters
		C.fgi_buffer_count(a.pool(), &c)
		live, liveBytes, pooledBytes = live+int64(c.live), liveBytes+int64(c.live_bytes), pooledBytes+int64(c.pooled_bytes)
	}
	return live, liveBytes, pooledBytes
}
