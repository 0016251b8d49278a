package propagate

import (
	"context"
	"fmt"
	"hash/crc32"

	"freshgo/core/ssd"
	"freshgo/core/store"
)

// spill is a table in the temporary file of a pass, divided by columns into slices. A slice lies behind the one before;
// its rows lie in chunks, each of which has a checksum in memory.
type spill struct {
	engine *ssd.Engine
	temp   *ssd.Temp
	rows   int64
	chunk  int64   // rows
	width  []int64 // bytes of a row of each slice
	start  []int64 // of each slice in the file
	sums   []uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// count is how many rows the chunk from a row on has.
func (s *spill) count(first int64) int64 { return min(s.chunk, s.rows-first) }

// write writes the chunk from a row on of a slice; data is padded to whole pages.
func (s *spill) write(slice int, first int64, data []byte) error {
	n := s.count(first) * s.width[slice]
	s.sums[int64(slice)*chunks(s.rows, s.chunk)+first/s.chunk] = crc32.Checksum(data[:n], castagnoli)
	data = data[:pages(n)]
	clear(data[n:])
	return s.temp.Write(data, s.start[slice]+first*s.width[slice])
}

// read reads the chunk from a row on of some slices, and of each as many chunks as asked for, into buffers of whole
// pages.
func (s *spill) read(ctx context.Context, slices []int, first, count int64, buffers [][]byte) error {
	type place struct {
		slice int
		at    int64
	}
	var ranges []ssd.Range
	var places []place
	rows := min(count*s.chunk, s.rows-first)
	for i, slice := range slices {
		begin, n, step := s.start[slice]+first*s.width[slice], pages(rows*s.width[slice]), int64(s.engine.SlotBytes())
		for at := int64(0); at < n; at += step {
			ranges = append(ranges, ssd.Range{Off: begin + at, Len: int32(min(step, n-at))})
			places = append(places, place{i, at})
		}
	}
	err := s.engine.Read(ctx, s.temp.Handle(), ranges, func(r int, data []byte) error {
		copy(buffers[places[r].slice][places[r].at:], data)
		return nil
	})
	if err != nil {
		return err
	}
	for i, slice := range slices {
		for at := int64(0); at < rows; at += s.chunk {
			data := buffers[i][at*s.width[slice]:][:s.count(first+at)*s.width[slice]]
			if crc32.Checksum(data, castagnoli) != s.sums[int64(slice)*chunks(s.rows, s.chunk)+(first+at)/s.chunk] {
				return fmt.Errorf("the temporary file holds other bytes than were written: %w", store.ErrCorrupt)
			}
		}
	}
	return nil
}

// pages rounds up to whole pages.
func pages(n int64) int64 { return (n + ssd.PageBytes - 1) / ssd.PageBytes * ssd.PageBytes }
