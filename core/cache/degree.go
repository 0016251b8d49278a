package cache

import (
	"cmp"
	"math"
	"runtime"
	"unsafe"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// Counted scores rows by what fill counts of each, which begins with zeros. With the edges of a node to others, Count
// of their sources, this is the degree metric of PaGraph (FGNN, section 6.1).
func Counted(budget *mem.Budget, numRows int64, fill func(counts []uint32) error) (*Vector, error) {
	v, err := NewVector(budget, numRows)
	if err != nil {
		return nil, err
	}
	counts := mem.Slice[uint32](v.block)
	clear(counts)
	if err := fill(counts); err != nil {
		v.Close()
		return nil, err
	}
	countsAsHotness(counts)
	return v, nil
}

// Count adds 1 to the count of every element, up to the largest number.
func Count[I int64 | uint32](counts []uint32, rows []I) {
	asm.Prefetch(counts, rows[:min(ahead, len(rows))])
	for lo := 0; lo < len(rows); lo += ahead {
		mid := min(lo+ahead, len(rows))
		asm.Prefetch(counts, rows[mid:min(mid+ahead, len(rows))])
		for _, row := range rows[lo:mid] {
			if c := &counts[row]; *c < math.MaxUint32 {
				*c++
			}
		}
	}
}

const (
	// mostCounters bounds the threads that count: one thread scans for all of them. Arbitrary.
	mostCounters = 4
	// countShare is the number of neighbouring counts that one thread counts, so that threads share no line of a cache.
	// Arbitrary beyond.
	countShare = 1 << 12
	// countedAtOnce is the number of rows that a thread gets at a time. Arbitrary: 32 KiB, and 0.1 ms of work.
	countedAtOnce = 1 << 13
	// buffers of a thread: one is counted, one waits, and one is filled.
	buffers = 3
)

// CountScan is Count, by several threads, of all rows that scan calls its argument with. It keeps none of the rows.
// Each thread has counts of its own: counts that threads share would have to be atomic, which costs more than the
// threads gain.
func CountScan(counts []uint32, scan func(count func(rows []int64)) error) error {
	return countScan(min(runtime.NumCPU(), mostCounters), counts, scan)
}

func countScan(n int, counts []uint32, scan func(count func(rows []int64)) error) error {
	if n == 1 || len(counts) <= countShare {
		return scan(func(rows []int64) { Count(counts, rows) })
	}
	var counting guard.Group
	full, free := make([]chan []uint32, n), make([]chan []uint32, n)
	open := make([][]uint32, n) // by thread: rows that it is to get, with room for countedAtOnce
	for i := range n {
		full[i], free[i] = make(chan []uint32, buffers), make(chan []uint32, buffers)
		for range buffers - 1 { // and the open one
			free[i] <- make([]uint32, 0, countedAtOnce)
		}
		open[i] = make([]uint32, 0, countedAtOnce)
		counting.Start(func() (err error) {
			for rows := range full[i] {
				if err == nil {
					err = guard.Run(func() error { Count(counts, rows); return nil })
				}
				free[i] <- rows[:0]
			}
			return err
		})
	}
	err := guard.Run(func() error {
		return scan(func(rows []int64) {
			for _, row := range rows {
				i := int(uint64(row) / countShare % uint64(n))
				if open[i] = append(open[i], uint32(row)); len(open[i]) == countedAtOnce {
					full[i] <- open[i]
					open[i] = <-free[i]
				}
			}
		})
	})
	for i := range n {
		full[i] <- open[i]
		close(full[i])
	}
	return cmp.Or(err, counting.Wait())
}

// countsAsHotness turns counts into scores in place: both are four bytes wide,
// so the scores share the memory of counts. Counts above 2^24 are rounded.
func countsAsHotness(counts []uint32) {
	// unsafe: elements of four bytes with equal alignment, in equal number
	scores := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(counts))), len(counts))
	for i, c := range counts {
		scores[i] = float32(c)
	}
}
