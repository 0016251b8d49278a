package graph

import (
	"context"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// MaxHolePages is the most unneeded pages between two needed ones that are read
// along instead of splitting the request: a request costs about as much as ten
// further KiB of a running one (docs/decisions/reading.md), so small holes are free.
const MaxHolePages = 4

// Rows reads rows of one array through the engine. It is safe for concurrent
// use; every caller brings its own merger.
type Rows struct {
	engine *ssd.Engine
	handle *ssd.Handle
	layout ssd.Layout
	slot   int        // bytes of one engine buffer
	pages  []uint32   // a checksum per page, or nil when pages are not checked
	block  *mem.Block // owns pages
	file   Changing   // nil: the file is constant
}

// Changing is a file of rows that is changed in place, with the checksums of its pages.
type Changing interface {
	RowsPath() string
	Layout() ssd.Layout
	Sums() []uint32
	// RLock keeps the pages and their checksums as they are until RUnlock.
	RLock()
	RUnlock()
}

// ChangingRows opens a file that is changed in place for reading by row until o is closed.
func (o *Opened) ChangingRows(file Changing) (*Rows, error) {
	handle, err := o.Engine.Open(file.RowsPath())
	if err != nil {
		return nil, err
	}
	d := &Rows{engine: o.Engine, handle: handle, layout: file.Layout(), slot: o.Slot, pages: file.Sums(), file: file}
	o.onClose(d.close)
	return d, nil
}

// Rows opens an array for reading by row until o is closed. With checksums its page table is
// loaded and every page read is compared with it.
func (o *Opened) Rows(ctx context.Context, a *store.Array) (*Rows, error) {
	handle, err := o.Engine.Open(a.Path)
	if err != nil {
		return nil, err
	}
	d := &Rows{engine: o.Engine, handle: handle, layout: a.Layout, slot: o.Slot}
	if o.Checksums {
		if d.block, err = a.LoadCRC(ctx, o.Budget, mem.Staging); err != nil {
			handle.Close()
			return nil, err
		}
		d.pages = mem.Slice[uint32](d.block)
	}
	o.onClose(d.close)
	return d, nil
}

// Handle returns the file.
func (d *Rows) Handle() *ssd.Handle { return d.handle }

// Read calls emit once for every element of rows with its index and its bytes,
// from engine threads and concurrently for different indices. Equal rows are
// read once. The bytes are valid only during the call.
func (d *Rows) Read(ctx context.Context, m *ssd.Merger, rows []int64, emit func(i int32, row []byte) error) error {
	return d.ReadOver(ctx, m, rows, MaxHolePages, emit)
}

// ReadOver is read with a choice of how many unwanted pages are read along.
func (d *Rows) ReadOver(
	ctx context.Context, m *ssd.Merger, rows []int64, holePages int, emit func(i int32, row []byte) error,
) error {
	if len(rows) == 0 {
		return nil
	}
	if d.file != nil {
		d.file.RLock()
		defer d.file.RUnlock()
	}
	plan := m.Plan(d.layout, rows, holePages, d.slot)
	width := int64(d.layout.RowBytes)
	return d.engine.Read(ctx, d.handle, plan.Ranges, func(r int, data []byte) error {
		start := plan.Ranges[r].Off
		if d.pages != nil {
			if err := d.checkPages(start, data); err != nil {
				return err
			}
		}
		for _, i := range plan.Pos[plan.First[r]:plan.First[r+1]] {
			at := d.layout.Offset(rows[i]) - start
			if err := emit(i, data[at:at+width]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *Rows) checkPages(start int64, data []byte) error {
	for at := 0; at < len(data); at += ssd.PageBytes {
		page := data[at:min(at+ssd.PageBytes, len(data))]
		if err := store.CheckPage(d.handle.Name(), d.pages, (start+int64(at))/ssd.PageBytes, page); err != nil {
			return err
		}
	}
	return nil
}

func (d *Rows) close() {
	d.handle.Close()
	if d.block != nil {
		d.block.Free()
	}
}
