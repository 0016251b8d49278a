package scratch

import (
	"context"
	"fmt"
	"sync"

	"freshgo/core/mem"
)

// Blob is a string of bytes in the file: written piece by piece, then finished, then loaded. All methods are safe for
// concurrent use.
type Blob struct {
	pool   *Pool
	stream *stream

	gate    sync.RWMutex // held for reading by Load, so that Close waits for it; guards all below
	size    int64        // as announced
	written int64
	ended   bool
	closed  bool
}

// NewBlob returns an empty blob for up to n bytes, in the file. Without room there, or when the file is out of use, the
// error wraps ErrFull.
func (p *Pool) NewBlob(n int64) (*Blob, error) {
	if n < 0 {
		panic(fmt.Sprintf("scratch: a blob of %d bytes", n))
	}
	b := &Blob{pool: p, size: n}
	var err error
	b.stream, err = p.newStream(b, false, func(chunk int) (int64, int, int) {
		full := (n - 1) / int64(chunk) // chunks before the last
		return full + 1, chunk, int(n - full*int64(chunk))
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Write appends p. It may wait for writes. More bytes than announced, or a Write after Finish, are a panic. An error
// may belong to an earlier Write.
func (b *Blob) Write(p []byte) error {
	b.gate.Lock()
	defer b.gate.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case b.ended:
		panic("scratch: Write to a finished blob")
	case int64(len(p)) > b.size-b.written:
		panic(fmt.Sprintf("scratch: more than %d bytes in a blob", b.size))
	}
	b.written += int64(len(p))
	for len(p) > 0 {
		n := copy(b.stream.room(), p)
		p = p[n:]
		b.stream.advance(n, 1)
	}
	return b.stream.failed()
}

// Finish ends the writing without waiting for it: Load waits, and returns its errors.
func (b *Blob) Finish() error {
	b.gate.Lock()
	defer b.gate.Unlock()
	if b.closed {
		return ErrClosed
	}
	b.ended = true
	return b.stream.flush()
}

// Load returns the bytes, in memory that is counted as Trace until release is called, which the caller does once.
func (b *Blob) Load(ctx context.Context) (data []byte, release func(), err error) {
	b.gate.RLock()
	defer b.gate.RUnlock()
	switch {
	case b.closed:
		return nil, nil, ErrClosed
	case !b.ended:
		panic("scratch: Load of a blob that is not finished")
	}
	block, err := b.pool.budget.Alloc(mem.Trace, b.written)
	if err != nil {
		return nil, nil, err
	}
	data = block.Bytes()
	err = b.stream.read(ctx, func(i int, chunk []byte) error {
		copy(data[i*b.stream.payload:], chunk)
		return nil
	})
	if err != nil {
		block.Free()
		return nil, nil, err
	}
	return data, block.Free, nil
}

// Close frees the space in any state of the blob. It waits for running calls, and for at most one write in flight per
// writer. Repeated calls do nothing.
func (b *Blob) Close() {
	b.gate.Lock()
	defer b.gate.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	b.stream.close()
	b.pool.leave(b)
}
