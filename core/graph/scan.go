package graph

import (
	"context"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
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
	buffer := make([]int64, ScanIDs)
	switch {
	case a.disk != nil:
		return a.disk.Scan(ctx, budget, func(first int64, data []byte) error {
			return a.visitRaw(first, data, buffer, visit)
		})
	case a.narrow != nil:
		for first := 0; first < len(a.narrow); first += ScanIDs {
			part := a.narrow[first:min(first+ScanIDs, len(a.narrow))]
			for i, id := range part {
				buffer[i] = int64(id)
			}
			if err := visitPart(ctx, int64(first), buffer[:len(part)], visit); err != nil {
				return err
			}
		}
	default:
		for first := 0; first < len(a.wide); first += ScanIDs {
			if err := visitPart(ctx, int64(first), a.wide[first:min(first+ScanIDs, len(a.wide))], visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// ScanSome scans the ids in one of every buffers of the engine, where they are on disk, and all of them otherwise.
func (a *IDs) ScanSome(
	ctx context.Context, budget *mem.Budget, every int64, visit func(first int64, ids []int64) error,
) error {
	if a.disk == nil || every <= 1 {
		return a.Scan(ctx, budget, visit)
	}
	buffer := make([]int64, ScanIDs)
	return a.disk.scanSome(ctx, budget, every, func(first int64, data []byte) error {
		return a.visitRaw(first, data, buffer, visit)
	})
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

// decode checks and widens the ids that the file holds from position first on.
func (a *IDs) decode(first int64, data []byte, ids []int64) error {
	if err := a.check(first, data); err != nil {
		return err
	}
	if a.disk.layout.RowBytes == 8 {
		copy(ids, mem.View[int64](data))
		return nil
	}
	for i, id := range mem.View[uint32](data) {
		ids[i] = int64(id)
	}
	return nil
}

// check refuses ids beyond the limit among those of the file from position first on.
func (a *IDs) check(first int64, data []byte) error {
	if a.disk.layout.RowBytes == 8 {
		return checkIDs(a, first, mem.View[int64](data))
	}
	return checkIDs(a, first, mem.View[uint32](data))
}

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
	width := int64(d.layout.RowBytes)
	numBytes, fileBytes := d.layout.NumRows*width, d.layout.FileBytes()
	staging, err := budget.Alloc(mem.Staging, min(2*ScanPiece, fileBytes))
	if err != nil {
		return err
	}
	defer staging.Free()
	piece := func(off int64) []byte { // each other one in the same place
		at := off % int64(2*ScanPiece)
		return staging.Bytes()[at:min(at+ScanPiece, at+fileBytes-off)]
	}
	reading := make(chan error, 1)
	begin := func(off int64) {
		guard.Go(func() { reading <- d.readPiece(ctx, off, piece(off)) }, func(p *guard.PanicError) { reading <- p })
	}
	if fileBytes > 0 {
		begin(0)
	}
	for off := int64(0); off < fileBytes; off += ScanPiece {
		if err := <-reading; err != nil {
			return err
		}
		next := off + ScanPiece
		if next < fileBytes {
			begin(next)
		}
		if err := visit(off/width, piece(off)[:min(ScanPiece, numBytes-off)]); err != nil {
			if next < fileBytes {
				<-reading // into memory that is freed now
			}
			return err
		}
	}
	return nil
}

// readPiece reads whole pages of the file into p.
func (d *Rows) readPiece(ctx context.Context, off int64, p []byte) error {
	var ranges []ssd.Range
	for at := 0; at < len(p); at += d.slot {
		ranges = append(ranges, ssd.Range{Off: off + int64(at), Len: int32(min(d.slot, len(p)-at))})
	}
	return d.ReadRanges(ctx, ranges, func(r int, data []byte) error {
		copy(p[ranges[r].Off-off:], data)
		return nil
	})
}

// scanSome calls visit with the rows in one of every buffers of the engine, in order. Rows have 4 or 8 bytes.
func (d *Rows) scanSome(
	ctx context.Context, budget *mem.Budget, every int64, visit func(first int64, data []byte) error,
) error {
	slot, width := int64(min(d.slot, ScanPiece)), int64(d.layout.RowBytes)
	numBytes, fileBytes := d.layout.NumRows*width, d.layout.FileBytes()
	staging, err := budget.Alloc(mem.Staging, 2*ScanPiece)
	if err != nil {
		return err
	}
	defer staging.Free()
	part := func(r int) []byte { return staging.Bytes()[int64(r)*slot:][:slot] }
	var ranges []ssd.Range
	for off := int64(0); off < fileBytes; {
		for ranges = ranges[:0]; off < fileBytes && int64(len(ranges)+1)*slot <= 2*ScanPiece; off += every * slot {
			ranges = append(ranges, ssd.Range{Off: off, Len: int32(min(slot, fileBytes-off))})
		}
		err := d.ReadRanges(ctx, ranges, func(r int, data []byte) error {
			copy(part(r), data)
			return nil
		})
		for r := 0; r < len(ranges) && err == nil; r++ {
			at := ranges[r].Off
			err = visit(at/width, part(r)[:max(0, min(slot, numBytes-at))])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
