package store

import (
	"bufio"
	"context"

	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// mergeBytes is the size of the pieces in which a stored column is read, while the piece before is merged.
const mergeBytes = 256 << 10

// merger is a topologySink that writes sorted new edges behind the stored ones of their targets, which it reads in
// order. Of a target without new edges it looks at no more than where its edges end.
type merger struct {
	ends    *words // of the stored edges
	array   *Array // of these
	targets int64  // that are stored
	edges   int64  // that are stored
	indptr  sink
	columns []*mergedColumn

	merged []int64 // rows of indptr that are not written yet
	target int64   // the next
	oldEnd int64   // of the stored edges of the last
	newEnd int64   // of its new edges, among these
}

// newMerger begins to merge with the edges of a type that is stored. It charges wordsMemory to the budget until close.
func newMerger(ctx context.Context, old *EdgeType, indptr sink, budget *mem.Budget) (*merger, error) {
	ends, err := newWords(ctx, old.Indptr, budget)
	if err != nil {
		return nil, err
	}
	return &merger{ends: ends, array: old.Indptr, targets: old.NumNodes, edges: old.NumEdges, indptr: indptr,
		merged: make([]int64, 0, wordsBytes/8)}, nil
}

func (m *merger) close() {
	m.ends.close()
	for _, c := range m.columns {
		if c.old != nil {
			c.old.close()
		}
	}
}

func (m *merger) begin() error {
	first, err := m.ends.next()
	if err != nil {
		return err
	}
	if first != 0 {
		return badValue(m.array, 0, int64(first), 0, 0)
	}
	return m.putEnd(0)
}

func (m *merger) putEnd(end int64) error {
	if m.merged = append(m.merged, end); len(m.merged) < cap(m.merged) {
		return nil
	}
	return m.flush()
}

func (m *merger) flush() error {
	defer func() { m.merged = m.merged[:0] }()
	return m.indptr.write(mem.Bytes(m.merged))
}

func (m *merger) take(ends []int64, indices, edgeIDs []byte) error {
	given := [][]byte{indices, edgeIDs}
	for _, end := range ends {
		if err := m.next(); err != nil {
			return err
		}
		if err := m.putEnd(m.oldEnd + end); err != nil {
			return err
		}
		if end == m.newEnd {
			continue
		}
		for i, c := range m.columns {
			if err := c.copyTo(m.oldEnd); err != nil {
				return err
			}
			rest, err := c.add(given[i], end-m.newEnd)
			if err != nil {
				return err
			}
			given[i] = rest
		}
		m.newEnd = end
	}
	for i, c := range m.columns { // more edges of the last target, or none
		if err := c.put(c.given, given[i], c.base); err != nil {
			return err
		}
	}
	return nil
}

// next goes to the next target.
func (m *merger) next() error {
	m.target++
	if m.target > m.targets {
		return nil
	}
	end, err := m.ends.next()
	if err != nil {
		return err
	}
	if int64(end) < m.oldEnd || int64(end) > m.edges {
		return badValue(m.array, m.target, int64(end), m.oldEnd, m.edges)
	}
	m.oldEnd = int64(end)
	return nil
}

// end writes what is left when all new edges have come.
func (m *merger) end() error {
	if m.oldEnd != m.edges {
		return badValue(m.array, m.targets, m.oldEnd, m.edges, m.edges)
	}
	for _, c := range m.columns {
		if err := c.copyTo(m.edges); err != nil {
			return err
		}
		if err := c.out.Flush(); err != nil {
			return err
		}
	}
	return m.flush()
}

// mergedColumn is one of the arrays that merged edges make.
type mergedColumn struct {
	old       *columnReader  // nil: the stored edges have their positions for numbers
	at        int64          // position of the stored edge that follows
	to, given manifest.DType // of the file, and of the new edges
	base      int64          // added to what comes
	out       *bufio.Writer
	meter     *meter // counts stored edges
	metered   int64  // position up to which it has

	numbers []int64
	encoded []byte
}

// newColumn begins a column. from is what is stored of it, or nil for positions. It charges columnReaderBytes to the
// budget until the merger is closed.
func (m *merger) newColumn(
	ctx context.Context, from *Array, out sink, to manifest.DType, budget *mem.Budget,
) (*mergedColumn, error) {
	c := &mergedColumn{to: to, given: to, out: buffered(out), meter: &meter{report: func(string, int64, int64) {}},
		numbers: make([]int64, wordsBytes/8), encoded: make([]byte, wordsBytes)}
	if from != nil {
		var err error
		if c.old, err = newColumnReader(ctx, from, budget); err != nil {
			return nil, err
		}
	}
	m.columns = append(m.columns, c)
	return c, nil
}

// copyTo writes what is stored up to a position.
func (c *mergedColumn) copyTo(end int64) error {
	if end-c.metered >= int64(len(c.numbers)) {
		c.meter.add(end - c.metered)
		c.metered = end
	}
	for c.at < end {
		if c.old == nil {
			positions := c.numbers[:min(end-c.at, int64(len(c.numbers)))]
			for i := range positions {
				positions[i] = c.at + int64(i)
			}
			if err := c.encode(positions); err != nil {
				return err
			}
			c.at += int64(len(positions))
			continue
		}
		from := c.old.reader.array.DType
		rows, err := c.old.next((end - c.at) * int64(from.Size()))
		if err != nil {
			return err
		}
		if err := c.put(from, rows, 0); err != nil {
			return err
		}
		c.at += int64(len(rows) / from.Size())
	}
	return nil
}

// add writes at most n of the new rows that came, and returns the others.
func (c *mergedColumn) add(rows []byte, n int64) ([]byte, error) {
	n = min(n*int64(c.given.Size()), int64(len(rows)))
	return rows[n:], c.put(c.given, rows[:n], c.base)
}

// put writes numbers of a type, plus a base.
func (c *mergedColumn) put(dtype manifest.DType, rows []byte, base int64) error {
	if dtype == c.to && base == 0 {
		_, err := c.out.Write(rows)
		return err
	}
	for len(rows) > 0 {
		part := c.numbers[:min(len(rows)/dtype.Size(), len(c.numbers))]
		DecodeIntegers(dtype, aligned(rows[:len(part)*dtype.Size()]), part)
		rows = rows[len(part)*dtype.Size():]
		for i := range part {
			part[i] += base
		}
		if err := c.encode(part); err != nil {
			return err
		}
	}
	return nil
}

// encode writes numbers in the column's type.
func (c *mergedColumn) encode(numbers []int64) error {
	out := c.encoded[:len(numbers)*c.to.Size()]
	encodeIntegers(c.to, numbers, out)
	_, err := c.out.Write(out)
	return err
}

// columnReader reads the rows of an array of scalars in order, and ahead. It belongs to one goroutine.
type columnReader struct {
	ctx    context.Context
	reader *rangeReader
	block  *mem.Block
	asked  int64 // rows that were asked for
	turn   int64 // of the half of the block that is read into next
	coming chan columnPiece
	left   []byte
}

type columnPiece struct {
	data []byte
	err  error
}

// columnReaderBytes returns the memory of a columnReader.
func columnReaderBytes(a *Array) int64 { return a.CRCBytes() + streamSlots*mergeBytes }

// newColumnReader begins with the first row. It charges columnReaderBytes to the budget until close.
func newColumnReader(ctx context.Context, a *Array, budget *mem.Budget) (*columnReader, error) {
	r, err := newRangeReader(ctx, a, budget)
	if err != nil {
		return nil, err
	}
	block, err := budget.Alloc(mem.Convert, streamSlots*mergeBytes)
	if err != nil {
		r.close()
		return nil, err
	}
	c := &columnReader{ctx: ctx, reader: r, block: block}
	c.ask()
	return c, nil
}

// ask begins to read the piece that follows, if there is one.
func (c *columnReader) ask() {
	c.coming = nil
	a := c.reader.array
	if c.asked == a.Rows {
		return
	}
	first, n := c.asked, min(mergeBytes/ssd.PageBytes*int64(ssd.PageBytes/a.Layout.RowBytes), a.Rows-c.asked)
	buffer := c.block.Bytes()[c.turn*mergeBytes:][:mergeBytes]
	c.asked, c.turn = first+n, 1-c.turn
	coming := make(chan columnPiece, 1)
	c.coming = coming
	guard.Go(func() {
		data, err := c.reader.rows(c.ctx, buffer, first, n)
		coming <- columnPiece{data, err}
	}, func(p *guard.PanicError) { coming <- columnPiece{nil, p} })
}

// next returns the following rows, up to most bytes, valid until the next call. At least one row must be left.
func (c *columnReader) next(most int64) ([]byte, error) {
	if len(c.left) == 0 {
		piece := <-c.coming
		if piece.err != nil {
			c.coming = nil
			return nil, piece.err
		}
		c.left = piece.data
		c.ask()
	}
	rows := c.left[:min(most, int64(len(c.left)))]
	c.left = c.left[len(rows):]
	return rows, nil
}

func (c *columnReader) close() {
	if c.coming != nil {
		<-c.coming // nobody may be reading into the block
	}
	c.block.Free()
	c.reader.close()
}

// buffered gathers short pieces for a sink. It passes on whole numbers: all pieces are some, and so is its buffer.
func buffered(out sink) *bufio.Writer { return bufio.NewWriterSize(sinkWriter{out}, wordsBytes) }

// sinkWriter is a sink as an io.Writer.
type sinkWriter struct{ sink }

func (s sinkWriter) Write(p []byte) (int, error) {
	if err := s.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
