// Package scratch keeps data of a plan of transfers for a while. A Pack is a bag of rows, each with a position, for the
// batch that will need them; a Blob is a string of bytes, such as a sampled batch that waits for its turn. Package
// window makes and reads both.
//
// A pack is in memory while there is room, else in a file. Reads return exactly the data that was added, or a typed
// error: every chunk of the file has a CRC32C, kept in memory and verified before any record is returned. Packs affect
// only speed: after an error the rows are read elsewhere. So the first failed write or read disables the file
// permanently (Stats.Why), while packs in memory continue. A full disk does not: the file stays as long as it is
// (Stats.Short), and grows again once the disk has room.
//
// The file is created on first use, in a directory of the caller's, and has no name: nothing of it outlives the
// process. Memory and file space are hard bounds (Options), and all memory is counted in the budget: under Pack, and
// under Trace for a loaded blob.
//
// Rows cost a copy past the caches, and a row that is added alone also a lock. The file takes rows in chunks of 64 to
// 256 KiB, which goroutines of the pool write while others fill, and reads them in ranges of the same length through
// the engine.
package scratch

import (
	"errors"
	"fmt"
	"sync"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

var (
	// ErrFull is wrapped by the error of NewPack and NewBlob that says that there is no room now, or no file. Callers
	// do without.
	ErrFull = errors.New("scratch: no room")
	// ErrBroken is wrapped by every error that is due to a failure of the file, together with the cause.
	ErrBroken = errors.New("scratch: the file is out of use")
	// ErrDamaged is wrapped if a chunk of the file differs from the written one.
	ErrDamaged = errors.New("scratch: checksum differs")
	// ErrSealed is returned where a row comes after Seal.
	ErrSealed = errors.New("scratch: sealed")
	// ErrClosed is returned by closed packs, blobs and pools.
	ErrClosed = errors.New("scratch: closed")
)

const (
	// reserveShare, a divisor, and maxReserve bound the part of the memory that packs in memory leave for buffers of packs
	// in the file: 32 MiB are buffers for 500 packs that fill at once. Arbitrary.
	reserveShare = 4
	maxReserve   = 32 << 20
	// beside is the number of buffers that packs leave for blobs, which are written while packs fill: a batch without its
	// pack reads its rows, but a window without its blobs cannot be planned. They are at most 1/besideShare of all
	// buffers. Both arbitrary.
	beside, besideShare = 4, 32
)

// Options of a Pool.
type Options struct {
	MemoryBytes int64 // packs in memory, and buffers and tables of the file
	FileBytes   int64 // the file; 0: there is none
	// BufferBytes is the part of MemoryBytes that packs in memory leave for the file: for buffers, one for each pack that
	// fills, and for TableBytes. 0: a quarter, at most 32 MiB, and a small share of that for tables.
	BufferBytes int64
}

// PackMemory returns the part of MemoryBytes for packs in memory. With a file, some is left for its buffers.
func (o Options) PackMemory() int64 { return o.MemoryBytes - o.reserve() }

// TableBytes returns the memory of the tables for a file of this size, in chunks of this size.
func TableBytes(fileBytes int64, chunk int) int64 { return fileBytes / int64(chunk) * tableBytes }

// tables returns the part of MemoryBytes that buffers leave for the tables of streams.
func (o Options) tables(chunk int) int64 {
	if o.BufferBytes > 0 {
		return min(TableBytes(o.FileBytes, chunk), o.reserve()/2)
	}
	return o.MemoryBytes / tablesShare
}

func (o Options) reserve() int64 {
	if o.FileBytes == 0 {
		return 0
	}
	if o.BufferBytes > 0 {
		return min(o.BufferBytes, o.MemoryBytes)
	}
	return min(o.MemoryBytes/reserveShare, maxReserve)
}

// Stats describes the contents of a Pool and counts its work.
type Stats struct {
	Memory, MemoryPeak int64  // bytes of MemoryBytes in use
	File, FilePeak     int64  // bytes of FileBytes in use
	Written, Read      int64  // bytes to and from the file
	PacksRead          int64  // part of Read: of packs
	PackRequests       int64  // by which these were read
	Why                string // the first reason for which the file is out of use; empty while it can be used
	Short              string // why the file was last kept shorter than FileBytes; empty where the disk had room
}

// Pool makes packs and blobs within bounds. It is safe for concurrent use.
type Pool struct {
	fs      ssd.FS
	engine  *ssd.Engine
	dir     string
	budget  *mem.Budget
	options Options

	filing sync.Mutex // held while the file is made or closed; taken before mu
	file   *file      // nil until it is needed; guarded by filing

	mu     sync.Mutex // guards all below
	open   map[closer]struct{}
	closed bool
	packs  int64 // bytes of packs in memory, a part of stats.Memory
	broken error
	stats  Stats
}

type closer interface{ Close() }

// Open returns a Pool whose file will lie in dir and be read through engine; both are needed only when FileBytes is not
// 0. It touches nothing but leftovers: files that a process killed in the wrong millisecond has left in dir.
func Open(fs ssd.FS, engine *ssd.Engine, dir string, budget *mem.Budget, o Options) (*Pool, error) {
	if o.MemoryBytes < 0 || o.FileBytes < 0 {
		return nil, fmt.Errorf("scratch: %d bytes of memory and %d of file, expected no less than 0",
			o.MemoryBytes, o.FileBytes)
	}
	if o.FileBytes > 0 {
		ssd.RemoveTemps(fs, dir)
	}
	return &Pool{fs: fs, engine: engine, dir: dir, budget: budget, options: o, open: map[closer]struct{}{}}, nil
}

// Stats returns the counts so far.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close closes all packs and blobs, waits for their calls under way and for writes in flight, and gives memory and file
// back. Calls after the first do nothing.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	open := p.open
	p.open = nil
	p.mu.Unlock()
	for c := range open {
		c.Close()
	}
	p.filing.Lock()
	defer p.filing.Unlock()
	if p.file == nil {
		return nil
	}
	f := p.file
	p.file = nil
	return f.close()
}

// enter registers what Close is to close; leave takes it out again.
func (p *Pool) enter(c closer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.open[c] = struct{}{}
	return nil
}

func (p *Pool) leave(c closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c) // of a nil map, after Close, this does nothing
}

// Fits reports whether there is memory now for further packs in the file, each with a buffer while it fills, and for
// the blobs that may be written meanwhile.
func (p *Pool) Fits(packs int) bool {
	p.filing.Lock()
	defer p.filing.Unlock()
	if p.file == nil {
		return true
	}
	return p.file.buffers.fit(packs*p.file.chunk, beside)
}

// alloc takes a block of n bytes out of MemoryBytes. For packs in memory less is left than for buffers.
func (p *Pool) alloc(n int64, pack bool) (*mem.Block, error) {
	if !p.take(n, pack) {
		return nil, fmt.Errorf("%w for %d bytes in memory", ErrFull, n)
	}
	block, err := p.budget.Alloc(mem.Pack, n)
	if err != nil {
		p.give(n, pack)
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	}
	return block, nil
}

func (p *Pool) free(block *mem.Block, pack bool) {
	n := int64(len(block.Bytes()))
	block.Free()
	p.give(n, pack)
}

func (p *Pool) take(n int64, pack bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.stats
	if n > p.options.MemoryBytes-s.Memory || (pack && n > p.options.PackMemory()-p.packs) {
		return false
	}
	if pack {
		p.packs += n
	}
	s.Memory += n
	s.MemoryPeak = max(s.MemoryPeak, s.Memory)
	return true
}

// left returns the memory of packs, and the unused part of MemoryBytes.
func (p *Pool) left() (packs, left int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.packs, p.options.MemoryBytes - p.stats.Memory
}

func (p *Pool) give(n int64, pack bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Memory -= n
	if pack {
		p.packs -= n
	}
}

func (p *Pool) countRead(n, requests int64, pack bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Read += n
	if pack {
		p.stats.PacksRead += n
		p.stats.PackRequests += requests
	}
}

// fail puts the file out of use. The first reason stays.
func (p *Pool) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken == nil {
		p.broken = fmt.Errorf("%w: %w", ErrBroken, err)
		p.stats.Why = err.Error()
	}
}

// short records that the disk has no room for a further n bytes of the file.
func (p *Pool) short(n, size int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Short = fmt.Sprintf(
		"%d more bytes were needed in %s: the file stays at %d of up to %d bytes, and windows have fewer batches: %v",
		n, p.dir, size, p.options.FileBytes, err)
}

// freeOnDisk returns the free bytes of the file system of the file, or -1 where it does not say them.
func (p *Pool) freeOnDisk() int64 {
	free, err := p.fs.Space(p.dir)
	if err != nil {
		return -1
	}
	return free
}

// FileRoom returns the bytes that the file may take, in all and beside those in use: FileBytes, or less where the disk
// has less free. Both are 0 where there is no file, or where it is out of use.
func (p *Pool) FileRoom() (all, left int64) {
	p.filing.Lock()
	defer p.filing.Unlock()
	if p.options.FileBytes == 0 || p.failed() != nil {
		return 0, 0
	}
	all = p.options.FileBytes
	size, used, short := int64(0), int64(0), false
	if f := p.file; f != nil {
		f.mu.Lock()
		size, used, short = f.temp.Handle().Size(), f.used*int64(f.chunk), f.beyond.count > 0
		f.mu.Unlock()
	}
	if free := p.freeOnDisk(); free >= 0 {
		all = min(all, size+free)
	} else if short {
		all = size
	}
	return all, max(0, all-used)
}

// failed returns why the file is out of use, or nil.
func (p *Pool) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}
