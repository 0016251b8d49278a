package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"

	"freshgo/core/internal/crc"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// rowSpillName is the file of the building directory that holds the rows of a tensor between the two passes.
const rowSpillName = "rows.spill"

// rowSpill holds the rows of each window of the output, in a region of one file, each row behind its place in the
// window. A region is written in pieces of one lane; the checksum of each piece stays in memory, to check the piece
// when it is read back.
type rowSpill struct {
	c      *permuter
	a      *Array
	p      permutePlan
	path   string
	spill  *spill
	sums   *mem.Block
	pieces int64 // of a region
	buffer *mem.Block
}

// recordSize returns the size of a row in the spill.
func recordSize(a *Array) int64 { return positionBytes + int64(a.Layout.RowBytes) }

// regionBytes returns the size of the region of a window.
func (p permutePlan) regionBytes(a *Array) int64 {
	return roundUp(min(p.windowRows, a.Rows)*recordSize(a), ssd.PageBytes)
}

// spillBytes returns the size of the spill.
func (p permutePlan) spillBytes(a *Array) int64 {
	last := roundUp((a.Rows-(p.windows-1)*p.windowRows)*recordSize(a), ssd.PageBytes)
	return (p.windows-1)*p.regionBytes(a) + last
}

// regionPieces returns the number of pieces of a region.
func (p permutePlan) regionPieces(a *Array) int64 { return (p.regionBytes(a) + p.lane - 1) / p.lane }

// spillSums returns the memory of the checksums.
func (p permutePlan) spillSums(a *Array) int64 { return p.windows * p.regionPieces(a) * crcBytes }

// rowLane collects what goes to one region.
type rowLane struct {
	buffer []byte
	filled int
	piece  int64 // number of the piece that is being filled
	rows   int64 // so far
}

// spread reads a tensor once and writes each row to the region of its window.
func (c *permuter) spread(ctx context.Context, a *Array, p permutePlan) (*rowSpill, error) {
	s := &rowSpill{c: c, a: a, p: p, path: filepath.Join(c.dir, rowSpillName), pieces: p.regionPieces(a)}
	var err error
	if s.sums, err = c.budget.Alloc(mem.Convert, p.spillSums(a)); err != nil {
		return nil, err
	}
	if err := s.fill(ctx); err != nil {
		s.close()
		return nil, err
	}
	if s.buffer, err = c.budget.Alloc(mem.Convert, streamSlots*p.lane); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *rowSpill) fill(ctx context.Context) (err error) {
	c, a, p := s.c, s.a, s.p
	block, err := c.budget.Alloc(mem.Convert, (p.windows+spillSpares)*p.lane)
	if err != nil {
		return err
	}
	defer block.Free()
	lanes := make([]rowLane, p.windows)
	var spare [][]byte
	for i := range p.windows + spillSpares {
		buffer := block.Bytes()[i*p.lane : (i+1)*p.lane : (i+1)*p.lane]
		if i < p.windows {
			lanes[i].buffer = buffer
		} else {
			spare = append(spare, buffer)
		}
	}
	if s.spill, err = newFileSpill(c.fs, s.path, p.spillBytes(a), spare); err != nil {
		return err
	}
	// Before the buffers go, nobody may be writing from them.
	defer func() {
		if flushed := s.spill.flush(); err == nil {
			err = flushed
		}
	}()
	size, windowRows := int64(a.Layout.RowBytes), uint32(p.windowRows)
	err = a.streamRows(ctx, int64(p.chunk), c.budget, func(first int64, rows []byte) error {
		c.meter.add(int64(len(rows)))
		var place [positionBytes]byte
		for i, row := range c.rowOf[first : first+int64(len(rows))/size] {
			window := int64(row / windowRows)
			l := &lanes[window]
			binary.LittleEndian.PutUint32(place[:], row%windowRows)
			if err := s.put(window, l, place[:]); err != nil {
				return err
			}
			if err := s.put(window, l, rows[int64(i)*size:][:size]); err != nil {
				return err
			}
			l.rows++
		}
		return nil
	})
	for window := range lanes {
		if err == nil {
			err = s.flush(int64(window), &lanes[window])
		}
	}
	return err
}

// put appends bytes to a lane.
func (s *rowSpill) put(window int64, l *rowLane, p []byte) error {
	for {
		n := copy(l.buffer[l.filled:], p)
		l.filled += n
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		if err := s.flush(window, l); err != nil {
			return err
		}
	}
}

// flush writes what a lane holds as the next piece of its region, padded to whole pages.
func (s *rowSpill) flush(window int64, l *rowLane) error {
	if l.filled == 0 {
		return nil
	}
	n := roundUp(int64(l.filled), ssd.PageBytes)
	clear(l.buffer[l.filled:n])
	mem.Slice[uint32](s.sums)[window*s.pieces+l.piece] = crc.Checksum(l.buffer[:n])
	fresh, err := s.spill.write(l.buffer[:n], window*s.p.regionBytes(s.a)+l.piece*s.p.lane)
	if err != nil {
		return err
	}
	s.c.meter.add(n)
	l.buffer, l.filled = fresh[:s.p.lane], 0
	l.piece++
	return nil
}

// collect puts the rows of a window in their places. All of them come back, each once: their number and the checksums
// say so.
func (s *rowSpill) collect(ctx context.Context, window int64, rows []byte) error {
	size, lane := int64(s.a.Layout.RowBytes), s.p.lane
	all := int64(len(rows)) / size * recordSize(s.a) // bytes of the region
	region := window * s.p.regionBytes(s.a)
	read := func(ctx context.Context, i int64, slot []byte) ([]byte, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		off, left := i*lane, min(all-i*lane, lane)
		data, err := s.spill.read(slot, region+off, roundUp(left, ssd.PageBytes))
		if err != nil {
			return nil, err
		}
		if crc.Checksum(data) != mem.Slice[uint32](s.sums)[window*s.pieces+i] {
			return nil, s.damaged(region + off)
		}
		s.c.meter.add(int64(len(data)))
		return data[:left], nil
	}
	var place [positionBytes]byte
	got := 0       // bytes of place
	var row []byte // the missing part of the current row
	return readAhead(ctx, (all+lane-1)/lane, s.buffer.Bytes(), read, func(i int64, data []byte) error {
		for len(data) > 0 {
			if len(row) > 0 {
				moved := copy(row, data)
				row, data = row[moved:], data[moved:]
				continue
			}
			moved := copy(place[got:], data)
			data = data[moved:]
			if got += moved; got == positionBytes {
				got = 0
				at := int64(binary.LittleEndian.Uint32(place[:])) * size
				if at >= int64(len(rows)) {
					return s.damaged(region + i*lane)
				}
				row = rows[at : at+size]
			}
		}
		return nil
	})
}

func (s *rowSpill) damaged(off int64) error {
	return &CorruptError{Path: s.path, Off: off, Reason: fmt.Sprintf("rows of %s came back changed", s.a.File)}
}

// remove removes the file: it is no part of the store.
func (s *rowSpill) remove() error {
	s.close()
	return s.c.fs.Remove(s.path)
}

// close gives memory and descriptor back. Closing twice is no error.
func (s *rowSpill) close() {
	if s.spill != nil {
		_ = s.spill.close() // a failure to write has been seen at flush
		s.spill = nil
	}
	s.sums.Free()
	if s.buffer != nil {
		s.buffer.Free()
	}
}
