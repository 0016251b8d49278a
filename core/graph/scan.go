package graph

import (
	"context"

	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

const (
	// ScanPiece is the size of a scan's reads, each beside the work on the piece before:
	// sixteen requests of the engine, enough for nearly the sequential rate of its
	// device.
	ScanPiece = 1 << 20
	// ScanIDs is the number of ids that a visitor gets at a time: they stay in the
	// second-level cache.
	ScanIDs = 1 << 14
)

// Scan calls visit with all ids in order, a piece at a time. Pieces are valid
// during the call only. Ids on disk are checked against the limit and take up to
// two pieces of staging memory.
func (a *IDs) Scan(ctx context.Context, budget *mem.Budget, visit func(first int64, ids []int64) error) error {
	return a.ScanSome(ctx, budget, 1, visit)
}

// ScanSome scans every every-th piece: buffers of the engine if the ids are on disk.
func (a *IDs) ScanSome(
	ctx context.Context, budget *mem.Budget, every int64, visit func(first int64, ids []int64) error,
) error {
	step := int(every) * ScanIDs
	switch {
	case a.disk != nil:
		buffer := make([]int64, ScanIDs)
		return a.disk.scanSome(ctx, budget, every, func(first int64, data []byte) error {
			return a.visitRaw(first, data, buffer, visit)
		})
	case a.narrow != nil || a.packed != nil:
		buffer, all := make([]int64, ScanIDs), len(a.narrow)
		if a.packed != nil {
			all = int(a.packed.Len())
		}
		for first := 0; first < all; first += step {
			part := buffer[:min(ScanIDs, all-first)]
			a.Read(int64(first), part)
			if err := visitPart(ctx, int64(first), part, visit); err != nil {
				return err
			}
		}
	default:
		for first := 0; first < len(a.wide); first += step {
			if err := visitPart(ctx, int64(first), a.wide[first:min(first+ScanIDs, len(a.wide))], visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func visitPart(ctx context.Context, first int64, ids []int64, visit func(int64, []int64) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return visit(first, ids)
}

// visitRaw decodes and checks a piece of the file.
func (a *IDs) visitRaw(first int64, data []byte, buffer []int64, visit func(int64, []int64) error) error {
	width := a.disk.layout.RowBytes
	for ; len(data) > 0; data = data[min(len(data), ScanIDs*width):] {
		n := min(len(data)/width, ScanIDs)
		if err := a.decode(first, data[:n*width], buffer[:n]); err != nil {
			return err
		}
		if err := visit(first, buffer[:n]); err != nil {
			return err
		}
		first += int64(n)
	}
	return nil
}

// decode checks and widens the ids that the file holds from position first on, as many as ids is long.
func (a *IDs) decode(first int64, data []byte, ids []int64) error {
	switch a.disk.layout.RowBytes {
	case 8:
		copy(ids, mem.View[int64](data))
	case 5:
		store.DecodeIntegers(manifest.DType_UINT40, data, ids)
	default:
		for i, id := range mem.View[uint32](data) {
			ids[i] = int64(id)
		}
	}
	return checkIDs(a, first, ids)
}

// checkIDs refuses ids beyond the limit among those at positions from first on.
func checkIDs[T uint32 | int64](a *IDs, first int64, ids []T) error {
	for i, id := range ids {
		if uint64(id) >= uint64(a.limit) {
			return a.badID(int64(id), first+int64(i))
		}
	}
	return nil
}

// Scan calls visit with the rows of an array without padding between them, in
// order, a piece at a time. While it visits one the engine reads the next.
func (d *Rows) Scan(ctx context.Context, budget *mem.Budget, visit func(first int64, data []byte) error) error {
	return d.scanSome(ctx, budget, 1, visit)
}

// scanSome is Scan of the rows in one of every buffers of the engine.
func (d *Rows) scanSome(
	ctx context.Context, budget *mem.Budget, every int64, visit func(first int64, data []byte) error,
) error {
	slot := d.buffer()
	fileBytes, pieceBytes := d.layout.FileBytes(), ScanPiece/slot*slot
	staging, err := budget.Alloc(mem.Staging, min(2*pieceBytes, fileBytes))
	if err != nil {
		return err
	}
	defer staging.Free()
	piece := func(k int64) (buffers []ssd.Range, data []byte) { // each other one in the same place
		off := k * pieceBytes * every
		return d.buffers(off, min(off+pieceBytes*every, fileBytes), every), staging.Bytes()[k%2*pieceBytes:]
	}
	reading := make(chan error, 1)
	begin := func(k int64) {
		guard.Go(func() {
			buffers, data := piece(k)
			reading <- d.readInto(ctx, buffers, data)
		}, func(p *guard.PanicError) { reading <- p })
	}
	pieces := (fileBytes + pieceBytes*every - 1) / (pieceBytes * every)
	if pieces > 0 {
		begin(0)
	}
	for k := range pieces {
		if err := <-reading; err != nil {
			return err
		}
		if k+1 < pieces {
			begin(k + 1)
		}
		buffers, data := piece(k)
		for b, at := range buffers {
			first := d.layout.RowAt(at.Off)
			if err := visit(first, d.rowsAt(at.Off, data[int64(b)*slot:][:at.Len])); err != nil {
				if k+1 < pieces {
					<-reading // into memory that is freed now
				}
				return err
			}
		}
	}
	return nil
}

// rowsAt returns the rows in data, which the file has from an offset on, without the padding of pages.
func (d *Rows) rowsAt(off int64, data []byte) []byte {
	rows := d.layout.Dense(off, data)
	behind := (d.layout.NumRows - d.layout.RowAt(off)) * int64(d.layout.RowBytes) // the last page is padded
	return rows[:min(int64(len(rows)), behind)]
}

const (
	// readers is the number of goroutines of eachRange: while some wait for the engine the others visit. The thread of
	// the engine alone took up to twice the time to fill a cache of lists.
	readers = 4
	// runBytes is the size of the run of ranges that a reader takes of a large file at a time. Readers side by side in a
	// huge page of the memory that they fill would each clear one at the first touch, and all but one in vain.
	runBytes = 8 * ScanPiece
)

// eachRange calls visit with the rows in each of some ranges of the file, of up to buffer bytes, without padding, from
// its readers and in no order. It takes as much staging memory as Scan.
func (d *Rows) eachRange(
	ctx context.Context, budget *mem.Budget, ranges []ssd.Range,
	visit func(off int64, rows []byte) error,
) error {
	all := d.layout.FileBytes()
	if all == 0 {
		return nil
	}
	room := min(max(2*ScanPiece/readers, d.buffer()), all)
	n, run := min(2*ScanPiece, all)/room, int64(1)
	if all > readers*runBytes {
		run = runBytes / room
	}
	staging, err := budget.Alloc(mem.Staging, n*room)
	if err != nil {
		return err
	}
	defer staging.Free()
	parts := partsOf(ranges, room)
	pieces := guard.NewPieces(int64(len(parts)), run)
	return guard.Each(ctx, int(n), func(ctx context.Context, reader int) error {
		own := staging.Bytes()[int64(reader)*room:][:room]
		for number := range pieces.Each() {
			part, data := parts[number], own
			if err := d.readInto(ctx, part, own); err != nil {
				return err
			}
			for _, r := range part {
				if err := visit(r.Off, d.rowsAt(r.Off, data[:r.Len])); err != nil {
					return err
				}
				data = data[r.Len:]
			}
		}
		return nil
	})
}

// partsOf divides ranges into parts of up to most bytes. No range has more.
func partsOf(ranges []ssd.Range, most int64) (parts [][]ssd.Range) {
	bytes, first := int64(0), 0
	for i, r := range ranges {
		if bytes += int64(r.Len); bytes > most {
			parts, first, bytes = append(parts, ranges[first:i]), i, int64(r.Len)
		}
	}
	if first < len(ranges) {
		parts = append(parts, ranges[first:])
	}
	return parts
}

// buffer returns the size of an engine buffer, a piece of a scan at most.
func (d *Rows) buffer() int64 { return int64(min(d.slot, ScanPiece)) }

// buffers returns one of every buffers of the file between two offsets.
func (d *Rows) buffers(off, end, every int64) (buffers []ssd.Range) {
	for ; off < end; off += every * d.buffer() {
		buffers = append(buffers, ssd.Range{Off: off, Len: int32(min(d.buffer(), end-off))})
	}
	return buffers
}

// readInto reads ranges one behind the other into p.
func (d *Rows) readInto(ctx context.Context, ranges []ssd.Range, p []byte) error {
	places, end := make([]int64, len(ranges)), int64(0)
	for r, of := range ranges {
		places[r] = end
		end += int64(of.Len)
	}
	return d.ReadRanges(ctx, ranges, func(r int, data []byte) error {
		copy(p[places[r]:], data)
		return nil
	})
}
