package ssd

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"freshgo/core/internal/crc"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

const (
	firstBurst   = 8                    // requests: even a hard disk answers these in a tenth of a second
	burstGrowth  = 4                    // from one burst to the next, until one lasts long enough
	lasting      = 2                    // divisor of its share: the least time of a burst that counts
	maxBurst     = 1 << 15              // requests: half a MiB of ranges, and a third of a second at 100k IOPS
	maxWritten   = 128 << 20            // size limit of the written file, in bytes
	leastWritten = 16 << 20             // bytes of it that are overwritten repeatedly; arbitrary
	writtenFrom  = 4 << 20              // bytes of the source, so that it has huge pages like the memory of packs
	tempChunk    = 256 << 10            // longest chunk of a write to a Temp
	tempFlight   = 1 << 20              // bytes of writes to a Temp in flight
	fewWriters   = 4                    // writers, at least
	manyWriters  = 16                   // writers, at most
	tinyTime     = time.Nanosecond * 50 // resolution of the clock
)

// TempChunk returns the bytes of one write to a Temp, which is one range of the engine: up to 256 KiB.
func (e *Engine) TempChunk() int { return min(e.slot, tempChunk) }

// TempWriters returns the number of goroutines that should write to a Temp, each with its own Writes: enough for a MiB
// of chunks in flight, within limits. With chunks of 64 KiB anywhere in a file, 4 writers reached 0.7 GB/s and 16
// reached 1.2 to 1.7; with 256 KiB, 4 reached 1.7.
func (e *Engine) TempWriters() int { return e.TempFlight() / e.tempDepth() }

// TempFlight returns the number of chunks in flight over all these goroutines.
func (e *Engine) TempFlight() int { return min(max(tempFlight/e.TempChunk(), fewWriters), manyWriters) }

// tempDepth returns the number of writes in flight per goroutine.
func (e *Engine) tempDepth() int {
	if e.name == IOUring {
		return e.TempFlight()
	}
	return 1
}

// tally sums the times of bursts of requests of one length. A disk that grants requests per tenth of a second answers
// one burst at once and delays the next, so the median of bursts would be meaningless.
type tally struct {
	pages     int64 // of a request
	next      int   // requests of the next burst
	count     int64
	took      time.Duration
	processor []float64 // by burst: seconds per request, over all threads of the process
}

func (t tally) perRequest() float64 { return perRequest(t.took, t.count) }

// processorPerRequest returns the minimum over bursts, as other threads of the process work meanwhile.
func (t tally) processorPerRequest() float64 { return slices.Min(t.processor) }

func perRequest(d time.Duration, count int64) float64 {
	return max(d, tinyTime).Seconds() / float64(max(count, 1))
}

// processorTime returns the processor time of all threads of this process.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // cannot fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (t tally) bytesPerSecond() float64 { return float64(t.pages*PageBytes) / t.perRequest() }

// burst runs longer and longer bursts of at most n requests until one lasts long enough, and counts that one. run stops
// making requests after a share of time, and returns the number made.
func (t *tally) burst(
	ctx context.Context, share time.Duration, run func(ctx context.Context, n int) (int64, error),
) error {
	t.next = max(t.next, firstBurst)
	for {
		start, used := time.Now(), processorTime()
		part, cancel := context.WithTimeout(ctx, share)
		made, err := run(part, t.next)
		cancel()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		if took := time.Since(start); took >= share/lasting || t.next >= maxBurst {
			t.count, t.took = t.count+made, t.took+took
			t.processor = append(t.processor, perRequest(processorTime()-used, made))
			return nil
		}
		t.next *= burstGrowth
	}
}

// forget discards all counts.
func (t *tally) forget() { t.count, t.took, t.processor = 0, 0, nil }

// reader makes bursts of reads.
type reader struct {
	engine *Engine
	handle *Handle
	pages  int64 // of the file
	random *rand.Rand
	ranges []Range
}

// scattered reads n ranges at random positions.
func (r *reader) scattered(ctx context.Context, n int, pages int64) (int64, error) {
	return r.read(ctx, n, func(int) Range {
		begin := r.random.Int64N(r.pages - pages + 1)
		return pageRange(begin, begin+pages)
	})
}

// inOrder reads n consecutive ranges from a random position on, and continues at the beginning after the last whole
// one.
func (r *reader) inOrder(ctx context.Context, n int, pages int64) (int64, error) {
	whole := r.pages / pages
	first := r.random.Int64N(whole)
	return r.read(ctx, n, func(i int) Range {
		begin := (first + int64(i)) % whole * pages
		return pageRange(begin, begin+pages)
	})
}

// read reads up to n ranges and returns the number read, including ranges in flight when ctx ends.
func (r *reader) read(ctx context.Context, n int, at func(i int) Range) (int64, error) {
	r.ranges = r.ranges[:0]
	for i := range n {
		r.ranges = append(r.ranges, at(i))
	}
	before, _ := r.handle.Moved()
	err := r.engine.Read(ctx, r.handle, r.ranges, func(int, []byte) error { return nil })
	after, _ := r.handle.Moved()
	return after - before, err
}

// scribe makes bursts of writes to a Temp, like writes of packs.
type scribe struct {
	tally
	engine *Engine
	temp   *Temp
	block  *mem.Block // chunks, shared by all writers
	chunk  int
	made   int64 // chunks written
	limit  int64 // chunks of the file; later writes overwrite
	count  int   // writers
}

func newScribe(e *Engine, c Calibration) (*scribe, error) {
	if c.WriteDir == "" {
		return nil, errNotAsked
	}
	s := &scribe{engine: e, chunk: e.TempChunk(), count: e.TempWriters()}
	s.limit = int64(maxWritten / s.chunk)
	s.pages = int64(s.chunk / PageBytes)
	var err error
	if s.block, err = c.Budget.Alloc(mem.Staging, int64(max(s.chunk, writtenFrom))); err != nil {
		if s.block, err = c.Budget.Alloc(mem.Staging, int64(s.chunk)); err != nil {
			return nil, err
		}
	}
	noise := rand.New(rand.NewPCG(1, 1)) // a disk might write zeros faster
	words := mem.Slice[uint64](s.block)
	for i := range words {
		words[i] = noise.Uint64()
	}
	if s.temp, err = e.CreateTemp(c.WriteDir, c.Budget); err != nil {
		s.block.Free()
		return nil, err
	}
	return s, nil
}

func (s *scribe) close() {
	_ = s.temp.Close() // its content is not needed
	s.block.Free()
}

// settle restricts writes to the part of the file that is written, if that is too large for a cache: most chunks of
// packs overwrite earlier ones.
func (s *scribe) settle() {
	if s.made*int64(s.chunk) >= leastWritten {
		s.limit = min(s.made, s.limit)
	}
}

// write writes up to n chunks, each with a checksum as packs have, behind the chunks so far, and from the beginning of
// the file when it is full.
func (s *scribe) write(ctx context.Context, n int) (int64, error) {
	first := s.made
	if err := s.temp.Grow(min(first+int64(n), s.limit) * int64(s.chunk)); err != nil {
		return 0, err
	}
	var made atomic.Int64 // chunks
	chunks := guard.NewPieces(int64(n), 1)
	errs := make(chan error, s.count)
	for range s.count {
		guard.Go(func() {
			var err error
			writes := s.engine.Writes(s.temp)
			defer writes.Close()
			for j := range chunks.Each() {
				if err = cmp.Or(err, ctx.Err()); err != nil {
					break
				}
				data := s.data(j)
				crc.Checksum(data)
				writes.Begin(data, (first+j)%s.limit*int64(s.chunk), func(failed error) { err = cmp.Or(err, failed) })
				made.Add(1)
				if writes.Full() {
					writes.Await()
				}
			}
			for writes.InFlight() > 0 {
				writes.Await()
			}
			errs <- err
		}, func(p *guard.PanicError) { errs <- p })
	}
	var err error
	for range s.count {
		err = cmp.Or(err, <-errs)
	}
	s.made += made.Load()
	return made.Load(), err
}

// data returns the content of chunk j.
func (s *scribe) data(j int64) []byte {
	all := s.block.Bytes()
	at := int(j) % (len(all) / s.chunk) * s.chunk
	return all[at : at+s.chunk]
}

// mixture makes bursts of writes alone, and beside reads in order.
type mixture struct {
	tally   // of the writes beside reads
	reading *reader
	writing *scribe
	pages   int64 // of a read
	read    int64 // read requests
}

// mostBeside bounds the part of writing that does not delay reads, so that Learned can correct it downwards.
const mostBeside = 7. / 8

// measure alternates bursts of writes alone and beside reads.
func (m *mixture) measure(ctx context.Context, share time.Duration) error {
	w := m.writing
	if err := w.burst(ctx, share, w.write); err != nil {
		return err
	}
	w.forget()
	w.settle()
	for range rounds {
		if err := w.burst(ctx, share, w.write); err != nil {
			return err
		}
		if err := m.burst(ctx, share, m.both); err != nil {
			return err
		}
	}
	return nil
}

// both reads until ctx ends and writes meanwhile, without growing the file, and returns the number of chunks written.
func (m *mixture) both(ctx context.Context, n int) (written int64, err error) {
	ended := make(chan error, 1)
	guard.Go(func() {
		var err error
		written, err = m.writing.write(ctx, min(n, burstGrowth*m.writing.next))
		ended <- err
	}, func(p *guard.PanicError) { ended <- p })
	read, err := m.reading.inOrder(ctx, n, m.pages)
	m.read += read
	return written, cmp.Or(<-ended, err)
}

// share returns Device.WriteBeside. The time of the bursts minus the time that their reads take alone is the cost of
// the writes. If reads and writes have separate limits, this is nothing until writes take longer than reads.
func (m *mixture) share(d Device) float64 {
	reads := float64(m.read*m.pages*PageBytes) / d.ReadBytesPerSecond
	cost := (m.took.Seconds() - reads) / float64(max(m.count, 1))
	alone := m.writing.perRequest()
	return max(0, min(1-cost/alone, d.WriteBytesPerSecond/d.ReadBytesPerSecond, mostBeside))
}
