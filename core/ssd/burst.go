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
	firstBurst   = 8                    // requests: even a disk with moving parts answers these in a tenth of a second
	burstGrowth  = 4                    // from one burst to the next, until one lasts
	lasting      = 2                    // the part of its share, a divisor, that a burst lasts which counts
	maxBurst     = 1 << 15              // requests: half a MiB of ranges, and a third of a second at 100k IOPS
	maxWritten   = 128 << 20            // bytes of the file that is written
	leastWritten = 16 << 20             // bytes of it that are written again and again; arbitrary
	writtenFrom  = 4 << 20              // bytes of memory, so that it has huge pages, as that has which packs fill
	tempChunk    = 256 << 10            // the longest chunk that is written to a Temp
	tempFlight   = 1 << 20              // bytes of writes to a Temp that are in flight
	fewWriters   = 4                    // that write them, at least
	manyWriters  = 16                   // and at most
	tinyTime     = time.Nanosecond * 50 // what a clock may show as nothing
)

// TempChunk returns how many bytes to write to a Temp at a time so that each is one range for the engine: up to 256
// KiB.
func (e *Engine) TempChunk() int { return min(e.slot, tempChunk) }

// TempWriters returns the number of goroutines that should write to a Temp, each with Writes of its own: enough for a
// MiB of chunks in flight, within limits. With chunks of 64 KiB anywhere in a file, 4 at a time reached 0.7 GB/s and 16
// reached 1.2 to 1.7; with 256 KiB, 4 reached 1.7.
func (e *Engine) TempWriters() int { return e.TempFlight() / e.tempDepth() }

// TempFlight returns the number of chunks that these goroutines have in flight together.
func (e *Engine) TempFlight() int { return min(max(tempFlight/e.TempChunk(), fewWriters), manyWriters) }

// tempDepth returns the number of writes that each of them has in flight.
func (e *Engine) tempDepth() int {
	if e.name == IOUring {
		return e.TempFlight()
	}
	return 1
}

// tally sums the times of bursts of requests of one length: a disk that hands out its requests by the tenth of a second
// answers one burst at once and lets the next one wait, so that a median of bursts would mean nothing.
type tally struct {
	pages     int64 // of a request
	next      int   // requests of the next burst
	count     int64
	took      time.Duration
	processor []float64 // by burst: seconds per request, of all threads of the process
}

func (t tally) perRequest() float64 { return perRequest(t.took, t.count) }

// processorPerRequest is the least that was seen: other threads of the process have work of their own meanwhile.
func (t tally) processorPerRequest() float64 { return slices.Min(t.processor) }

func perRequest(d time.Duration, count int64) float64 {
	return max(d, tinyTime).Seconds() / float64(max(count, 1))
}

// processorTime returns the processor time of this process, by all threads.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // does not happen
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (t tally) bytesPerSecond() float64 { return float64(t.pages*PageBytes) / t.perRequest() }

// burst runs ever longer bursts of at most n requests until one lasts, and counts that one. run makes no more requests
// once a share has passed, and returns how many it made.
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

// forget makes what was counted count no more.
func (t *tally) forget() { t.count, t.took, t.processor = 0, 0, nil }

// reader makes bursts of reads.
type reader struct {
	engine *Engine
	handle *Handle
	pages  int64 // of the file
	random *rand.Rand
	ranges []Range
}

// scattered reads n ranges at random places.
func (r *reader) scattered(ctx context.Context, n int, pages int64) (int64, error) {
	return r.read(ctx, n, func(int) Range {
		begin := r.random.Int64N(r.pages - pages + 1)
		return pageRange(begin, begin+pages)
	})
}

// inOrder reads n ranges one after the other from a random place on, and from the beginning again after the last whole
// one.
func (r *reader) inOrder(ctx context.Context, n int, pages int64) (int64, error) {
	whole := r.pages / pages
	first := r.random.Int64N(whole)
	return r.read(ctx, n, func(i int) Range {
		begin := (first + int64(i)) % whole * pages
		return pageRange(begin, begin+pages)
	})
}

// read reads up to n ranges and returns how many it did: what is in flight when ctx ends counts as well.
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

// scribe makes bursts of writes to a Temp, as packs are written.
type scribe struct {
	tally
	engine *Engine
	temp   *Temp
	block  *mem.Block // chunks, which all writers write
	chunk  int
	made   int64 // chunks that were written
	limit  int64 // chunks of the file; then they are written again
	count  int   // of writers
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
	noise := rand.New(rand.NewPCG(1, 1)) // zeros might cost a disk less
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
	_ = s.temp.Close() // nothing in it is needed
	s.block.Free()
}

// settle keeps to the part of the file that has been written, where that is large enough for no cache to hold it: most
// chunks of packs lie where others have lain.
func (s *scribe) settle() {
	if s.made*int64(s.chunk) >= leastWritten {
		s.limit = min(s.made, s.limit)
	}
}

// write writes up to n chunks, each with a checksum as packs have it, after those that are written, and begins at the
// front again when there is no room.
func (s *scribe) write(ctx context.Context, n int) (int64, error) {
	first := s.made
	if err := s.temp.Grow(min(first+int64(n), s.limit) * int64(s.chunk)); err != nil {
		return 0, err
	}
	var next, made atomic.Int64 // of the chunks, shared out among the writers
	errs := make(chan error, s.count)
	for range s.count {
		guard.Go(func() {
			var err error
			writes := s.engine.Writes(s.temp)
			defer writes.Close()
			for j := next.Add(1) - 1; j < int64(n) && err == nil; j = next.Add(1) - 1 {
				if err = ctx.Err(); err == nil {
					data := s.data(j)
					crc.Checksum(data)
					writes.Begin(data, (first+j)%s.limit*int64(s.chunk), func(failed error) { err = cmp.Or(err, failed) })
					made.Add(1)
				}
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

// data returns the contents of chunk j.
func (s *scribe) data(j int64) []byte {
	all := s.block.Bytes()
	at := int(j) % (len(all) / s.chunk) * s.chunk
	return all[at : at+s.chunk]
}

// mixture makes bursts of writes, and of reads in order besides.
type mixture struct {
	tally   // of the writes beside reads
	reading *reader
	writing *scribe
	pages   int64 // of a read
	read    int64 // requests
}

// mostBeside bounds the part of writing that costs reading nothing, so that what is learned later can find it to be
// less.
const mostBeside = 7. / 8

// measure runs bursts of writes by turns alone and beside reads.
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

// both reads until ctx ends and writes meanwhile, no more than the file need grow for, and returns how many chunks it
// wrote.
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

// share is Device.WriteBeside: what is left of the time of the bursts, beside what their reads alone would have taken,
// is what writing cost. Where reads and writes have a limit each, that is nothing until writes take longer than reads.
func (m *mixture) share(d Device) float64 {
	reads := float64(m.read*m.pages*PageBytes) / d.ReadBytesPerSecond
	cost := (m.took.Seconds() - reads) / float64(max(m.count, 1))
	alone := m.writing.perRequest()
	return max(0, min(1-cost/alone, d.WriteBytesPerSecond/d.ReadBytesPerSecond, mostBeside))
}
