package sample

import (
	"fmt"

	"freshgo/core/internal/asm"
)

// Transpose groups the edges of a batch of one node type and one relation by source, for the backward pass of message
// passing (FastGL, 4.2: "also ... to the backward phase"): local s has edges ptr[s] to ptr[s+1]; target has the local
// ids of their targets, and edge their positions in Row. Both ascend in every list, so the graph of the first hops
// alone is a prefix of each list.
//
// The slices are the caller's: ptr has one element more than Nodes, target and edge have the length of Row, below 2^31.
// It takes two passes over the edges, with prefetches for random accesses: to the counters of sources, and to the
// destinations of edges, which are computed for one group of edges while the previous group is written. See
// BenchmarkTranspose.
func (g *Subgraph) Transpose(ptr []int64, target, edge []int32) {
	if len(ptr) != len(g.Nodes)+1 || len(target) != len(g.Row) || len(edge) != len(g.Row) || len(g.Row) > maxLocals {
		panic(fmt.Sprintf("sample: transposing %d nodes and %d edges into %d, %d and %d elements",
			len(g.Nodes), len(g.Row), len(ptr), len(target), len(edge)))
	}
	clear(ptr)
	starts := ptr[1:] // of the lists while they are filled; afterwards the end of each list is the start of the next
	startLists(g.Row, starts)
	var place, next [group]uint32
	var t, first int32 // the target of the next edge to write, and the edge
	write := func(n int) {
		for _, at := range place[:n] {
			for g.Ptr[t+1] <= int64(first) {
				t++
			}
			target[at], edge[at] = t, first
			first++
		}
	}
	looked := 0
	eachGroup(g.Row, starts, func(row []uint32) {
		for i, s := range row {
			at := starts[s]
			starts[s] = at + 1
			next[i] = uint32(at) // below the number of edges
		}
		asm.Prefetch(target, next[:len(row)])
		asm.Prefetch(edge, next[:len(row)])
		write(looked)
		place, looked = next, len(row)
	})
	write(looked)
}

// startLists converts the lengths of lists, to which it adds the sources of edges, to the starts of the lists.
func startLists(row []uint32, starts []int64) {
	eachGroup(row, starts, func(row []uint32) {
		for _, s := range row {
			starts[s]++
		}
	})
	var sum int64
	for s, n := range starts {
		starts[s] = sum
		sum += n
	}
}

// eachGroup calls f with the sources of edges in order, at most group at a time, whose elements of starts are
// prefetched.
func eachGroup(row []uint32, starts []int64, f func(row []uint32)) {
	asm.Prefetch(starts, row[:min(ahead, len(row))])
	for at := 0; at < len(row); at += group {
		asm.Prefetch(starts, row[min(at+ahead, len(row)):min(at+ahead+group, len(row))])
		f(row[at:min(at+group, len(row))])
	}
}
