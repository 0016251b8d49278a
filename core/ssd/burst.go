package ssd

import (
	"cmp"
	"context"
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
	firstBurst  = 8                    // requests: even a disk with moving parts answers these in a tenth of a second
	burstGrowth = 4                    // from one burst to the next, until one lasts
	maxBurst    = 1 << 15              // requests: half a MiB of ranges, and a third of a second at 100k IOPS
	maxWritten  = 128 << 20            // bytes of the file that is written
	steadyPart  = 4                    // a burst of this many times the depth is counted only while the queue is full
	tempChunk   = 256 << 10            // the longest chunk that is written to a Temp
	tempFlight  = 1 << 20              // bytes of writes to a Temp that are in flight
	fewWriters  = 4                    // that write them, at least
	manyWriters = 16                   // and at most
	tinyTime    = time.Nanosecond * 50 // what a clock may show as nothing
)

// TempChunk returns how many bytes to write to a Temp at a time so that each is one range for the engine: up to 256
// KiB.
func (e *Engine) TempChunk() int { return min(e.slot, tempChunk) }

// TempWriters returns how many goroutines are worth having that write to a Temp, each with Writes of its own: so many
// that a MiB of chunks is in flight, within limits. Of 64 KiB anywhere in a file, 4 at a time reached 0.7 GB/s and 16
// reached 1.2 to 1.7; of 256 KiB, 4 reached 1.7.
func (e *Engine) TempWriters() int { return e.TempFlight() / e.tempDepth() }

// TempFlight is how many chunks these have in flight together.
func (e *Engine) TempFlight() int { return min(max(tempFlight/e.TempChunk(), fewWriters), manyWriters) }

// tempDepth is how many writes each of them has in flight.
func (e *Engine) tempDepth() int {
	if e.name == IOUring {
		return e.TempFlight()
	}
	return 1
}

// tally is what bursts of requests of one length took.
type tally struct {
	pages   int64     // of a request
	next    int       // requests of the next burst
	seconds []float64 // per request, by round
	// per request, by round: of the processor
	processor []float64
}

// perRequest is the median: a machine that is busy with something else disturbs one round and not all.
func (t tally) perRequest() float64 { return median(t.seconds) }

func (t tally) processorPerRequest() float64 { return median(t.processor) }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// timed is what a burst took: the requests that were made, and the time of those among them that were timed.
type timed struct {
	made, count int
	took        time.Duration
}

// processorTime is what of the processor this process has used, by all threads.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // does not happen
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (t tally) bytesPerSecond() float64 { return float64(t.pages*PageBytes) / t.perRequest() }

// burst runs ever longer bursts of about n requests until one takes a good part of its share, and counts that one.
func (t *tally) burst(share time.Duration, run func(n int) (timed, error)) error {
	t.next = max(t.next, firstBurst)
	for {
		start, used := time.Now(), processorTime()
		of, err := run(t.next)
		if err != nil {
			return err
		}
		if time.Since(start) >= share/burstGrowth || t.next >= maxBurst {
			t.seconds = append(t.seconds, max(of.took, tinyTime).Seconds()/float64(of.count))
			t.processor = append(t.processor, max(processorTime()-used, tinyTime).Seconds()/float64(of.made))
			return nil
		}
		t.next *= burstGrowth
	}
}

// reader makes bursts of reads.
type reader struct {
	engine *Engine
	handle *Handle
	pages  int64 // of the file
	random *rand.Rand
	ranges []Range
}

// scattered reads n ranges at random places.
func (r *reader) scattered(ctx context.Context, n int, pages int64) (timed, error) {
	return r.read(ctx, n, func(int) Range {
		begin := r.random.Int64N(r.pages - pages + 1)
		return pageRange(begin, begin+pages)
	})
}

// inOrder reads n ranges one after the other from a random place on, and from the beginning again after the last whole
// one.
func (r *reader) inOrder(ctx context.Context, n int, pages int64) (timed, error) {
	whole := r.pages / pages
	first := r.random.Int64N(whole)
	return r.read(ctx, n, func(i int) Range {
		begin := (first + int64(i)) % whole * pages
		return pageRange(begin, begin+pages)
	})
}

// read times a Read. A long one is timed between two deliveries while the queue was full, for its beginning and its end
// say nothing about a device at depth.
func (r *reader) read(ctx context.Context, n int, at func(i int) Range) (timed, error) {
	r.ranges = r.ranges[:0]
	for i := range n {
		r.ranges = append(r.ranges, at(i))
	}
	from, to := 0, n
	if depth := r.engine.depth; n >= steadyPart*depth {
		from, to = depth, n-depth
	}
	var delivered, began, ended atomic.Int64 // deliveries are concurrent; the two of them that take the time are unique
	start := time.Now()
	err := r.engine.Read(ctx, r.handle, r.ranges, func(int, []byte) error {
		switch int(delivered.Add(1)) {
		case from:
			began.Store(int64(time.Since(start)))
		case to:
			ended.Store(int64(time.Since(start)))
		}
		return nil
	})
	return timed{n, to - from, time.Duration(ended.Load() - began.Load())}, err
}

// scribe makes bursts of writes to a Temp, as packs are written.
type scribe struct {
	tally
	engine *Engine
	temp   *Temp
	block  *mem.Block // a chunk, which all writers write
	chunk  int
	end    int // of what is written
	count  int // of writers
}

func newScribe(e *Engine, c Calibration) (*scribe, error) {
	if c.WriteDir == "" {
		return nil, errNotAsked
	}
	s := &scribe{engine: e, chunk: e.TempChunk(), count: e.TempWriters()}
	s.pages = int64(s.chunk / PageBytes)
	var err error
	if s.block, err = c.Budget.Alloc(mem.Staging, int64(s.chunk)); err != nil {
		return nil, err
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

// write appends n chunks, each with a checksum as packs have it, or as many as may be written in all, and begins at the
// front again when there is no room.
func (s *scribe) write(ctx context.Context, n int) (timed, error) {
	n = min(n, maxWritten/s.chunk)
	if s.end+n*s.chunk > maxWritten {
		s.end = 0
	}
	first := s.end
	s.end += n * s.chunk
	if err := s.temp.Grow(int64(s.end)); err != nil {
		return timed{}, err
	}
	var next atomic.Int64 // of the chunks, shared out among the writers
	errs := make(chan error, s.count)
	start := time.Now()
	for range s.count {
		guard.Go(func() {
			var err error
			writes := s.engine.Writes(s.temp)
			defer writes.Close()
			for j := int(next.Add(1)) - 1; j < n && err == nil; j = int(next.Add(1)) - 1 {
				if err = ctx.Err(); err == nil {
					crc.Checksum(s.block.Bytes())
					writes.Begin(s.block.Bytes(), int64(first+j*s.chunk), func(failed error) { err = cmp.Or(err, failed) })
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
	return timed{n, n, time.Since(start)}, err
}
