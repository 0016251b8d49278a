package propagate

import (
	"context"
	"fmt"

	"freshgo/core/internal/crc"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// spill is a table in the temporary file of a pass, divided by columns into slices, one after the other. The rows of a
// slice are in chunks, each with a checksum in memory.
type spill struct {
	engine *ssd.Engine
	temp   *ssd.Temp
	rows   int64
	chunk  int64   // rows
	width  []int64 // bytes of a row of each slice
	start  []int64 // of each slice in the file
	sums   []uint32
}

// count returns the number of rows of the chunk that begins at a row.
func (s *spill) count(first int64) int64 { return min(s.chunk, s.rows-first) }

// sum returns the checksum of the chunk from a row on of a slice.
func (s *spill) sum(slice int, first int64) *uint32 {
	return &s.sums[int64(slice)*chunks(s.rows, s.chunk)+first/s.chunk]
}

// write writes the chunk from a row on of a slice; data is padded to whole pages.
func (s *spill) write(slice int, first int64, data []byte) error {
	n := s.count(first) * s.width[slice]
	*s.sum(slice, first) = crc.Checksum(data[:n])
	data = data[:ssd.WholePages(n)]
	clear(data[n:])
	return s.temp.Write(data, s.start[slice]+first*s.width[slice])
}

// read reads count chunks of rows from first on, of the slices from lo on, each into its buffer.
func (s *spill) read(ctx context.Context, lo int, first, count int64, buffers [][]byte) error {
	if len(buffers) == 0 {
		return nil
	}
	type place struct {
		buffer int
		at     int64
	}
	var ranges []ssd.Range
	var places []place
	rows, step := min(count*s.chunk, s.rows-first), int64(s.engine.SlotBytes())
	for i := range buffers {
		slice := lo + i
		begin, n := s.start[slice]+first*s.width[slice], ssd.WholePages(rows*s.width[slice])
		for at := int64(0); at < n; at += step {
			ranges = append(ranges, ssd.Range{Off: begin + at, Len: int32(min(step, n-at))})
			places = append(places, place{i, at})
		}
	}
	err := s.engine.Read(ctx, s.temp.Handle(), ranges, func(r int, data []byte) error {
		copy(buffers[places[r].buffer][places[r].at:], data)
		return nil
	})
	if err != nil {
		return err
	}
	for i, buffer := range buffers {
		slice := lo + i
		for at := int64(0); at < rows; at += s.chunk {
			data := buffer[at*s.width[slice]:][:s.count(first+at)*s.width[slice]]
			if crc.Checksum(data) != *s.sum(slice, first+at) {
				return fmt.Errorf("the temporary file holds other bytes than were written: %w", store.ErrCorrupt)
			}
		}
	}
	return nil
}
