package scratch

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"freshgo/core/internal/crc"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

const (
	// minQueue and queueShare bound the filled buffers that wait for a writer, without those being written: minQueue, and
	// 1/queueShare of all buffers. The rows that a batch sets aside wait there while the next batch is filled.
	minQueue   = 8
	queueShare = 10
	// growth is the step by which the file grows, unless more is needed: rarely, and not far ahead of its use.
	growth = 64 << 20
)

// file is the file of a Pool, in chunks that are each a range of the engine. Streams fill buffers, writers write them.
// A stream has a buffer from its beginning to its end and, when it is full, exchanges it for a spare one. So writers,
// who need only the disk, can always free one: a stream may wait for them without a deadlock.
type file struct {
	pool  *Pool
	temp  *ssd.Temp
	chunk int

	buffers buffers
	queue   chan job // streams wait when it is full
	spare   chan *buffer
	spares  int // one per write in flight, and those that wait; fewer in little memory
	writers sync.WaitGroup

	mu      sync.Mutex // guards all below
	space   space
	beyond  extent    // chunks that the disk had no room for, which are not in space
	used    int64     // chunks
	leaving int       // buffers that will be free after their writes
	left    int64     // the chunks that were
	changed sync.Cond // leaving and left have
}

// job is a filled buffer to be written.
type job struct {
	stream *stream
	index  int // of the chunk in its stream
	length int // bytes filled
	buffer *buffer
	last   bool // the stream needs no buffer after this one
}

// newStream returns a stream in the file, which it makes when there is none, and has owner, a pack or a blob,
// registered. The lock is held until then, so that Close either finds the owner or keeps it from coming into being.
func (p *Pool) newStream(
	owner closer, pack bool, size func(chunk int) (chunks int64, payload, last int),
) (*stream, error) {
	p.filing.Lock()
	defer p.filing.Unlock()
	f, err := p.needFile()
	if err != nil {
		return nil, err
	}
	n, payload, last := size(f.chunk)
	others := 0
	if pack {
		others = min(beside, int(p.options.reserve())/f.chunk/besideShare)
	}
	s, err := f.newStream(n, payload, last, others)
	if err != nil {
		return nil, err
	}
	s.pack = pack
	if err := p.enter(owner); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// needFile returns the file. The caller holds filing.
func (p *Pool) needFile() (*file, error) {
	switch err := p.failed(); {
	case p.options.FileBytes == 0:
		return nil, fmt.Errorf("%w, and no file", ErrFull)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	case p.file != nil:
		return p.file, nil
	case p.isClosed():
		return nil, ErrClosed
	}
	f := &file{pool: p, chunk: p.engine.TempChunk()}
	f.buffers = buffers{pool: p, chunk: f.chunk}
	f.changed.L = &f.mu
	f.space = newSpace(p.options.FileBytes / int64(f.chunk))
	reserve := p.options.reserve() / int64(f.chunk)
	f.spares = int(min(max(reserve/2, 1), int64(p.engine.TempFlight()+minQueue)+reserve/queueShare))
	f.queue, f.spare = make(chan job, f.spares), make(chan *buffer, f.spares)
	if err := f.fillSpare(); err != nil {
		return nil, err
	}
	temp, err := p.engine.CreateTemp(p.dir, p.budget)
	if err != nil {
		f.freeSpare()
		if errors.Is(err, mem.ErrBudget) || errors.Is(err, ssd.ErrClosed) {
			return nil, fmt.Errorf("%w: %w", ErrFull, err) // the file system is not to blame
		}
		p.fail(err)
		return nil, fmt.Errorf("%w: %w", ErrFull, p.failed())
	}
	f.temp = temp
	for range p.engine.TempWriters() {
		f.writers.Add(1)
		guard.Go(func() { f.drain(); f.writers.Done() }, func(e *guard.PanicError) { f.refuse(e); f.writers.Done() })
	}
	p.file = f
	return f, nil
}

func (p *Pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (f *file) fillSpare() error {
	for range f.spares {
		one, err := f.buffers.take(f.chunk, 0)
		if err != nil {
			f.freeSpare()
			return err
		}
		f.spare <- one
	}
	return nil
}

func (f *file) freeSpare() {
	for len(f.spare) > 0 {
		f.buffers.give(<-f.spare)
	}
}

// close ends the writers. All streams are closed.
func (f *file) close() error {
	close(f.queue)
	f.writers.Wait()
	f.freeSpare()
	return f.temp.Close()
}

// take returns extents of n chunks with space on the disk.
func (f *file) take(n int64) ([]extent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	extents, err := f.takeGrown(n)
	if extents == nil && err == nil && f.beyond.count > 0 && f.pool.freeOnDisk() >= max(n*int64(f.chunk), growth) {
		f.space.give([]extent{f.beyond})
		f.beyond = extent{}
		extents, err = f.takeGrown(n)
	}
	switch {
	case err != nil:
		return nil, err
	case extents == nil:
		return nil, fmt.Errorf("%w for %d bytes in the file", ErrFull, n*int64(f.chunk))
	}
	f.used += n
	f.count()
	return extents, nil
}

// takeGrown returns extents of n chunks within the file, which it makes longer for them, or nil where there is no room.
// Where the disk is full, the file stays as long as it is.
func (f *file) takeGrown(n int64) ([]extent, error) {
	for extents := f.space.take(n); extents != nil; extents = f.space.take(n) {
		last := extents[len(extents)-1]
		err := f.grow((last.first + last.count) * int64(f.chunk))
		if err == nil {
			return extents, nil
		}
		f.space.give(extents)
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
			f.pool.fail(err)
			return nil, fmt.Errorf("%w: %w", ErrFull, f.pool.failed())
		}
		size := f.temp.Handle().Size()
		f.beyond = f.space.cut(size / int64(f.chunk))
		f.pool.short(n*int64(f.chunk), size, err)
	}
	return nil, nil
}

// grow makes the file at least size bytes long, and if there is room for it, longer.
func (f *file) grow(size int64) error {
	old := f.temp.Handle().Size()
	if size <= old {
		return nil
	}
	limit := f.pool.options.FileBytes / int64(f.chunk) * int64(f.chunk)
	if ahead := min(old+growth, limit); ahead > size && f.temp.Grow(ahead) == nil {
		return nil
	}
	return f.temp.Grow(size)
}

func (f *file) give(extents []extent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space.give(extents)
	f.used -= chunks(extents)
	f.count()
}

// count brings the pool's figures up to date.
func (f *file) count() {
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.File = f.used * int64(f.chunk)
	p.stats.FilePeak = max(p.stats.FilePeak, p.stats.File)
}

// drain is a writer. In any case the buffer of a job is freed and its stream is informed.
func (f *file) drain() {
	writes := f.pool.engine.Writes(f.temp)
	defer func() {
		for writes.InFlight() > 0 { // after a panic
			writes.Await()
		}
		writes.Close()
	}()
	for {
		if writes.InFlight() == 0 {
			j, more := <-f.queue
			if !more {
				return
			}
			f.begin(writes, j)
		}
		for waiting := true; waiting && !writes.Full(); {
			select {
			case j, more := <-f.queue:
				if waiting = more; more {
					f.begin(writes, j)
				}
			default:
				waiting = false
			}
		}
		writes.Await()
	}
}

// leave counts a buffer whose write starts or has ended.
func (f *file) leave(change int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaving += change; change < 0 {
		f.left++
		f.changed.Broadcast()
	}
}

// refuse ends writing after a panic: nothing is written any more, and nobody waits for it.
func (f *file) refuse(why error) {
	f.pool.fail(why)
	for j := range f.queue {
		f.end(j, f.pool.failed())
	}
}

// begin writes a chunk, padded to whole pages. After the first failure nothing is tried any more: a disk that is
// failing may take minutes to say so each time.
func (f *file) begin(writes *ssd.Writes, j job) {
	padded, err := j.prepare(f.pool)
	if err != nil || padded == nil {
		f.end(j, err)
		return
	}
	writes.Begin(padded, j.stream.offsets[j.index], func(err error) {
		if err != nil {
			f.pool.fail(err)
			f.end(j, fmt.Errorf("%w: %w", ErrBroken, err))
			return
		}
		f.pool.mu.Lock()
		f.pool.stats.Written += int64(len(padded))
		f.pool.mu.Unlock()
		f.end(j, nil)
	})
}

// prepare returns the bytes of a chunk to write, or nil if its stream is closed.
func (j job) prepare(p *Pool) (padded []byte, err error) {
	if j.stream.cancelled.Load() {
		return nil, nil
	}
	if err := p.failed(); err != nil {
		return nil, err
	}
	data := j.buffer.data
	padded = data[:ssd.WholePages(int64(j.length))]
	clear(padded[j.length:])
	j.stream.crcs[j.index] = crc.Checksum(data[:j.length])
	return padded, nil
}

// buffer returns a buffer for a new stream, and leaves memory for others of a chunk. If there is none, it waits for the
// buffers of streams that have ended.
func (f *file) buffer(size, others int) (*buffer, error) {
	f.mu.Lock()
	waits, left := f.leaving, f.left
	f.mu.Unlock()
	for {
		one, err := f.buffers.take(size, others)
		if err == nil || waits == 0 {
			return one, err
		}
		f.mu.Lock()
		for f.left == left {
			f.changed.Wait()
		}
		waits = max(0, waits-int(f.left-left))
		left = f.left
		f.mu.Unlock()
	}
}

// end frees the buffer of a job and informs its stream.
func (f *file) end(j job, err error) {
	if j.last {
		f.buffers.give(j.buffer)
		f.leave(-1)
	} else {
		f.spare <- j.buffer
	}
	j.stream.written(err)
}
