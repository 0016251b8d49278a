package mem

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"freshgo/core/internal/invariants"
)

// Buffer is memory that may outlive the package that filled it: a batch tensor belongs to its consumer, who may keep it
// for ever.
type Buffer interface {
	// Bytes returns the memory, 64-byte aligned. It is valid until Release.
	Bytes() []byte
	// Retain returns another reference to the memory.
	Retain() Buffer
	// Release drops the reference; the last one frees the memory. It is called exactly once.
	Release()
}

// Allocator makes Buffers. The C API injects one of pooled C memory; MapAllocator serves pure Go programs.
// Implementations are safe for concurrent use.
type Allocator interface {
	// Acquire returns a buffer of nBytes (zero is allowed) whose contents are undefined.
	Acquire(nBytes int64) (Buffer, error)
}

// MapAllocator is the Allocator of pure Go programs. It counts live buffers, and keeps the anonymous maps of released
// ones for reuse: mapping and unmapping each took two fifths of the system time of small batches.
//
// With the tag invariants a buffer holds noise after Acquire and after Release, which exposes code that relies on its
// content.
type MapAllocator struct {
	buffers atomic.Int64 // buffers acquired and not released; read by tests for leaks
	bytes   atomic.Int64 // their size
	spare   *spareMaps
}

// spareMaps are maps that nobody uses, by the logarithm of their size. mu guards all but most.
type spareMaps struct {
	most  int // bytes that are kept
	mu    sync.Mutex
	maps  [64][][]byte
	bytes int
}

const (
	leastMap  = 4096    // the smallest map, a page
	mostSpare = 8 << 20 // the most that a MapAllocator keeps: a few batches of a small graph. Arbitrary
	noise     = 0xA5    // see MapAllocator; neither an index nor a feature of a batch is like it
)

// NewAllocator returns a MapAllocator with nothing live.
func NewAllocator() *MapAllocator {
	a := &MapAllocator{spare: &spareMaps{most: mostSpare}}
	runtime.AddCleanup(a, (*spareMaps).unmap, a.spare)
	return a
}

// Live returns the number of buffers not yet released and their bytes.
func (a *MapAllocator) Live() (buffers, bytes int64) { return a.buffers.Load(), a.bytes.Load() }

// Acquire implements Allocator.
func (a *MapAllocator) Acquire(nBytes int64) (Buffer, error) {
	if nBytes < 0 {
		panic(fmt.Sprintf("mem: negative buffer size %d", nBytes))
	}
	whole, err := a.spare.take(nBytes)
	if err != nil {
		return nil, fmt.Errorf("mem: mapping a buffer of %d bytes: %w", nBytes, err)
	}
	a.buffers.Add(1)
	a.bytes.Add(nBytes)
	b := &mapBuffer{owner: a, whole: whole, data: whole[:nBytes:nBytes], others: new(atomic.Int32)}
	b.spoil()
	return b, nil
}

type mapBuffer struct {
	owner    *MapAllocator
	whole    []byte // the map
	data     []byte
	released atomic.Bool   // set by Release, so that a second one is seen
	others   *atomic.Int32 // references beside the first
}

func (b *mapBuffer) Bytes() []byte { return b.data }

func (b *mapBuffer) Retain() Buffer {
	b.others.Add(1)
	return &mapBuffer{owner: b.owner, whole: b.whole, data: b.data, others: b.others}
}

func (b *mapBuffer) Release() {
	if b.released.Swap(true) {
		panic("mem: buffer released twice")
	}
	if b.others.Add(-1) >= 0 {
		return
	}
	b.owner.buffers.Add(-1)
	b.owner.bytes.Add(-int64(len(b.data)))
	b.spoil()
	b.owner.spare.give(b.whole)
	b.whole, b.data = nil, nil
}

// spoil fills a buffer with noise, where that is compiled in.
func (b *mapBuffer) spoil() {
	if !invariants.Enabled || len(b.data) == 0 {
		return
	}
	b.data[0] = noise
	for n := 1; n < len(b.data); n *= 2 { // copies, which also the race detector lets pass quickly
		copy(b.data[n:], b.data[:n])
	}
}

// take returns a map of at least n bytes, or nil of none.
func (s *spareMaps) take(n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	class := bits.Len64(uint64(max(n, leastMap) - 1))
	if data := s.takeOut(class); data != nil {
		return data, nil
	}
	return mapAnonymous(1 << class)
}

// kept returns the bytes of all maps.
func (s *spareMaps) kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.bytes)
}

// trim unmaps the largest until no more than most bytes are left.
func (s *spareMaps) trim(most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for class := len(s.maps) - 1; int64(s.bytes) > most && s.bytes > 0; {
		list := s.maps[class]
		if len(list) == 0 {
			class--
			continue
		}
		data := list[len(list)-1]
		s.maps[class] = list[:len(list)-1]
		s.bytes -= len(data)
		unmap(data)
	}
}

// takeOut takes out a map of a class, if there is one.
func (s *spareMaps) takeOut(class int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.maps[class]
	if len(list) == 0 {
		return nil
	}
	data := list[len(list)-1]
	s.maps[class] = list[:len(list)-1]
	s.bytes -= len(data)
	return data
}

// give keeps a map, or returns it to the system where enough are kept.
func (s *spareMaps) give(data []byte) {
	if len(data) == 0 || !s.keep(data) {
		unmap(data)
	}
}

// keep keeps a map if there is room, and reports whether there was.
func (s *spareMaps) keep(data []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+len(data) > s.most {
		return false
	}
	class := bits.Len(uint(len(data) - 1))
	s.maps[class] = append(s.maps[class], data)
	s.bytes += len(data)
	return true
}

func (s *spareMaps) unmap() { s.trim(0) }
