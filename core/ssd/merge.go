package ssd

import (
	"fmt"
	"math"
)

// DefaultHole is the largest number of unneeded pages that are read along instead of skipped by another request: a
// request costs about as much as reading 10 KiB more. Measured on rows picked at random from spans of 1 and 4 GB.
const DefaultHole = 4

// Layout is the position of an array's rows in its file.
type Layout struct {
	RowBytes int
	// 0: contiguous rows. Else each page starts with this many rows, and the rest of it is unused.
	RowsPerPage int
	NumRows     int64
}

// Offset returns the offset of a row.
func (l Layout) Offset(row int64) int64 {
	if l.RowsPerPage == 0 {
		return row * int64(l.RowBytes)
	}
	perPage := int64(l.RowsPerPage)
	return row/perPage*PageBytes + row%perPage*int64(l.RowBytes)
}

// FileBytes returns the size of the file, in whole pages.
func (l Layout) FileBytes() int64 {
	if l.NumRows == 0 {
		return 0
	}
	return pagesUp(l.Offset(l.NumRows-1)+int64(l.RowBytes)) * PageBytes
}

// MeanPages returns the mean number of pages that a row touches. Contiguous rows begin at multiples of the greatest
// common divisor of a row and a page.
func (l Layout) MeanPages() float64 {
	if l.RowsPerPage > 0 {
		return 1
	}
	step, rest := PageBytes, l.RowBytes%PageBytes
	for rest > 0 {
		step, rest = rest, step%rest
	}
	return 1 + float64(l.RowBytes-step)/PageBytes
}

// SpanBytes returns the bytes of the most pages that one row touches: the smallest slot for Plan.
func (l Layout) SpanBytes() int64 {
	if l.RowsPerPage > 0 || PageBytes%max(l.RowBytes, 1) == 0 {
		return PageBytes
	}
	if l.RowBytes%PageBytes == 0 {
		return int64(l.RowBytes)
	}
	return pagesUp(int64(l.RowBytes)-1)*PageBytes + PageBytes
}

// RowAt returns the first row of the page that begins at an offset. No row straddles two pages.
func (l Layout) RowAt(off int64) int64 {
	if l.RowsPerPage == 0 {
		return off / int64(l.RowBytes)
	}
	return off / PageBytes * int64(l.RowsPerPage)
}

// Dense moves rows together that lie in the file from off on, where one begins, and returns them without the padding of
// pages.
func (l Layout) Dense(off int64, data []byte) []byte {
	rows := l.RowsPerPage * l.RowBytes // bytes of a page
	if rows == 0 || rows == PageBytes {
		return data
	}
	moved, before := 0, int(off%PageBytes)
	for at := 0; at < len(data); {
		stop := min((before+at)/PageBytes*PageBytes+rows-before, len(data))
		moved += copy(data[moved:], data[at:max(at, stop)])
		at = stop + PageBytes - rows
	}
	return data[:moved]
}

func pagesUp(n int64) int64 { return (n + PageBytes - 1) / PageBytes }

// WholePages returns the bytes of the pages that n bytes from the start of a page touch.
func WholePages(n int64) int64 { return pagesUp(n) * PageBytes }

// ReadPlan lists the ranges to read for a list of rows, and the rows in each range. It is valid until the next Plan of
// its Merger.
type ReadPlan struct {
	Ranges []Range // ascending; one may start on the last page of its predecessor, for a row that straddles pages
	First  []int32 // the rows of Ranges[i] are Pos[First[i]:First[i+1]]
	Pos    []int32 // positions in the list of rows, in file order; each exactly once
}

// Merger makes ReadPlans. It keeps its scratch memory, 24 bytes per row of the longest list, and belongs to one
// goroutine.
type Merger struct {
	keys, keysNext []int64
	pos, posNext   []int32
	plan           ReadPlan
}

// Plan sorts rows, which may repeat, and covers them by ranges: a page is read once for all its rows, and ranges at
// most maxHole pages apart are merged, up to slotBytes. Every row lies entirely within its range. slotBytes must be a
// multiple of PageBytes and at least l.SpanBytes, rows must be within the layout, and fewer than 2^31; otherwise Plan
// panics.
func (m *Merger) Plan(l Layout, rows []int64, maxHole, slotBytes int) *ReadPlan {
	if int64(slotBytes) < l.SpanBytes() || slotBytes%PageBytes != 0 || slotBytes > math.MaxInt32 {
		panic(fmt.Sprintf("ssd: slots of %d bytes cannot hold rows of %d", slotBytes, l.RowBytes))
	}
	if len(rows) > math.MaxInt32 {
		panic(fmt.Sprintf("ssd: a plan for %d rows", len(rows)))
	}
	m.sort(rows)
	if n := len(m.keys); n > 0 && max(uint64(m.keys[0]), uint64(m.keys[n-1])) >= uint64(l.NumRows) {
		panic(fmt.Sprintf("ssd: rows %d to %d of an array of %d", m.keys[0], m.keys[n-1], l.NumRows))
	}
	p := &m.plan
	p.Ranges, p.First, p.Pos = p.Ranges[:0], p.First[:0], m.pos
	begin, end := int64(0), int64(0) // pages of the current range
	slotPages := int64(slotBytes / PageBytes)
	for i, row := range m.keys {
		offset := l.Offset(row)
		first, last := offset/PageBytes, (offset+int64(l.RowBytes)-1)/PageBytes
		if i > 0 && first <= end+int64(maxHole) && last < begin+slotPages {
			end = max(end, last+1)
			continue
		}
		if i > 0 {
			p.Ranges = append(p.Ranges, pageRange(begin, end))
		}
		p.First = append(p.First, int32(i))
		begin, end = first, last+1
	}
	if len(rows) > 0 {
		p.Ranges = append(p.Ranges, pageRange(begin, end))
	}
	p.First = append(p.First, int32(len(rows)))
	return p
}

func pageRange(begin, end int64) Range {
	return Range{Off: begin * PageBytes, Len: int32((end - begin) * PageBytes)}
}

const (
	digitBits = 11 // 3 digits cover 8 billion rows; the counters of a digit fit the first-level cache
	digits    = 1 << digitBits
)

// sort fills keys with the rows in ascending order and pos with their positions. It counts digits, the lowest first, in
// as many passes as the largest row has digits. A negative row ends up first or last, where Plan looks for it.
func (m *Merger) sort(rows []int64) {
	n := len(rows)
	if cap(m.keys) < n {
		m.keys, m.keysNext = make([]int64, n), make([]int64, n)
		m.pos, m.posNext = make([]int32, n), make([]int32, n)
	}
	m.keys, m.pos = m.keys[:n], m.pos[:n]
	copy(m.keys, rows)
	sorted, all := true, uint64(0)
	for i, row := range rows {
		m.pos[i] = int32(i)
		sorted = sorted && (i == 0 || rows[i-1] <= row)
		all |= uint64(row)
	}
	if sorted {
		return
	}
	for shift := 0; all>>shift != 0; shift += digitBits {
		m.sortDigit(shift)
	}
}

func (m *Merger) sortDigit(shift int) {
	n := len(m.keys)
	var place [digits]int32
	for _, key := range m.keys {
		place[uint64(key)>>shift%digits]++
	}
	sum := int32(0)
	for d, count := range place {
		place[d] = sum
		sum += count
	}
	keys, pos := m.keysNext[:n], m.posNext[:n]
	for i, key := range m.keys {
		d := uint64(key) >> shift % digits
		to := place[d]
		place[d]++
		keys[to], pos[to] = key, m.pos[i]
	}
	m.keys, m.keysNext = keys, m.keys
	m.pos, m.posNext = pos, m.pos
}
