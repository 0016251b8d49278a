package scratch

import (
	"cmp"
	"slices"
)

// extent is a run of neighbouring chunks of the file.
type extent struct{ first, count int64 }

// space tracks the free chunks of the file: a few extents, ascending and apart from each other.
type space struct{ free []extent }

func newSpace(chunks int64) space {
	if chunks == 0 {
		return space{}
	}
	return space{[]extent{{0, chunks}}}
}

// take returns extents of n chunks in total, in file order, or nil if fewer are free: the smallest single extent that
// is long enough, so that long ones stay whole, or else the longest ones. Of equal ones it takes the lowest: space
// behind the highest chunk ever used costs nothing on the disk.
func (s *space) take(n int64) []extent {
	var taken []extent
	for n > 0 {
		best := -1
		for i, e := range s.free {
			if best < 0 || better(e.count, s.free[best].count, n) {
				best = i
			}
		}
		if best < 0 {
			s.give(taken)
			return nil
		}
		e := &s.free[best]
		part := extent{e.first, min(e.count, n)}
		taken = append(taken, part)
		n -= part.count
		e.first += part.count
		e.count -= part.count
		if e.count == 0 {
			s.free = slices.Delete(s.free, best, best+1)
		}
	}
	slices.SortFunc(taken, func(a, b extent) int { return cmp.Compare(a.first, b.first) })
	return taken
}

// better reports whether an extent of a chunks serves n chunks better than an extent of b: the shorter where both are
// long enough, else the longer.
func better(a, b, n int64) bool {
	if a >= n && b >= n {
		return a < b
	}
	return a > b
}

// give takes extents back.
func (s *space) give(extents []extent) {
	for _, e := range extents {
		i, _ := slices.BinarySearchFunc(s.free, e.first, func(f extent, first int64) int {
			return cmp.Compare(f.first, first)
		})
		s.free = slices.Insert(s.free, i, e)
		if i+1 < len(s.free) && e.first+e.count == s.free[i+1].first {
			s.free[i].count += s.free[i+1].count
			s.free = slices.Delete(s.free, i+1, i+2)
		}
		if i > 0 && s.free[i-1].first+s.free[i-1].count == e.first {
			s.free[i-1].count += s.free[i].count
			s.free = slices.Delete(s.free, i, i+1)
		}
	}
}

// cut removes the free chunks from number at on, which were never taken, and returns them.
func (s *space) cut(at int64) extent {
	last := len(s.free) - 1
	if last < 0 || s.free[last].first+s.free[last].count <= at {
		return extent{}
	}
	e := &s.free[last]
	tail := extent{max(e.first, at), e.first + e.count - max(e.first, at)}
	if e.count -= tail.count; e.count == 0 {
		s.free = s.free[:last]
	}
	return tail
}

func chunks(extents []extent) int64 {
	var n int64
	for _, e := range extents {
		n += e.count
	}
	return n
}
