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

// LoadRows returns n rows from first on dense and checked. It reads the pages that they lie in and the
// checksums of those, no more. Rows that the array does not have are ErrInvalid.
func (a *Array) LoadRows(ctx context.Context, first, n int64, budget *mem.Budget) ([]byte, error) {
	if first < 0 || n < 0 || first > a.Rows || n > a.Rows-first {
		return nil, invalid("%d rows from row %d on of %s, which has %d", n, first, a.Path, a.Rows)
	}
	if n == 0 {
		return nil, a.in.CheckCurrent()
	}
	l := a.Layout
	from := l.Offset(first) / ssd.PageBytes * ssd.PageBytes
	to := roundUp(l.Offset(first+n-1)+int64(l.RowBytes), ssd.PageBytes)
	block, err := budget.Alloc(mem.Staging, to-from)
	if err != nil {
		return nil, err
	}
	defer block.Free()
	pages := block.Bytes()
	if err := a.readPages(ctx, from, pages); err != nil {
		return nil, err
	}
	rows := make([]byte, 0, n*int64(l.RowBytes))
	if l.RowsPerPage == 0 {
		at := l.Offset(first) - from
		return append(rows, pages[at:at+n*int64(l.RowBytes)]...), nil
	}
	for row := first; row < first+n; {
		here := min(int64(l.RowsPerPage)-row%int64(l.RowsPerPage), first+n-row) // rows of this page
		at := l.Offset(row) - from
		rows = append(rows, pages[at:at+here*int64(l.RowBytes)]...)
		row += here
	}
	return rows, nil
}

// readPages fills a buffer with pages from byte off on and checks them.
func (a *Array) readPages(ctx context.Context, off int64, pages []byte) error {
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
