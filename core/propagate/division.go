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
	of     *output
	held   bool  // all results stay in memory until they are written; else they go to the temporary file
	direct bool  // but for those of the last slice of the last part, which are written as they are made
	rows   int64 // targets, or rows of sources, at a time
	slices []int // of each part's columns
}

// maxAtATime bounds rows at a time: their buffers keep a device busy, and more are no use. Arbitrary.
const maxAtATime = 1 << 14

// divide returns the division that fits into the free bytes and moves the fewest bytes, of several the one with the
// most rows at a time; or else the one that needs least memory. With it comes its memory.
func (o *output) divide(free int64) (best division, need int64) {
	need = math.MaxInt64
	for _, how := range []division{{held: true}, {direct: true}, {}} {
		if how.direct && o.moved() { // results are made in another order than they are written
			continue
		}
		for rows := int64(maxAtATime); rows >= o.leastRows(); rows /= 2 {
			d := division{of: o, held: how.held, direct: how.direct, rows: rows,
				slices: slices.Repeat([]int{1}, len(o.parts))}
			for i := range o.parts {
				if !d.held {
					d.slices[i] = d.fewest(i, free)
				}
			}
			n := d.need()
			if best.of == nil || need > free && n < need || n <= free && d.moved() < best.moved() {
				best, need = d, n
			}
		}
	}
	return best, need
}

// moved returns the bytes that depend on the division: of sources, of lists, and of results that wait in the temporary
// file.
func (d *division) moved() (n int64) {
	for i := range d.slices {
		of, sources := &d.of.parts[i], d.of.parts[i].sources.Count
		n += int64(d.slices[i]) * of.edges.Indices.Bytes
		if stored := sources * int64(of.rows.storedBytes()); d.divides(i) {
			n += stored + 2*sources*int64(of.rows.count*of.rows.elementBytes())
		} else {
			n += int64(d.slices[i]) * stored
		}
		if at := d.spilled(i); !d.held {
			n += 2 * d.of.rows * int64(at[len(at)-1]*d.of.dtype.Size())
		}
	}
	return n
}

// leastRows are whole pages of every slice.
func (o *output) leastRows() int64 {
	size := o.dtype.Size()
	for i := range o.parts {
		size = min(size, o.parts[i].rows.elementBytes())
	}
	return int64(ssd.PageBytes / size)
}

// fewest returns the fewest slices of a part that fit, or one for each column.
func (d *division) fewest(i int, free int64) int {
	lo, most := 1, d.of.parts[i].rows.count
	for lo < most {
		d.slices[i] = (lo + most) / 2
		if d.slicesBytes(i) <= free {
			most = d.slices[i]
		} else {
			lo = d.slices[i] + 1
		}
	}
	return most
}

// need returns the memory of a division.
func (d *division) need() int64 {
	n := d.resultBytes()
	if !d.direct {
		n += d.emitBytes()
	}
	for i := range d.of.parts {
		n = max(n, d.slicesBytes(i))
	}
	return n
}

// divides reports whether the sources of a part are read once and go to the temporary file by slices. Otherwise all of
// them are read for each slice, where that moves fewer bytes: rows of float16 up to five times, for they take twice as
// much in the file, to which they are written and from which they are read.
func (d *division) divides(i int) bool {
	c, n := d.of.parts[i].rows, d.slices[i]
	return n > 1 && (n-1)*c.storedBytes() > 2*c.count*c.elementBytes()
}

// last reports whether a slice is the last of all.
func (d *division) last(part, slice int) bool {
	return part == len(d.slices)-1 && slice == d.slices[part]-1
}

// spilled returns the columns of a part at which slices begin whose results go to the temporary file, and the column
// behind.
func (d *division) spilled(i int) []int {
	at := bounds(d.of.parts[i].rows.count, d.slices[i])
	if d.direct && i == len(d.slices)-1 {
		return at[:len(at)-1]
	}
	return at
}

// slicesBytes returns the memory for a part: for splitting the columns of its sources, and for the sums of one slice.
func (d *division) slicesBytes(i int) int64 {
	of := &d.of.parts[i]
	sources, columns, element := of.sources.Count, int64(of.rows.count), int64(of.rows.elementBytes())
	rows := min(d.rows, sources)
	read, dividing := of.rows.spanBytes(rows), int64(0)
	if d.divides(i) {
		dividing = read + rows*columns*element + int64(d.slices[i])*ssd.PageBytes
		read = 0
	}
	width := (columns + int64(d.slices[i]) - 1) / int64(d.slices[i])
	sums := d.sumBytes(width)
	if d.direct && i == len(d.slices)-1 {
		sums += d.emitBytes()
	}
	adding := ssd.WholePages(sources*width*element) + max(read, sums)
	return d.resultBytes() + max(dividing, adding)
}

// sumBytes returns the memory for the sums of a number of columns and for their output.
func (d *division) sumBytes(columns int64) int64 {
	targets, out := min(d.rows, d.of.rows), columns*int64(d.of.dtype.Size())
	n := ssd.WholePages(8 * targets * columns)
	if d.of.kind == GCN {
		n += ssd.WholePages(8 * targets)
	}
	switch {
	case d.held:
	case d.of.moved():
		n += ssd.WholePages(d.of.rows * out)
	default:
		n += ssd.WholePages(targets * out)
	}
	return n
}

// resultBytes returns the memory that the pass keeps to its end: the results, or the checksums of the temporary file.
func (d *division) resultBytes() int64 {
	if d.held {
		return d.of.rows * d.of.resultRowBytes()
	}
	n := int64(0)
	for i := range d.of.parts {
		n += 4 * int64(d.slices[i]) * (chunks(d.of.rows, d.rows) + chunks(d.of.parts[i].sources.Count, d.rows))
	}
	return n
}

// emitBytes returns the memory for writing the output, beside the results.
func (d *division) emitBytes() int64 {
	rows := min(d.rows, d.of.rows)
	n := store.AddedWriterBytes(d.writerChunk()) +
		ssd.WholePages((rows+d.of.rowsPerStep())*int64(d.of.rowBytes()))
	if d.of.own != nil {
		n += d.of.own.spanBytes(rows)
	}
	for i := range d.of.parts {
		if !d.held {
			n += rows*int64(d.of.parts[i].rows.count*d.of.dtype.Size()) + int64(d.slices[i])*ssd.PageBytes
		}
	}
	return n
}

// writerChunk returns the chunk of the output's writer, close to the size of a write.
func (d *division) writerChunk() int {
	const smallest, largest = 64 << 10, 1 << 20
	return int(min(max(ssd.WholePages(min(d.rows, d.of.rows)*int64(d.of.rowBytes())/4), smallest), largest))
}

// footprint returns the smallest budget of the pass that makes the output: what stays, with the buffers of the engine,
// which are staging bytes, and the smallest division.
func (o *output) footprint(staging int64) int64 {
	total, loading := staging, int64(0)
	ordered := func(t *store.NodeType) {
		if t.Order != nil {
			total += 4 * t.Count
			loading = max(loading, t.Order.LoadBytes())
		}
	}
	ordered(o.target)
	for i := range o.parts {
		of := &o.parts[i]
		if of.sources.Name != o.target.Name {
			ordered(of.sources)
		}
		total += o.listsBytes(of)
		if of.rows.array != nil { // else it is still to be made
			total += of.rows.array.CRCBytes()
		} else {
			total += 4 * chunks(of.rows.spanBytes(of.sources.Count), ssd.PageBytes)
		}
		loading = max(loading, of.edges.Indptr.LoadBytes())
	}
	if o.own != nil {
		total += o.own.array.CRCBytes()
	}
	_, need := o.divide(0)
	return total + max(loading, need+ssd.PageBytes) // a page on which the temporary file is tried
}

// listsBytes returns the memory of pass.openLists.
func (o *output) listsBytes(of *part) int64 {
	e := of.edges
	n := e.IndptrBytes() + e.Indices.CRCBytes() + 2*(graph.SpanBytes(e.Indices.Layout, listPiece)+2*8*listPiece)
	if o.kind == GCN {
		n += 8*e.NumNodes + 8*min(degreeBatch, e.NumNodes)
	}
	if of.weights == nil {
		return n
	}
	n += of.weights.LoadBytes() + of.weights.Rows*int64(of.weights.Layout.RowBytes)
	if e.EdgeIDs != nil {
		n += e.EdgeIDs.CRCBytes() + graph.SpanBytes(e.EdgeIDs.Layout, listPiece) + 8*listPiece
	}
	return n + graph.SpanBytes(of.weights.Layout, listPiece)
}

// bounds returns the columns at which slices begin, and the number of columns behind.
func bounds(columns, slices int) []int {
	at := make([]int, slices+1)
	for s := range at {
		at[s] = columns * s / slices
	}
	return at
}

func chunks(rows, each int64) int64 { return (rows + each - 1) / each }

// spanBytes returns the size of a buffer for any n rows as they lie in the file.
func (c *column) spanBytes(n int64) int64 {
	if c.array != nil {
		return graph.SpanBytes(c.array.Layout, n)
	}
	// Its array is still to be made: at most as padded as this.
	return graph.SpanBytes(ssd.Layout{RowBytes: c.rowBytes, RowsPerPage: ssd.PageBytes / c.rowBytes}, n)
}

// storedBytes returns the size of a row in the store.
func (c *column) storedBytes() int {
	if c.array != nil {
		return c.array.Layout.RowBytes
	}
	return c.rowBytes
}

// elementBytes returns the size of a number in memory and in the temporary file: float32, or float64 where they are.
func (c *column) elementBytes() int {
	if c.dtype().Size() == 8 {
		return 8
	}
	return 4
}
