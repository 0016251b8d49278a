package ssd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"freshgo/core/mem"
)

// Kind is a way to read.
type Kind string

// The kinds: Auto, and the others from the fastest to the most portable.
const (
	Auto     Kind = "auto"     // the first of the others that the system and the file system take
	IOUring  Kind = "io_uring" // one thread, a ring of requests, O_DIRECT
	Pread    Kind = "pread"    // a pool of threads, O_DIRECT
	Buffered Kind = "buffered" // a pool of threads, through the page cache
)

// Defaults of Options. On the disks measured, IOPS at 4 KiB stopped growing between 64 and 128 requests in flight, and
// merging neighbours paid for reads of up to 64 KiB.
const (
	DefaultDepth     = 128
	DefaultSlotBytes = 64 << 10
	minSlotBytes     = 64 << 10
	maxDepth         = 4096
)

// Options of an Engine.
type Options struct {
	Kind      Kind        // empty: Auto
	Depth     int         // bound of requests in flight; 0: DefaultDepth
	SlotBytes int         // longest range, a multiple of PageBytes, at least 64 KiB; 0: DefaultSlotBytes
	FS        FS          // required
	Budget    *mem.Budget // required
}

// StagingBytes returns the most memory that an engine with these options charges.
func (o Options) StagingBytes() int64 {
	o = o.withDefaults()
	return int64(o.Depth) * int64(o.SlotBytes)
}

func (o Options) withDefaults() Options {
	if o.Kind == "" {
		o.Kind = Auto
	}
	if o.Depth == 0 {
		o.Depth = DefaultDepth
	}
	if o.SlotBytes == 0 {
		o.SlotBytes = DefaultSlotBytes
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Kind != Auto && o.Kind != IOUring && o.Kind != Pread && o.Kind != Buffered:
		return fmt.Errorf("ssd: engine %q, expected %q, %q, %q or %q", o.Kind, Auto, IOUring, Pread, Buffered)
	case o.Depth < 1 || o.Depth > maxDepth:
		return fmt.Errorf("ssd: depth %d, expected 1 to %d", o.Depth, maxDepth)
	case o.SlotBytes < minSlotBytes || o.SlotBytes%PageBytes != 0:
		return fmt.Errorf("ssd: slots of %d bytes, expected a multiple of %d from %d on", o.SlotBytes, PageBytes,
			minSlotBytes)
	}
	return nil
}

// ErrRefused is wrapped by errors of NewEngine if the system refuses the requested kind.
var ErrRefused = errors.New("engine refused")

// Range is a piece of a file: offset and length are multiples of PageBytes. The last range of a file may extend beyond
// its end, within the last page; its data is then shorter than Len.
type Range struct {
	Off int64
	Len int32
}

// Stats counts what an engine has done since it was made.
type Stats struct {
	Requests int64         // read requests given to the system
	Bytes    int64         // bytes they returned
	Retries  int64         // requests that repeated or completed another
	Busy     time.Duration // time with at least one request in flight
	Full     Full
}

// Full counts the work of an engine while more was requested than it could have in flight: then the device is the
// bottleneck.
type Full struct {
	Requests, Bytes int64
	Time            time.Duration
}

// Engine reads ranges of files. All callers share one queue, first come first served, so the device stays at full depth
// from one job to the next. It is safe for concurrent use.
//
// An engine owns one thread (io_uring) or up to 64 goroutines (pread, buffered), and staging memory for its depth until
// Close. Its threads compute little but must run as soon as the device answers. In a process whose goroutines always
// compute, they wait for Go's scheduler unless it has a spare processor: with GOMAXPROCS equal to the number of busy
// goroutines io_uring fell to 0.6 of a loop in C, with one more it was level.
type Engine struct {
	name    Kind
	why     string
	fs      FS
	flags   int // of open(2)
	slot    int
	depth   int // slots
	queue   *queue
	threads sync.WaitGroup
	memory  *mem.Block
	kernel  kernel // for further rings
	close   func() // called once, by Close
}

// NewEngine starts an engine for the file system of the directory probeDir. It tries each kind by reading a page of
// some file there. With Kind Auto it falls back from a refused kind to the next (see Why); if any other kind is
// refused, the error wraps ErrRefused. If the budget is too small for the staging memory, the error wraps
// mem.ErrBudget.
func NewEngine(o Options, probeDir string) (*Engine, error) {
	return newEngine(o, probeDir, system())
}

func newEngine(o Options, probeDir string, k kernel) (*Engine, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	path, err := probeFile(o.FS, probeDir)
	if err != nil {
		return nil, err
	}
	kinds := []Kind{o.Kind}
	if o.Kind == Auto {
		kinds = []Kind{IOUring, Pread, Buffered}
	}
	var refused error
	for _, kind := range kinds {
		e, err := start(kind, o, k)
		if err == nil {
			if err = e.probe(path); err == nil {
				if refused != nil {
					e.why = refused.Error()
				}
				return e, nil
			}
			_ = e.Close() // nothing is in flight
		}
		if errors.Is(err, mem.ErrBudget) {
			return nil, err
		}
		err = fmt.Errorf("%s: %w", kind, err)
		if refused == nil {
			refused = err
		} else {
			refused = fmt.Errorf("%w; %w", refused, err)
		}
	}
	return nil, fmt.Errorf("ssd: %w: %w", ErrRefused, refused)
}

// start starts an engine of one kind.
func start(kind Kind, o Options, k kernel) (*Engine, error) {
	e := &Engine{name: kind, fs: o.FS, flags: syscall.O_RDONLY, slot: o.SlotBytes, queue: newQueue(), kernel: k}
	if kind != Buffered {
		e.flags |= Direct
	}
	slots := o.Depth
	if kind != IOUring {
		slots = min(slots, maxWorkers)
	}
	e.depth = slots
	var err error
	if e.memory, err = o.Budget.Alloc(mem.Staging, int64(slots)*int64(o.SlotBytes)); err != nil {
		return nil, err
	}
	e.close = sync.OnceFunc(func() {
		e.queue.stop(ErrClosed)
		e.threads.Wait()
		e.memory.Free()
	})
	if kind == IOUring {
		if err := e.startRing(k); err != nil {
			e.close()
			return nil, err
		}
	} else {
		e.startWorkers()
	}
	return e, nil
}

// slots returns a transfer for each slot of the staging memory.
func (e *Engine) slots() []transfer {
	memory := e.memory.Bytes()
	slots := make([]transfer, len(memory)/e.slot)
	for i := range slots {
		slots[i].slot = memory[i*e.slot : (i+1)*e.slot]
	}
	return slots
}

// probeFile returns a nonempty file below dir.
func probeFile(fs FS, dir string) (string, error) {
	names, failed := fs.ReadDir(dir)
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := fs.Lstat(path)
		if err == nil && info.IsFile && info.Size > 0 {
			return path, nil
		}
		failed = cmp.Or(failed, err)
	}
	return "", cmp.Or(failed, fmt.Errorf("ssd: no file in %s to try a read on", dir))
}

func (e *Engine) probe(path string) error {
	h, err := e.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(e.tryRead(h), h.Close())
}

// tryRead reads the first page.
func (e *Engine) tryRead(h *Handle) error {
	return e.Read(context.Background(), h, []Range{{0, PageBytes}}, func(int, []byte) error { return nil })
}

// Name returns the kind that runs.
func (e *Engine) Name() string { return string(e.name) }

// Why returns why the preceding kinds were refused; empty if the first choice runs.
func (e *Engine) Why() string { return e.why }

// Depth returns the bound of requests in flight.
func (e *Engine) Depth() int { return e.depth }

// SlotBytes returns the length of the longest range.
func (e *Engine) SlotBytes() int { return e.slot }

// Stats returns the counts so far.
func (e *Engine) Stats() Stats { return e.queue.snapshot() }

// Close ends the engine: running Reads return ErrClosed after their requests in flight have completed, and so do later
// ones. Repeated calls do nothing. Owners close their handles themselves.
func (e *Engine) Close() error {
	e.close()
	return nil
}

// Handle is a file opened for an engine.
type Handle struct {
	file   File
	size   atomic.Int64     // at opening, or as a Temp last set it; read by threads of the engine while it grows
	filter CompletionFilter // nil for a real file

	requests, received atomic.Int64 // of all Reads

	mu     sync.RWMutex // held for reading by each Read, so that Close cannot close the descriptor meanwhile
	closed bool
}

// Open opens a file for the engine. It follows no symbolic link at the end of path.
func (e *Engine) Open(path string) (*Handle, error) {
	return e.open(path, e.flags|syscall.O_NOFOLLOW)
}

func (e *Engine) open(path string, flags int) (*Handle, error) {
	file, err := e.fs.Open(path, flags, 0)
	if err != nil {
		return nil, err
	}
	size, err := file.Size()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	h := &Handle{file: file}
	h.size.Store(size)
	h.filter, _ = file.(CompletionFilter)
	return h, nil
}

// Name returns the path given to Open.
func (h *Handle) Name() string { return h.file.Name() }

// Size returns the size of the file when it was opened. Later growth is not visible.
func (h *Handle) Size() int64 { return h.size.Load() }

// Moved returns the number of read requests of this file, and their bytes.
func (h *Handle) Moved() (requests, bytes int64) { return h.requests.Load(), h.received.Load() }

// Close waits for the Reads of the file and closes it. Repeated calls do nothing.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	return h.file.Close()
}

// reach returns the bytes of a range within the file.
func (h *Handle) reach(r Range) int { return int(min(int64(r.Len), h.size.Load()-r.Off)) }

// check returns an error for malformed ranges, a mistake of the caller, and for ranges beyond the end of a truncated
// file.
func (h *Handle) check(ranges []Range, slot int) error {
	size := h.size.Load()
	end := pagesUp(size) * PageBytes
	for _, r := range ranges {
		if r.Off < 0 || r.Off%PageBytes != 0 || r.Len <= 0 || r.Len%PageBytes != 0 || int(r.Len) > slot {
			return fmt.Errorf("ssd: range of %d bytes at offset %d of %s, expected multiples of %d and at most %d bytes", r.Len,
				r.Off, h.file.Name(), PageBytes, slot)
		}
		if r.Off > end-int64(r.Len) {
			return &PathError{Op: "read", Path: h.file.Name(), Off: size, Err: io.ErrUnexpectedEOF}
		}
	}
	return nil
}

// Read reads every range once. It calls deliver(i, data) exactly once for ranges[i], on threads of the engine,
// concurrently for different i; data is valid only during the call. It returns after the last deliver has.
//
// The first failure ends it: an error of the file is a *PathError, an error or panic of deliver is returned as is. When
// ctx ends, Read submits nothing more, waits for the requests in flight (at most the engine's depth) and returns
// ctx.Err().
func (e *Engine) Read(ctx context.Context, h *Handle, ranges []Range, deliver func(i int, data []byte) error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return ErrClosed
	}
	if err := h.check(ranges, e.slot); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(ranges) == 0 {
		return err
	}
	j := &job{handle: h, ranges: ranges, deliver: deliver, done: make(chan struct{})}
	if err := e.queue.push(j); err != nil {
		return err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		e.queue.abort(j, ctx.Err())
		<-j.done
	}
	return j.err
}
