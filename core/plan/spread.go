package plan

import (
	"context"
	"math"
	"slices"

	"freshgo/core/mem"
)

const (
	// pieceRows is the number of cold rows that are sorted at a time, unless more than mostRanges ranges would be needed:
	// 2 MiB of them, which stays in the second-level cache, and twice that for sorting. spreadBytes is the size up to
	// which the rows of a range collect before they are stored: a chunk of a scratch file. Arbitrary.
	pieceRows   = 1 << 18
	mostRanges  = 256
	spreadBytes = 64 << 10
	keyBits     = 12 // of a histogram
)

// histogram counts keys in 2^keyBits equal parts of their range.
type histogram struct {
	shift  uint
	counts []int64
}

func newHistogram(keys int64) histogram {
	h := histogram{counts: make([]int64, 1<<keyBits)}
	for keys>>h.shift > 1<<keyBits {
		h.shift++
	}
	return h
}

func (h *histogram) add(key uint32) {
	if h.counts != nil {
		h.counts[min(key>>h.shift, uint32(len(h.counts)-1))]++
	}
}

// spread distributes entries over ranges of their keys through the storage, so that each range can be sorted in memory
// (an external distribution of one level: there are few ranges, and each is large).
type spread[T any] struct {
	storage Storage
	shift   uint
	rangeOf []uint16 // by key>>shift
	buffers [][]T
	parts   []records
	counts  []int
	most    []int64 // by range: the entries that the histogram counts
}

// newSpread returns a spread for up to as many entries as the histogram counts. It allocates from a.
func newSpread[T any](a *arena, storage Storage, keys *histogram) (*spread[T], error) {
	total := int64(0)
	for _, n := range keys.counts {
		total += n
	}
	each := max(pieceRows, (total+mostRanges-2)/(mostRanges-1))
	s := &spread[T]{storage: storage, shift: keys.shift, rangeOf: make([]uint16, len(keys.counts))}
	at, sum := 0, int64(0)
	var sums []int64
	for i, n := range keys.counts {
		if sum > 0 && sum+n > each && at < mostRanges-1 {
			sums, sum = append(sums, sum), 0
			at++
		}
		s.rangeOf[i] = uint16(at)
		sum += n
	}
	sums = append(sums, sum)
	s.most = sums
	s.parts, s.counts = make([]records, len(sums)), make([]int, len(sums))
	room := func(n int64) int { return int(min(n, spreadBytes/size[T]())) }
	all := 0
	for _, n := range sums {
		all += room(n)
	}
	memory, err := alloc[T](a, all) // at once, so that it has huge pages
	if err != nil {
		return nil, err
	}
	for _, n := range sums {
		s.buffers = append(s.buffers, memory[:0:room(n)])
		memory = memory[room(n):]
	}
	return s, nil
}

func (s *spread[T]) put(key uint32, e T) error {
	r := s.rangeOf[min(key>>s.shift, uint32(len(s.rangeOf)-1))]
	if len(s.buffers[r]) == cap(s.buffers[r]) {
		if err := s.flush(int(r)); err != nil {
			return err
		}
	}
	s.buffers[r] = append(s.buffers[r], e)
	s.counts[r]++
	return nil
}

func (s *spread[T]) flush(r int) error {
	record, err := s.storage.Put(mem.Bytes(s.buffers[r]))
	if err != nil {
		return err
	}
	s.parts[r], s.buffers[r] = append(s.parts[r], record), s.buffers[r][:0]
	return nil
}

// take returns the entries of a range in the order in which they came, and frees the range if this is the last time.
// They are at the start of memory for twice as many, and for as many as room.
func (s *spread[T]) take(ctx context.Context, r, room int, last bool, a *arena) ([]T, error) {
	all, err := alloc[T](a, max(2*s.counts[r], room))
	if err != nil {
		return nil, err
	}
	n := 0
	parts := s.parts[r].load(ctx, s.storage, mostLoads)
	defer parts.close()
	for i := range s.parts[r] {
		err := takeFrom(parts, func(values []T) error {
			n += copy(all[n:], values)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if last {
			s.parts[r].free(i)
		}
	}
	n += copy(all[n:], s.buffers[r])
	return all[:n], nil
}

// within returns the keys of a range: from one to before another.
func (s *spread[T]) within(r int) (from, to int64) {
	from = int64(slices.Index(s.rangeOf, uint16(r))) << s.shift
	if next := slices.Index(s.rangeOf, uint16(r+1)); next >= 0 {
		return from, int64(next) << s.shift
	}
	return from, math.MaxInt64 // keys beyond the histogram are in its last part
}

func (s *spread[T]) free() {
	for _, parts := range s.parts {
		parts.freeAll()
	}
}
