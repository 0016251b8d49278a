package scratch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"freshgo/core/internal/crc"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// stream is a run of chunks in the file, filled one after the other and read together. Its owner, a Pack or a Blob,
// sees to it that room, advance and flush are called by one goroutine at a time, read after flush, and close once and
// last.
type stream struct {
	pack    bool // it is of a pack, else of a blob
	file    *file
	payload int // bytes of a full chunk
	extents []extent
	tables  int64 // bytes of offsets and crcs counted in the pool

	buffer  *buffer  // filling; nil after the last chunk
	filled  int      // of buffer
	index   int      // of the chunk that fills
	length  int      // of the last chunk handed over
	offsets []int64  // by chunk: where it lies
	crcs    []uint32 // by chunk: set by a writer before it reports it written

	cancelled atomic.Bool // by close, seen by writers: what is queued need not be written

	mu      sync.Mutex // guards all below
	pending int        // chunks handed over and not reported
	err     error      // of the first that was not written
	idle    chan struct{}
}

// tableBytes is the size of offsets and crcs for a chunk.
const tableBytes = 12

// newStream returns a stream of up to n chunks with payload bytes each; the last has at most lastPayload. It leaves
// memory for buffers of other streams.
func (f *file) newStream(n int64, payload, lastPayload, others int) (*stream, error) {
	if n == 0 {
		return nil, fmt.Errorf("%w: rows too long for chunks of %d bytes", ErrFull, f.chunk)
	}
	s := &stream{file: f, payload: payload, tables: n * tableBytes}
	p := f.pool
	if !p.take(s.tables, false) {
		return nil, fmt.Errorf("%w for %d bytes in memory", ErrFull, s.tables)
	}
	if err := p.budget.Reserve(mem.Pack, s.tables); err != nil {
		p.give(s.tables, false)
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	}
	room := f.chunk
	if n == 1 {
		room = int(ssd.WholePages(int64(lastPayload))) // and it is never swapped
	}
	var err error
	if s.buffer, err = f.buffer(room, others); err != nil {
		s.freeTables()
		return nil, err
	}
	if s.extents, err = f.take(n); err != nil {
		f.buffers.give(s.buffer)
		s.freeTables()
		return nil, err
	}
	s.offsets, s.crcs = make([]int64, 0, n), make([]uint32, n)
	for _, e := range s.extents {
		for i := range e.count {
			s.offsets = append(s.offsets, (e.first+i)*int64(f.chunk))
		}
	}
	return s, nil
}

func (s *stream) freeTables() {
	s.file.pool.budget.Release(mem.Pack, s.tables)
	s.file.pool.give(s.tables, false)
}

// room returns what is free of the chunk that fills; there is none after the last. The caller says by advance what it
// has used.
func (s *stream) room() []byte {
	if s.buffer == nil {
		return nil
	}
	return s.buffer.data[s.filled:min(s.payload, len(s.buffer.data))]
}

// advance takes n more bytes as filled, and ends the chunk when fewer than least are free then. It waits for the
// writers when all buffers are on their way.
func (s *stream) advance(n, least int) {
	s.filled += n
	if len(s.room()) < least {
		s.submit(s.index == len(s.offsets)-1)
	}
}

// submit hands the chunk over to the writers, and takes another buffer unless it is the last.
func (s *stream) submit(last bool) {
	var spare *buffer
	if !last { // before the job is handed over, so that there is always room where its buffer goes
		spare = <-s.file.spare
	}
	s.mu.Lock()
	s.pending++
	s.mu.Unlock()
	if last {
		s.file.leave(1)
	}
	s.file.queue <- job{s, s.index, s.filled, s.buffer, last}
	s.buffer = spare
	s.length, s.filled = s.filled, 0
	s.index++
}

// flush hands over the rest. It returns what has failed so far.
func (s *stream) flush() error {
	if s.filled > 0 {
		s.submit(true)
	}
	s.freeBuffer()
	return s.failed()
}

// failed returns why a chunk was not written, or nil.
func (s *stream) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stream) freeBuffer() {
	if s.buffer != nil {
		s.file.buffers.give(s.buffer)
		s.buffer = nil
	}
}

// written is called by a writer for each chunk.
func (s *stream) written(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	if s.pending--; s.pending == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// wait returns when all that was handed over is written or has failed to be, or when ctx ends.
func (s *stream) wait(ctx context.Context) error {
	s.mu.Lock()
	if s.pending == 0 {
		defer s.mu.Unlock()
		return s.err
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return s.failed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read waits until all is written, and calls deliver once for every chunk whose checksum is right, on threads of the
// engine. What deliver returns is returned as it is; a failure of the file puts it out of use.
func (s *stream) read(ctx context.Context, deliver func(i int, data []byte) error) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	p := s.file.pool
	ranges := make([]ssd.Range, s.index)
	for i := range ranges {
		ranges[i] = ssd.Range{Off: s.offsets[i], Len: int32(ssd.WholePages(int64(s.size(i))))}
	}
	var received, delivered atomic.Int64 // bytes and requests; deliveries are concurrent
	err := p.engine.Read(ctx, s.file.temp.Handle(), ranges, func(i int, data []byte) error {
		received.Add(int64(len(data)))
		delivered.Add(1)
		data = data[:s.size(i)]
		if got := crc.Checksum(data); got != s.crcs[i] {
			return fmt.Errorf("%w: %d bytes at offset %d have %08x, expected %08x", ErrDamaged, len(data), ranges[i].Off, got,
				s.crcs[i])
		}
		if err := guard.Run(func() error { return deliver(i, data) }); err != nil {
			return &receiverError{err}
		}
		return nil
	})
	p.countRead(received.Load(), delivered.Load(), s.pack)
	var receiver *receiverError
	var path *ssd.PathError
	switch {
	case errors.As(err, &receiver):
		return receiver.err
	case errors.Is(err, ErrDamaged), errors.As(err, &path):
		p.fail(err)
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return err // of the context, or ssd.ErrClosed
}

// receiverError is an error of the receiver, whatever it wraps.
type receiverError struct{ err error }

func (e *receiverError) Error() string { return e.err.Error() }

// size returns the length of a chunk.
func (s *stream) size(i int) int {
	if i == s.index-1 {
		return s.length
	}
	return s.payload
}

// close gives everything back, once nothing is in flight.
func (s *stream) close() {
	s.cancelled.Store(true)
	_ = s.wait(context.Background()) // nobody cares any more
	s.freeBuffer()
	s.file.give(s.extents)
	s.freeTables()
}
