package propagate

import (
	"context"
	"errors"

	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/ssd"
)

// reader reads the rows of a window's edges in the order of the file, one piece while the one before is added up.
type reader struct {
	pieces [2]piece
	rows   [][]float64 // of each thread, one row
}

// piece is the pages of some rows that follow one another among those that are wanted.
type piece struct {
	first, end int // edges
	ranges     []ssd.Range
	places     []int // of each range in the buffer
	buffer     []byte
}

// openReader makes the buffers.
func (p *pass) openReader() error {
	size := p.pieceSize()
	memory, err := p.alloc(2 * size)
	if err != nil {
		return err
	}
	for i := range p.reader.pieces {
		p.reader.pieces[i].buffer = memory[int64(i)*size : int64(i+1)*size]
	}
	widest := 0
	for i := range p.parts {
		widest = max(widest, p.parts[i].rows.count)
	}
	p.reader.rows = make([][]float64, p.r.threads)
	for i := range p.reader.rows {
		p.reader.rows[i] = make([]float64, widest)
	}
	return nil
}

// pieceSize is the size of a piece: at least any row.
func (p *pass) pieceSize() int64 { return max(pieceBytes, p.widestSpan()) }

// readerBytes is the memory of openReader.
func (p *pass) readerBytes() int64 { return 2 * p.pieceSize() }

// read passes over the edges of the window, which are sorted, and adds the row of each edge's source to its target's.
func (p *pass) read(ctx context.Context, i int) error {
	e, rows, r := &p.window.edges, p.rows[i], &p.reader
	if e.n == 0 {
		return nil
	}
	reading := make(chan error, 1)
	begin := func(c *piece, first int) {
		c.fill(rows.Layout(), e.source[:e.n], first, p.r.opened.Slot)
		guard.Go(func() { reading <- c.read(ctx, rows) }, func(panicked *guard.PanicError) { reading <- panicked })
	}
	begin(&r.pieces[0], 0)
	for at := 0; ; at ^= 1 {
		now, next := &r.pieces[at], &r.pieces[at^1]
		if err := <-reading; err != nil {
			return err
		}
		more := now.end < e.n
		if more {
			begin(next, now.end)
		}
		if err := p.addPiece(ctx, now, i); err != nil {
			if more {
				err = errors.Join(err, <-reading) // into memory that is freed now
			}
			return err
		}
		if !more {
			return nil
		}
	}
}

// fill chooses the pages of the rows from an edge on, as many as fit.
func (c *piece) fill(l ssd.Layout, sources []uint32, first, slot int) {
	c.first, c.end = first, first
	c.ranges, c.places = c.ranges[:0], c.places[:0]
	used := int64(0)
	for c.end < len(sources) {
		row := sources[c.end]
		off := l.Offset(int64(row))
		begin := off / ssd.PageBytes * ssd.PageBytes
		end := (off + int64(l.RowBytes) + ssd.PageBytes - 1) / ssd.PageBytes * ssd.PageBytes
		grown := end - begin
		last := len(c.ranges) - 1
		join := last >= 0
		if join {
			r := c.ranges[last]
			stop := r.Off + int64(r.Len)
			join = begin <= stop+graph.MaxHolePages*ssd.PageBytes && end-r.Off <= int64(slot)
			if join {
				grown = max(end-stop, 0)
			}
		}
		if used+grown > int64(len(c.buffer)) {
			return
		}
		if join {
			c.ranges[last].Len += int32(grown)
		} else {
			c.ranges, c.places = append(c.ranges, ssd.Range{Off: begin, Len: int32(grown)}), append(c.places, int(used))
		}
		used += grown
		for c.end < len(sources) && sources[c.end] == row {
			c.end++
		}
	}
}

// read reads the pages.
func (c *piece) read(ctx context.Context, rows *graph.Rows) error {
	return rows.ReadRanges(ctx, c.ranges, func(r int, data []byte) error {
		copy(c.buffer[c.places[r]:], data)
		return nil
	})
}

// addPiece adds the rows of a piece, each thread some of the columns.
func (p *pass) addPiece(ctx context.Context, c *piece, i int) error {
	e, of := &p.window.edges, &p.parts[i]
	l, width := p.rows[i].Layout(), p.columns()
	return p.each(ctx, of.rows.count, func(thread, lo, hi int) {
		numbers := p.reader.rows[thread][:hi-lo]
		r := 0
		for k := c.first; k < c.end; {
			source := e.source[k]
			off := l.Offset(int64(source))
			for off+int64(l.RowBytes) > c.ranges[r].Off+int64(c.ranges[r].Len) {
				r++
			}
			row := c.buffer[int64(c.places[r])+off-c.ranges[r].Off:][:l.RowBytes]
			of.rows.decode(row, lo, hi, numbers)
			for ; k < c.end && e.source[k] == source; k++ {
				to := p.window.sums[int(e.target[k])*width+of.first:]
				if e.weighted {
					addScaled(to[lo:hi], numbers, e.weight[k])
				} else {
					addRow(to[lo:hi], numbers)
				}
			}
		}
	})
}

// addRow adds numbers to sums.
func addRow(sums, numbers []float64) {
	numbers = numbers[:len(sums)]
	for len(sums) >= 4 && len(numbers) >= 4 {
		sums[0] += numbers[0]
		sums[1] += numbers[1]
		sums[2] += numbers[2]
		sums[3] += numbers[3]
		sums, numbers = sums[4:], numbers[4:]
	}
	for i, v := range numbers {
		sums[i] += v
	}
}

// addScaled adds multiples of numbers to sums. The conversion keeps the compiler from fusing product and sum, which
// not every processor can.
func addScaled(sums, numbers []float64, by float64) {
	numbers = numbers[:len(sums)]
	for i, v := range numbers {
		sums[i] += float64(by * v)
	}
}
