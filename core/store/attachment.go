package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"

	"freshgo/core/internal/crc"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// Attachments returns the arrays that belong to the graph as a whole and have rows of their own: they are kept with the
// store, checked and carried over as its other arrays are, and no batch brings them.
func (s *Store) Attachments() []Tensor { return slices.Clone(s.attachments) }

// attachedPrefix begins the names of the files of attachments.
const attachedPrefix = "attached"

// attachmentLabel stands before the names of attachments in messages.
const attachmentLabel = "attachment "

// attachments validates the attachments of a manifest.
func (c *checker) attachments(list []*manifest.Tensor) []Tensor {
	var out []Tensor
	names := map[string]bool{}
	c.label = ""
	for _, t := range list {
		c.name("further array", t.GetName(), names)
		if t.GetScale() != 0 || t.GetAggregate() != nil {
			c.fail("%s is computed or stored in fewer bytes, expected an array that is stored unchanged", t.GetName())
		}
		out = append(out, Tensor{Name: t.GetName(), Array: *c.array(t.GetData(), t.GetName(), t.GetData().GetRows())})
	}
	return out
}

// CheckRows returns ErrInvalid if the array does not have n rows from first on.
func (a *Array) CheckRows(first, n int64) error {
	if first < 0 || n < 0 || first > a.Rows || n > a.Rows-first {
		return invalid("%d rows from row %d on of %s, which has %d", n, first, a.Path, a.Rows)
	}
	return nil
}

// ReadRows fills dense with the rows from first on, back to back and checked. It reads the pages that they lie in and
// the checksums of these pages, no more, through up to scanBytes of the budget.
func (a *Array) ReadRows(ctx context.Context, first int64, dense []byte, budget *mem.Budget) error {
	l := a.Layout
	n := int64(len(dense) / l.RowBytes)
	if err := a.CheckRows(first, n); err != nil {
		return err
	}
	if n == 0 {
		return a.in.CheckCurrent()
	}
	file, err := ssd.OpenDirect(a.in.fs, a.Path, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return access(err)
	}
	defer file.Close() // nothing was written
	sums, err := a.in.fs.Open(a.CRCPath, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return access(err)
	}
	defer sums.Close() // nothing was written
	if err := a.in.CheckCurrent(); err != nil {
		return err
	}
	from := l.Offset(first) / ssd.PageBytes * ssd.PageBytes
	to := roundUp(l.Offset(first+n-1)+int64(l.RowBytes), ssd.PageBytes)
	block, err := budget.Alloc(mem.Staging, min(to-from, scanBytes))
	if err != nil {
		return err
	}
	defer block.Free()
	for off := from; off < to; off += scanBytes {
		pages := block.Bytes()[:min(to-off, scanBytes)]
		if err := a.readPages(ctx, file, sums, off, pages); err != nil {
			return err
		}
		copyRows(dense, first*int64(l.RowBytes), l, off, pages)
	}
	return nil
}

// copyRows copies rows in whole pages of a file, from byte off on, to dense, which holds rows back to back from byte
// begin of all rows on.
func copyRows(dense []byte, begin int64, l ssd.Layout, off int64, pages []byte) {
	used := int64(ssd.PageBytes)
	if l.RowsPerPage > 0 {
		used = int64(l.RowsPerPage * l.RowBytes)
	}
	for at := off/ssd.PageBytes*used - begin; len(pages) > 0; at, pages = at+used, pages[ssd.PageBytes:] {
		skip := min(max(-at, 0), used)
		if at+skip < int64(len(dense)) {
			copy(dense[at+skip:], pages[skip:used])
		}
	}
}

// readPages fills a buffer with pages from byte off on and checks them by the file of their checksums.
func (a *Array) readPages(ctx context.Context, file, sums ssd.File, off int64, pages []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := ssd.ReadFull(file, pages, off); err != nil {
		return err
	}
	want := make([]byte, int64(len(pages))/ssd.PageBytes*crcBytes)
	if err := ssd.ReadFull(sums, want, off/ssd.PageBytes*crcBytes); err != nil {
		return err
	}
	for i := 0; i < len(pages); i += ssd.PageBytes {
		sum := binary.LittleEndian.Uint32(want[i/ssd.PageBytes*crcBytes:])
		if got := crc.Checksum(pages[i : i+ssd.PageBytes]); got != sum {
			return &CorruptError{Path: a.Path, Off: off + int64(i),
				Reason: fmt.Sprintf("checksum of the page is %08x, expected %08x", got, sum)}
		}
	}
	return nil
}
