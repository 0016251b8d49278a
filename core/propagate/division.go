package propagate

import (
	"math"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// division divides the work of a pass so that it fits into memory.
type division struct {
	held   bool  // all results stay in memory until they are written; else they go to the temporary file
	rows   int64 // targets, or rows of sources, at a time
	slices []int // of each part's columns; 1: its sources are read into memory as they are
}

// maxAtATime bounds rows at a time: their buffers keep a device busy, and more are no use. Arbitrary.
const maxAtATime = 1 << 14

// divide returns the division with the fewest slices that fits into the free bytes, or else the one that needs least
// memory, and its memory.
func (p *pass) divide(free int64) (best division, need int64) {
	need = math.MaxInt64
	for _, held := range []bool{true, false} {
		for rows := int64(maxAtATime); rows >= p.leastRows(); rows /= 2 {
			d := division{held: held, rows: rows, slices: slices.Repeat([]int{1}, len(p.parts))}
			for i := range p.parts {
				if !held {
					d.slices[i] = p.fewest(&d, i, free)
				}
			}
			if n := p.need(&d); n < need {
				best, need = d, n
			}
			if need <= free {
				return best, need
			}
		}
	}
	return best, need
}

// leastRows are whole pages of every slice.
func (p *pass) leastRows() int64 {
	size := p.dtype.Size()
	for i := range p.parts {
		size = min(size, p.parts[i].rows.elementBytes())
	}
	return int64(ssd.PageBytes / size)
}

// fewest is the fewest slices of a part that fit, or one for each column.
func (p *pass) fewest(d *division, i int, free int64) int {
	lo, most := 1, p.parts[i].rows.count
	for lo < most {
		d.slices[i] = (lo + most) / 2
		if p.slicesBytes(d, i) <= free {
			most = d.slices[i]
		} else {
			lo = d.slices[i] + 1
		}
	}
	return most
}

// need is the memory of a division.
func (p *pass) need(d *division) int64 {
	n := p.emitBytes(d)
	for i := range p.parts {
		n = max(n, p.slicesBytes(d, i))
	}
	return n
}

// slicesBytes is the memory for a part: for dividing the columns of its sources, and for adding up those of one slice.
func (p *pass) slicesBytes(d *division, i int) int64 {
	of := &p.parts[i]
	sources, columns, element := of.sources.Count, int64(of.rows.count), int64(of.rows.elementBytes())
	rows := min(d.rows, sources)
	read, dividing := of.rows.spanBytes(rows), int64(0)
	if d.slices[i] > 1 {
		dividing = read + rows*columns*element + int64(d.slices[i])*ssd.PageBytes
		read = 0
	}
	width := (columns + int64(d.slices[i]) - 1) / int64(d.slices[i])
	adding := ssd.WholePages(sources*width*element) + max(read, p.sumBytes(d, width))
	return p.resultBytes(d) + max(dividing, adding)
}

// sumBytes returns the memory for the sums of a number of columns and for their output.
func (p *pass) sumBytes(d *division, columns int64) int64 {
	targets, out := min(d.rows, p.output.rows), columns*int64(p.dtype.Size())
	n := ssd.WholePages(8 * targets * columns)
	if p.kind == GCN {
		n += ssd.WholePages(8 * targets)
	}
	switch {
	case d.held:
	case p.moved():
		n += ssd.WholePages(p.output.rows * out)
	default:
		n += ssd.WholePages(targets * out)
	}
	return n
}

// resultBytes returns the memory that the pass keeps to its end: the results, or the checksums of the temporary file.
func (p *pass) resultBytes(d *division) int64 {
	if d.held {
		return p.output.rows * p.resultRowBytes()
	}
	n := int64(0)
	for i := range p.parts {
		n += 4 * int64(d.slices[i]) * (chunks(p.output.rows, d.rows) + chunks(p.parts[i].sources.Count, d.rows))
	}
	return n
}

// emitBytes is the memory for writing the output.
func (p *pass) emitBytes(d *division) int64 {
	rows := min(d.rows, p.output.rows)
	n := p.resultBytes(d) + store.AddedWriterBytes(p.writerChunk(d)) +
		ssd.WholePages((rows+p.rowsPerStep())*int64(p.rowBytes()))
	if p.own != nil {
		n += p.own.spanBytes(rows)
	}
	for i := range p.parts {
		if !d.held {
			n += rows*int64(p.parts[i].rows.count*p.dtype.Size()) + int64(d.slices[i])*ssd.PageBytes
		}
	}
	return n
}

// writerChunk is the chunk of the output's writer, which is alike in size to what is written at a time.
func (p *pass) writerChunk(d *division) int {
	const smallest, largest = 64 << 10, 1 << 20
	return int(min(max(ssd.WholePages(min(d.rows, p.output.rows)*int64(p.rowBytes())/4), smallest), largest))
}

// bounds are the columns at which slices begin, and the number of columns behind.
func bounds(columns, slices int) []int {
	at := make([]int, slices+1)
	for s := range at {
		at[s] = columns * s / slices
	}
	return at
}

func chunks(rows, each int64) int64 { return (rows + each - 1) / each }

// spanBytes is the size of a buffer for any n rows as they lie in the file.
func (c *column) spanBytes(n int64) int64 {
	if c.array != nil {
		return graph.SpanBytes(c.array.Layout, n)
	}
	// Its array is still to be made: at most as padded as this.
	return graph.SpanBytes(ssd.Layout{RowBytes: c.rowBytes, RowsPerPage: ssd.PageBytes / c.rowBytes}, n)
}

// elementBytes is the size of a number in memory and in the temporary file: float32, or float64 where they are.
func (c *column) elementBytes() int {
	if c.dtype().Size() == 8 {
		return 8
	}
	return 4
}
