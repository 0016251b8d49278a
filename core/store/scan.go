package store

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"freshgo/core/internal/crc"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

const (
	// crcBytes is the size of the checksum of one page.
	crcBytes = 4
	// scanBytes is the size of the reads of one reader; from 1 MiB on a device delivers its sequential rate.
	scanBytes = 1 << 20
	// scanPiece is the size of the reads of a scan, and scanReaders the number of its readers. A reader that computes, or
	// waits for a processor, reads nothing, so there are many more than processors: with four readers of 1 MiB, two of
	// which computed, packing lists took 1.4 to 1.7 times as long.
	scanPiece, scanReaders = 256 << 10, 16
	// scanRun is the number of pieces in a row that a reader takes of a large file, 8 MiB. Readers side by side in a huge
	// page of the memory that they fill would each clear one at the first touch, and all but one in vain.
	scanRun = 32
)

// CheckPage compares page number page of the file at path with its checksum. data is the whole page, crcs what LoadCRC
// returned. It returns a *CorruptError when they differ.
func CheckPage(path string, crcs []uint32, page int64, data []byte) error {
	if got := crc.Checksum(data); got != crcs[page] {
		return &CorruptError{
			Path: path, Off: page * ssd.PageBytes,
			Reason: fmt.Sprintf("checksum of the page is %08x, expected %08x", got, crcs[page]),
		}
	}
	return nil
}

// LoadCRC returns the checksums of the pages, one uint32 each, themselves checked against the manifest.
func (a *Array) LoadCRC(ctx context.Context, budget *mem.Budget, p mem.Purpose) (*mem.Block, error) {
	if a.in.closed.Load() {
		return nil, fmt.Errorf("store: %s: %w", a.in.path, ErrClosed)
	}
	block, err := budget.Alloc(p, a.pages()*crcBytes)
	if err != nil {
		return nil, err
	}
	if err := a.readCRC(ctx, block.Bytes()); err != nil {
		block.Free()
		if replaced := a.in.CheckCurrent(); errors.Is(replaced, ErrReplaced) {
			return nil, replaced // whose checksums disagree, as they belong to another store
		}
		return nil, err
	}
	return block, nil
}

func (a *Array) readCRC(ctx context.Context, into []byte) error {
	file, err := a.in.fs.Open(a.CRCPath, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return access(err)
	}
	defer file.Close() // nothing was written
	sum := uint32(0)
	for off := 0; off < len(into); off += scanBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := into[off:min(off+scanBytes, len(into))]
		if err := ssd.ReadFull(file, piece, int64(off)); err != nil {
			return err
		}
		sum = crc.Update(sum, piece)
	}
	if sum != a.crc {
		return &CorruptError{Path: a.CRCPath, Reason: fmt.Sprintf("checksum of the file is %08x, expected %08x", sum, a.crc)}
	}
	return nil
}

// scan reads the file once, at the device's sequential rate, compares every page with its checksum and passes every
// piece to visit, from several goroutines and in no order. A piece is valid during the call of visit only. What fits of
// the file also lands in dest, which may be nil, is page aligned, and lacks at most the padding of the last page. The
// first error ends the scan.
func (a *Array) scan(
	ctx context.Context, dest []byte, budget *mem.Budget, visit func(off int64, piece []byte) error,
) error {
	crcBlock, err := a.LoadCRC(ctx, budget, mem.Staging)
	if err != nil {
		return err
	}
	defer crcBlock.Free()
	crcs := mem.Slice[uint32](crcBlock)
	file, err := ssd.OpenDirect(a.in.fs, a.Path, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return access(err)
	}
	defer file.Close() // nothing was written
	if err := a.in.CheckCurrent(); err != nil {
		return err
	}
	count, run := (a.Bytes+scanPiece-1)/scanPiece, int64(1)
	if count > scanReaders*scanRun {
		run = scanRun
	}
	pieces := guard.NewPieces(count, run)
	return guard.Each(ctx, int(min(scanReaders, count)), func(ctx context.Context, _ int) error {
		var staging []byte // for pieces that do not fit into dest
		var held *mem.Block
		defer func() {
			if held != nil {
				held.Free()
			}
		}()
		for number := range pieces.Each() {
			off := number * scanPiece
			n := min(scanPiece, a.Bytes-off)
			piece := staging
			if off+n <= int64(len(dest)) {
				piece = dest[off : off+n]
			} else if staging == nil {
				block, err := budget.Alloc(mem.Staging, min(scanPiece, a.Bytes))
				if err != nil {
					return err
				}
				held, staging = block, block.Bytes()
				piece = staging
			}
			piece = piece[:n]
			if err := readPiece(ctx, file, a, crcs, off, piece); err != nil {
				return err
			}
			if err := visit(off, piece); err != nil {
				return err
			}
			if off < int64(len(dest)) && off+n > int64(len(dest)) {
				copy(dest[off:], piece)
			}
		}
		return nil
	})
}

// readPiece reads whole pages of a and checks them.
func readPiece(ctx context.Context, file ssd.File, a *Array, crcs []uint32, off int64, piece []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := ssd.ReadFull(file, piece, off); err != nil {
		return err
	}
	for i := 0; i < len(piece); i += ssd.PageBytes {
		if err := CheckPage(a.Path, crcs, (off+int64(i))/ssd.PageBytes, piece[i:i+ssd.PageBytes]); err != nil {
			return err
		}
	}
	return nil
}

// LoadBytes returns what loading all of a takes at most beside the rows, while it runs.
func (a *Array) LoadBytes() int64 {
	return a.pages()*crcBytes + min(scanReaders*scanPiece, a.Bytes)
}

// CRCBytes returns the size of what LoadCRC returns.
func (a *Array) CRCBytes() int64 { return a.pages() * crcBytes }
