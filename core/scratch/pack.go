package scratch

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

const (
	posBytes = 4
	// checkRows is how many rows of a pack in memory are given out between two looks at the context. Arbitrary: some tens
	// of us.
	checkRows = 512
)

// PackBytes returns what a pack takes in memory, and, but for up to a chunk and some per cent of gaps, in the file.
func PackBytes(rows, rowBytes int) int64 { return int64(rows) * (posBytes + int64(rowBytes)) }

// Pack is a bag of rows, each with a position. It is filled by Add, then sealed, then read. All methods are safe for
// concurrent use.
type Pack struct {
	pool     *Pool
	rows     int64
	rowBytes int
	added    atomic.Int64 // rows; each Add takes the next number

	gate   sync.RWMutex // held for reading by Add and Read, so that Seal and Close wait for them; guards sealed and closed
	sealed bool
	closed bool

	block  *mem.Block // the records, when they are in memory
	stream *stream    // else where they are
	adding sync.Mutex // held while a record is added to stream
	inFile int64      // rows added to stream; guarded by adding
}

// NewPack returns an empty pack for up to rows rows of rowBytes bytes each: in memory while there is room, else in the
// file, which rows of nearly a chunk and longer gain nothing from. Without room, or when the file is out of use, the
// error wraps ErrFull. It is not called from a receiver of the engine's data, since making the file needs the engine.
func (p *Pool) NewPack(rows, rowBytes int) (*Pack, error) {
	if rows < 0 || rows > math.MaxInt32 || rowBytes < 1 || rowBytes > math.MaxInt32 {
		panic(fmt.Sprintf("scratch: a pack of %d rows of %d bytes", rows, rowBytes))
	}
	k := &Pack{pool: p, rows: int64(rows), rowBytes: rowBytes}
	block, inMemory := p.alloc(PackBytes(rows, rowBytes), true)
	if inMemory == nil {
		k.block = block
		if err := p.enter(k); err != nil {
			p.free(block, true)
			return nil, err
		}
		return k, nil
	}
	record := k.recordBytes()
	var err error
	k.stream, err = p.newStream(k, func(chunk int) (int64, int, int) {
		perChunk := int64(chunk / record)
		if perChunk == 0 {
			return 0, 0, 0
		}
		n := (k.rows + perChunk - 1) / perChunk
		return n, int(perChunk) * record, int(k.rows-(n-1)*perChunk) * record
	})
	if err != nil && p.options.FileBytes == 0 {
		return nil, inMemory
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

func (k *Pack) recordBytes() int { return posBytes + k.rowBytes }

// Add puts a row in: pos, and fields one after the other, which make up the row. It may wait for a write, never for a
// read, so it may be called by whoever receives data from the engine. Rows that do not fit, or come after Seal, are a
// panic. Whether writing fails is told by Seal and Read, since whoever adds a row can do nothing about it: the only
// error here is ErrClosed.
func (k *Pack) Add(pos int32, fields ...[]byte) error {
	if err := k.beginAdding(); err != nil {
		return err
	}
	defer k.endAdding()
	k.put(pos, fields)
	return nil
}

// AddAll is Add for each of some rows, which it locks the pack for once: rows yields a position and its fields, which
// are not kept.
func (k *Pack) AddAll(rows iter.Seq2[int32, [][]byte]) error {
	if err := k.beginAdding(); err != nil {
		return err
	}
	defer k.endAdding()
	for pos, fields := range rows {
		k.put(pos, fields)
	}
	return nil
}

// beginAdding lets the caller put rows until endAdding, unless the pack is closed.
func (k *Pack) beginAdding() error {
	k.gate.RLock()
	if k.closed {
		k.gate.RUnlock()
		return ErrClosed
	}
	if k.stream != nil {
		k.adding.Lock()
	}
	return nil
}

func (k *Pack) endAdding() {
	if k.stream != nil {
		k.adding.Unlock()
	}
	k.gate.RUnlock()
}

// put copies a row to its record, between beginAdding and endAdding.
func (k *Pack) put(pos int32, fields [][]byte) {
	n := 0
	for _, f := range fields {
		n += len(f)
	}
	switch {
	case k.sealed:
		panic("scratch: Add to a sealed pack")
	case n != k.rowBytes:
		panic(fmt.Sprintf("scratch: a row of %d bytes in a pack of rows of %d", n, k.rowBytes))
	}
	i := k.added.Add(1)
	if i > k.rows {
		panic(fmt.Sprintf("scratch: more than %d rows in a pack", k.rows))
	}
	record := k.recordBytes()
	to := k.place(i, record)
	binary.LittleEndian.PutUint32(to, uint32(pos))
	to = to[posBytes:]
	for _, f := range fields {
		to = to[copy(to, f):]
	}
	if k.stream == nil {
		return
	}
	k.stream.advance(record, record)
	if k.inFile++; k.inFile == k.rows {
		_ = k.stream.flush() // Seal says it again; the buffer is free for another pack
	}
}

// place is where record number i, from 1 on, goes.
func (k *Pack) place(i int64, record int) []byte {
	if k.stream == nil {
		return k.block.Bytes()[(i-1)*int64(record):][:record]
	}
	return k.stream.room()[:record]
}

// Seal ends the adding. It hands the rest to the writers without waiting for them, and returns what has failed so far;
// Read tells the rest.
func (k *Pack) Seal() error {
	k.gate.Lock()
	defer k.gate.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.sealed = true
	if k.stream == nil {
		return nil
	}
	return k.stream.flush()
}

// Read calls emit once for every row that was added, in any order; row is valid during the call only. For a pack in the
// file this happens on threads of the engine and at the same time for different rows, after the checksum of the whole
// chunk was found right. The first error of emit ends it and is returned as it is, a panic as an error. A sealed pack
// may be read more than once.
func (k *Pack) Read(ctx context.Context, emit func(pos int32, row []byte) error) error {
	k.gate.RLock()
	defer k.gate.RUnlock()
	switch {
	case k.closed:
		return ErrClosed
	case !k.sealed:
		panic("scratch: Read of a pack that is not sealed")
	case k.stream != nil:
		return k.stream.read(ctx, func(_ int, data []byte) error { return k.each(data, emit) })
	}
	return guard.Run(func() error {
		records := k.block.Bytes()[:k.added.Load()*int64(k.recordBytes())]
		step := checkRows * k.recordBytes()
		for len(records) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(step, len(records))
			if err := k.each(records[:n], emit); err != nil {
				return err
			}
			records = records[n:]
		}
		return ctx.Err()
	})
}

func (k *Pack) each(records []byte, emit func(pos int32, row []byte) error) error {
	record := k.recordBytes()
	for ; len(records) > 0; records = records[record:] {
		pos := int32(binary.LittleEndian.Uint32(records)) // as it was put in
		if err := emit(pos, records[posBytes:record:record]); err != nil {
			return err
		}
	}
	return nil
}

// Close gives memory and space back, whatever state the pack is in. It waits for calls under way, and for the one write
// that may be in flight by each writer. Calls after the first do nothing. It is not called from emit.
func (k *Pack) Close() {
	k.gate.Lock()
	defer k.gate.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	if k.stream != nil {
		k.stream.close()
	} else {
		k.pool.free(k.block, true)
	}
	k.pool.leave(k)
}
