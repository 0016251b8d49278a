package propagate

import (
	"freshgo/core/mem"
)

// edges are those of a window along one edge type: for each the row of its source, its target counted from the
// window's first, and what its source's row is multiplied by.
type edges struct {
	memory   []byte // that they may use
	source   []uint32
	target   []uint32
	weight   []float64 // nil: all are 1
	weighted bool
	n        int
	spare    struct { // of equal size, for sorting
		source, target []uint32
		weight         []float64
	}
}

// plainBytes and weightedBytes are what an edge takes, sorting included.
const (
	plainBytes    = 2 * (4 + 4)
	weightedBytes = 2 * (4 + 4 + 8)
)

// begin empties the edges, for those of some lists.
func (e *edges) begin(l *lists) {
	e.n, e.weighted = 0, l.weighs()
	size := plainBytes
	if e.weighted {
		size = weightedBytes
	}
	n := len(e.memory) / size
	rest := e.memory
	take := func(bytes int) []byte {
		part := rest[:bytes]
		rest = rest[bytes:]
		return part
	}
	e.weight, e.spare.weight = nil, nil
	if e.weighted { // the wide first, as they are aligned to 8 bytes
		e.weight, e.spare.weight = mem.View[float64](take(8*n)), mem.View[float64](take(8*n))
	}
	e.source, e.spare.source = mem.View[uint32](take(4*n)), mem.View[uint32](take(4*n))
	e.target, e.spare.target = mem.View[uint32](take(4*n)), mem.View[uint32](take(4*n))
}

// put appends an edge, for which there is room.
func (e *edges) put(source, target uint32, weight float64) {
	e.source[e.n], e.target[e.n] = source, target
	if e.weighted {
		e.weight[e.n] = weight
	}
	e.n++
}

// sort orders the edges by source; those of equal sources stay in their order. It sorts by digits of 11 bits.
func (e *edges) sort() {
	const bits, mask = 11, 1<<11 - 1
	most := uint32(0)
	for _, s := range e.source[:e.n] {
		most = max(most, s)
	}
	var starts [mask + 1]int
	for shift := 0; shift < 32 && most>>shift > 0; shift += bits {
		clear(starts[:])
		for _, s := range e.source[:e.n] {
			starts[s>>shift&mask]++
		}
		sum := 0
		for d, n := range starts {
			starts[d], sum = sum, sum+n
		}
		for i, s := range e.source[:e.n] {
			d := s >> shift & mask
			at := starts[d]
			starts[d]++
			e.spare.source[at], e.spare.target[at] = s, e.target[i]
			if e.weighted {
				e.spare.weight[at] = e.weight[i]
			}
		}
		e.source, e.spare.source = e.spare.source, e.source
		e.target, e.spare.target = e.spare.target, e.target
		e.weight, e.spare.weight = e.spare.weight, e.weight
	}
}
