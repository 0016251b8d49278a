package scratch

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/rows"
)

const (
	posBytes = 4
	// checkRows is the number of rows of a pack in memory between two checks of the context. Arbitrary: some tens of
	// us.
	checkRows = 512

	// prefetched bounds the bytes of the next row's place that are prefetched: longer rows are copied by streams that the
	// processor sees coming. Arbitrary.
	prefetched = 256
)

// packBytes returns the memory of a pack, and its size in the file up to a chunk and some per cent of gaps.
func packBytes(rows, rowBytes int) int64 { return int64(rows) * (posBytes + int64(rowBytes)) }

// Pack is a bag of rows, each with a position. It is filled by Add and AddRows, then sealed, then read. All methods are
// safe for concurrent use.
//
// It lies in parts: one in memory, else a chunk of the file each. A part is its rows, one after the other, and then
// their positions, so that many rows are copied in one go.
type Pack struct {
	// What adding a row needs, in one cache line.
	rowBytes int
	rows     int32
	added    int32      // rows
	mu       sync.Mutex // held while rows are added; guards all but rows, rowBytes, pool and gate
	part     []byte     // the part that fills
	held     int32      // its rows
	most     int32      // and their limit; where there are as many, the next part has not begun
	sealed   bool
	closed   bool

	block  *mem.Block // the rows, when they are in memory
	stream *stream    // else where they are

	pool *Pool
	gate sync.RWMutex // held for reading by Read, so that Close waits for it; taken before mu
}

// Positions holds the positions of rows that are read.
type Positions []byte

// Len returns the number of positions.
func (p Positions) Len() int { return len(p) / posBytes }

// At returns the position of row i.
func (p Positions) At(i int) int32 { return int32(binary.LittleEndian.Uint32(p[i*posBytes:])) } // as it was put in

// NewPack returns an empty pack for up to count rows of rowBytes bytes each: in memory while there is room, else in the
// file, which rows of nearly a chunk and longer gain nothing from. Without room, or when the file is out of use, the
// error wraps ErrFull. It is not called from a receiver of the engine's data, since making the file needs the engine.
func (p *Pool) NewPack(count, rowBytes int) (*Pack, error) {
	if count < 0 || count > math.MaxInt32 || rowBytes < 1 || rowBytes > math.MaxInt32 {
		panic(fmt.Sprintf("scratch: a pack of %d rows of %d bytes", count, rowBytes))
	}
	k := &Pack{pool: p, rows: int32(count), rowBytes: rowBytes}
	block, inMemory := p.alloc(packBytes(count, rowBytes), true)
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
	k.stream, err = p.newStream(k, true, func(chunk int) (int64, int, int) {
		perChunk := int64(chunk / record)
		if perChunk == 0 {
			return 0, 0, 0
		}
		n := (int64(count) + perChunk - 1) / perChunk
		return n, int(perChunk) * record, int(int64(count)-(n-1)*perChunk) * record
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

// Add adds a row, which may be shorter than the rows of the pack: Read then returns undefined bytes behind it. It may
// wait for a write, never for a read, so receivers of data from the engine may call it. Rows beyond the capacity panic.
// Failed writes are returned by Seal and Read, since the caller of Add cannot handle them: its only errors are
// ErrSealed and ErrClosed.
func (k *Pack) Add(pos int32, row []byte) error {
	if len(row) > k.rowBytes {
		panic(fmt.Sprintf("scratch: a row of %d bytes in a pack of rows of %d", len(row), k.rowBytes))
	}
	return k.put([]int32{pos}, func(to []byte, _, _ int) { copy(to, row) })
}

// AddRows is Add for rows of a table, width bytes each: row from[i] of src at position pos[i].
func (k *Pack) AddRows(pos []int32, src []byte, width int, from []int32) error {
	if len(pos) != len(from) || width < 1 || width > k.rowBytes {
		panic(fmt.Sprintf("scratch: %d positions for %d rows of %d bytes in a pack of rows of %d", len(pos), len(from), width,
			k.rowBytes))
	}
	return k.put(pos, func(to []byte, lo, hi int) {
		if width == k.rowBytes {
			rows.Gather(to, src, width, from[lo:hi])
			return
		}
		for i, row := range from[lo:hi] {
			copy(to[i*k.rowBytes:], src[int(row)*width:][:width])
		}
	})
}

// put lets write copy the rows lo to hi of pos to their places.
func (k *Pack) put(pos []int32, write func(to []byte, lo, hi int)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return ErrClosed
	case k.sealed:
		return ErrSealed
	case len(pos) > int(k.rows-k.added):
		panic(fmt.Sprintf("scratch: more than %d rows in a pack", k.rows))
	}
	for lo := 0; lo < len(pos); {
		if k.held == k.most {
			k.begin()
		}
		held, most := int(k.held), int(k.most)
		hi := min(len(pos), lo+most-held)
		write(k.part[held*k.rowBytes:(held+hi-lo)*k.rowBytes], lo, hi)
		to := k.part[most*k.rowBytes+held*posBytes:]
		for i, at := range pos[lo:hi] {
			binary.LittleEndian.PutUint32(to[i*posBytes:], uint32(at))
		}
		if next := held + hi - lo; next < most {
			// unsafe: only prefetched, within part. A prologue comes back to a pack a thousand rows later.
			asm.PrefetchRange(unsafe.Pointer(&k.part[next*k.rowBytes]), min(k.rowBytes, prefetched))
			asm.PrefetchRange(unsafe.Pointer(&to[hi*posBytes-lo*posBytes]), posBytes)
		}
		k.took(hi - lo)
		lo = hi
	}
	return nil
}

// begin begins a part, which has room for a row.
func (k *Pack) begin() {
	k.held = 0
	if k.stream == nil {
		k.part, k.most = k.block.Bytes(), k.rows
		return
	}
	perChunk := int64(k.stream.payload / k.recordBytes())
	k.part, k.most = k.stream.buffer.data, int32(min(perChunk, int64(k.rows)-int64(k.stream.index)*perChunk))
}

// took counts rows that were added, and ends a part that is full.
func (k *Pack) took(n int) {
	k.added += int32(n)
	k.held += int32(n)
	if k.held < k.most || k.stream == nil {
		return
	}
	k.stream.advance(int(k.held)*k.recordBytes(), k.recordBytes())
	if k.added == k.rows {
		_ = k.stream.flush() // Seal says it again; the buffer is free for another pack
	}
}

// Seal ends the adding. It passes the rest to the writers without waiting for them, and returns errors so far; Read
// returns later ones.
func (k *Pack) Seal() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.sealed = true
	if k.stream == nil {
		return nil
	}
	if held := int(k.held); k.held < k.most { // fewer rows than the part may have
		copy(k.part[held*k.rowBytes:], k.part[int(k.most)*k.rowBytes:][:held*posBytes])
		k.stream.advance(held*k.recordBytes(), 0)
		k.most = k.held
	}
	return k.stream.flush()
}

// Read calls emit with all rows that were added, several at a time and in any order: their positions, and the rows one
// after another, both valid only during the call. For a pack in the file this happens on threads of the engine and
// concurrently for different rows, after the checksum of the whole chunk is verified. The first error of emit ends it
// and is returned as is, a panic as an error. A sealed pack may be read more than once.
func (k *Pack) Read(ctx context.Context, emit func(pos Positions, rows []byte) error) error {
	k.gate.RLock()
	defer k.gate.RUnlock()
	added, err := k.toRead()
	switch {
	case err != nil:
		return err
	case k.stream != nil:
		return k.stream.read(ctx, func(_ int, data []byte) error {
			n := len(data) / k.recordBytes()
			return emit(Positions(data[n*k.rowBytes:]), data[:n*k.rowBytes])
		})
	}
	return guard.Run(func() error {
		data := k.block.Bytes()
		pos := Positions(data[int(k.rows)*k.rowBytes:])
		for lo := 0; lo < added; lo += checkRows {
			if err := ctx.Err(); err != nil {
				return err
			}
			hi := min(lo+checkRows, added)
			if err := emit(pos[lo*posBytes:hi*posBytes], data[lo*k.rowBytes:hi*k.rowBytes]); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// toRead returns the number of rows to read. Neither it nor their places change while gate is held.
func (k *Pack) toRead() (added int, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return 0, ErrClosed
	case !k.sealed:
		panic("scratch: Read of a pack that is not sealed")
	}
	return int(k.added), nil
}

// Close frees memory and space in any state of the pack. It waits for running calls, and for at most one write in
// flight per writer. Repeated calls do nothing. It must not be called from emit.
func (k *Pack) Close() {
	k.gate.Lock()
	defer k.gate.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
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
