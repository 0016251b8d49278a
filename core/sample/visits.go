package sample

import (
	"slices"

	"freshgo/core/internal/asm"
)

// rank writes the most visited nodes to the room of target i, with their visits, and returns their number. It
// overwrites visits.
func (x *walkHop) rank(k *walker, i int, visits []int64) int64 {
	if n, ok := asm.Visits(visits); ok {
		return x.rankSorted(i, visits[:n])
	}
	sortFew(visits)
	for len(visits) > 0 && visits[0] < 0 { // passes of a metapath that did not reach its end
		visits = visits[1:]
	}
	often, once := k.gather(visits)
	sortFew(often)
	h := x.hop
	ptr := h.ptr.data[h.first+i:]
	lo, room := ptr[0]-h.from, ptr[1]-ptr[0]
	often = often[:min(room, int64(len(often)))]
	sources, weight := h.sources[lo:lo+room], h.weight[lo:lo+room]
	for j, f := range often {
		sources[j] = f & (1<<nodeBits - 1)
		weight[j] = float32(maxSteps - f>>nodeBits)
	}
	sources, weight = sources[len(often):], weight[len(often):]
	once = once[:min(len(sources), len(once))]
	for j, v := range once {
		sources[j], weight[j] = v, 1
	}
	return int64(len(often) + len(once))
}

// rankSorted is rank for visits that asm.Visits has sorted.
func (x *walkHop) rankSorted(i int, visits []int64) int64 {
	h := x.hop
	ptr := h.ptr.data[h.first+i:]
	lo, hi := ptr[0]-h.from, ptr[1]-h.from
	sources, weight := h.sources[lo:hi], h.weight[lo:hi]
	n := 0
	for at := int64(0); n < len(sources) && at < int64(len(visits)); n++ {
		node, times := asm.Visited(visits[at])
		sources[n], weight[n] = node, float32(times)
		at += times
	}
	return int64(n)
}

// gather splits visits, in ascending order, into nodes with several visits and nodes with one, in the memory of visits.
// A node with several visits and their number are one word, whose ascending order has most visits first, ties by the
// lower node. No branch depends on a visit.
func (k *walker) gather(visits []int64) (often, once []int64) {
	if len(visits) > len(k.often) {
		k.often = make([]int64, len(visits))
	}
	often = k.often[:len(visits)]
	begin, several, single := 0, 0, 0
	last := int64(-1)
	for j, v := range visits {
		next := int64(-1)
		if j+1 < len(visits) {
			next = visits[j+1]
		}
		often[several] = int64(maxSteps-(j+1-begin))<<nodeBits | v
		visits[single] = v
		end, first := 0, 0
		if v != next {
			end = 1
			begin = j + 1
		}
		if v != last {
			first = 1
		}
		single += end & first
		several += end &^ first
		last = v
	}
	return often[:several], visits[:single]
}

// sortFew sorts numbers that are usually few.
func sortFew(x []int64) {
	switch {
	case len(x) <= networkLimit:
		sortNetwork(x)
		return
	case len(x) > scanLimit:
		slices.Sort(x)
		return
	}
	for i := 1; i < len(x); i++ {
		v, j := x[i], i
		for ; j > 0 && x[j-1] > v; j-- {
			x[j] = x[j-1]
		}
		x[j] = v
	}
}
