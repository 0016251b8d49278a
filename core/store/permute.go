package store

import (
	"context"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

const (
	// maxGathers is up to how often a tensor is read to write its rows in another order. A spill moves each byte twice
	// to the disk and twice back, four times in all; three readings and one writing are as much, with fewer writes and
	// no space, and one or two are less.
	maxGathers = 3
	// spillSpares are buffers that lanes fill while others are on their way to the disk.
	spillSpares = 8
	// goodLaneBytes is the buffer of a lane aimed at: 128 KiB cost a third more per byte than 1 MiB.
	goodLaneBytes = 128 << 10
	// positionBytes precede a row in the spill: its place in the window, uint32.
	positionBytes = 4
)

// laneSizes are the buffers of a lane in order of preference. Beyond 1 MiB a write is no faster.
var laneSizes = []int64{1 << 20, goodLaneBytes, 32 << 10, ssd.PageBytes}

// permutePlan is the plan to rewrite a tensor in another order within a budget. The output is made window by window in
// memory and written in sequence. Its rows come from reading the input once for each window, or from a spill, in which
// one reading has collected the rows by window.
type permutePlan struct {
	chunk      int   // of the writer, and about what is read at a time
	windowRows int64 // rows of a window, whole pages of them
	windows    int64
	lane       int64 // buffer of each window while the spill is written; 0: no spill
}

// planPermute returns the plan that moves the fewest bytes within the memory (unlimited where it is not positive), or
// false.
func planPermute(a *Array, memory int64) (permutePlan, bool) {
	for _, chunk := range tensorChunks {
		if p, ok := planGather(a, chunk, memory); ok {
			return p, true
		}
	}
	for _, chunk := range tensorChunks {
		for _, lane := range laneSizes {
			if lane < goodLaneBytes && chunk > frugal.chunk {
				continue // large writes in the second pass do not make up for small ones in the first
			}
			if p, ok := planSpill(a, chunk, lane, memory); ok {
				return p, true
			}
		}
	}
	return permutePlan{}, false
}

// planGather plans to read the input once for each window.
func planGather(a *Array, chunk int, memory int64) (permutePlan, bool) {
	p := permutePlan{chunk: chunk}
	if !p.fitWindow(a, memory, a.rowStreamBytes(int64(chunk))+arrayWriterBytes(chunk)) {
		return p, false
	}
	return p, p.windows <= maxGathers
}

// planSpill plans to go through a spill with buffers of this size.
func planSpill(a *Array, chunk int, lane, memory int64) (permutePlan, bool) {
	p := permutePlan{chunk: chunk, lane: lane}
	// Two pieces of each window may be in part empty, and there are no more windows than buffers fit.
	pieces := a.Rows*recordSize(a)/lane + 2*memory/lane
	if !p.fitWindow(a, memory, streamSlots*lane+arrayWriterBytes(chunk)+pieces*crcBytes) {
		return p, false
	}
	return p, p.bytes(a) <= memory
}

// fitWindow makes the windows as large as fits in memory beside other bytes.
func (p *permutePlan) fitWindow(a *Array, memory, beside int64) bool {
	unit := int64(max(a.Layout.RowsPerPage, 1))
	p.windowRows = roundUp(max(a.Rows, 1), unit) // a node type may have no nodes: its window is one of no rows
	if memory > 0 {
		p.windowRows = min(p.windowRows, (memory-beside)/int64(a.Layout.RowBytes)/unit*unit)
	}
	if p.windowRows <= 0 {
		return false
	}
	p.windows = (max(a.Rows, 1) + p.windowRows - 1) / p.windowRows
	// A small last window would be no cheaper than a whole one.
	p.windowRows = roundUp((max(a.Rows, 1)+p.windows-1)/p.windows, unit)
	return true
}

// windowBytes returns the memory of a window.
func (p permutePlan) windowBytes(a *Array) int64 {
	return min(p.windowRows, a.Rows) * int64(a.Layout.RowBytes)
}

// bytes returns the memory of the plan.
func (p permutePlan) bytes(a *Array) int64 {
	if p.lane == 0 {
		return a.rowStreamBytes(int64(p.chunk)) + arrayWriterBytes(p.chunk) + p.windowBytes(a)
	}
	spread := a.rowStreamBytes(int64(p.chunk)) + (p.windows+spillSpares)*p.lane
	collect := p.windowBytes(a) + streamSlots*p.lane + arrayWriterBytes(p.chunk)
	return p.spillSums(a) + max(spread, collect)
}

// moved returns the bytes of rows that the plan reads and writes.
func (p permutePlan) moved(a *Array) int64 {
	rows := a.Rows * int64(a.Layout.RowBytes)
	if p.lane == 0 {
		return (p.windows + 1) * rows
	}
	return 2*rows + 2*p.spillBytes(a)
}

// permuter rewrites node tensors.
type permuter struct {
	fs     ssd.FS
	dir    string   // where the new files are made
	rowOf  []uint32 // where each row of a tensor goes
	budget *mem.Budget
	meter  *meter
}

// permute writes a tensor in the new order as a file of this name in the layout that it has.
func (c *permuter) permute(ctx context.Context, a *Array, name string, p permutePlan) (*manifest.Array, error) {
	var s *rowSpill
	if p.lane > 0 {
		var err error
		if s, err = c.spread(ctx, a, p); err != nil {
			return nil, err
		}
		defer s.close()
	}
	window, err := c.budget.Alloc(mem.Convert, p.windowBytes(a))
	if err != nil {
		return nil, err
	}
	defer window.Free()
	w, err := newArrayWriter(c.fs, c.dir, name, a.DType, a.RowShape, p.chunk, c.budget)
	if err != nil {
		return nil, err
	}
	defer w.abort()
	w.useLayout(a.Layout)
	for first := int64(0); first < a.Rows; first += p.windowRows {
		rows := window.Bytes()[:min(p.windowRows, a.Rows-first)*int64(a.Layout.RowBytes)]
		if s != nil {
			err = s.collect(ctx, first/p.windowRows, rows)
		} else {
			err = c.gather(ctx, a, p, first, rows)
		}
		if err != nil {
			return nil, err
		}
		if err := writeWindow(ctx, w, rows, c.meter); err != nil {
			return nil, err
		}
	}
	if s != nil {
		if err := s.remove(); err != nil {
			return nil, err
		}
	}
	return w.finish(a.Rows)
}

// gather reads all rows and keeps those that belong to the window that begins with row first.
func (c *permuter) gather(ctx context.Context, a *Array, p permutePlan, first int64, window []byte) error {
	size := int64(a.Layout.RowBytes)
	low, n := uint32(first), uint32(int64(len(window))/size)
	return a.streamRows(ctx, int64(p.chunk), c.budget, func(from int64, rows []byte) error {
		c.meter.add(int64(len(rows)))
		to := c.rowOf[from : from+int64(len(rows))/size]
		for i, row := range to {
			if at := row - low; at < n { // below low it wraps round
				copy(window[int64(at)*size:][:size], rows[int64(i)*size:])
			}
		}
		return nil
	})
}

// writeWindow appends rows that begin where a page does, in steps between which it looks at the context.
func writeWindow(ctx context.Context, w *arrayWriter, rows []byte, m *meter) error {
	step := int(chunkRows(w.layout, scanBytes)) * w.layout.RowBytes
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(step, len(rows))
		if err := w.writeRows(rows[:n]); err != nil {
			return err
		}
		m.add(int64(n))
		rows = rows[n:]
	}
	return nil
}
