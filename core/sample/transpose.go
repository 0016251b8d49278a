package sample

import (
	"fmt"

	"freshgo/core/internal/asm"
)

// Transpose groups the edges of a batch of one node type and one relation by source, for the way back of message
// passing (FastGL, 4.2: "also ... to the backward phase"): local s has edges ptr[s] to ptr[s+1]; target has their
// targets' local ids and edge their places in Row. In every list both ascend, so that the graph of the first hops
// alone is a prefix of each list.
//
// The slices are the caller's: ptr has one element more than Nodes, target and edge as many as Row, fewer than 2^31.
// Cost: two passes over the edges. All that they touch at random is prefetched: the counters of sources, and the places
// that edges go to, which are looked up for one group of edges while those of the group before are written. See
// BenchmarkTranspose.
func (g *Subgraph) Transpose(ptr []int64, target, edge []int32) {
	if len(ptr) != len(g.Nodes)+1 || len(target) != len(g.Row) || len(edge) != len(g.Row) || len(g.Row) > maxLocals {
		panic(fmt.Sprintf("sample: transposing %d nodes and %d edges into %d, %d and %d elements",
			len(g.Nodes), len(g.Row), len(ptr), len(target), len(edge)))
	}
	clear(ptr)
	starts := ptr[1:] // of the lists, while they are filled; in the end of each the start of the next
	startLists(g.Row, starts)
	var place, next [group]uint32
	var t, first int32 // the target of the next edge that is written, and that edge
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

// startLists makes of the lengths of lists, to which the sources of edges are added, where each list starts.
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

// eachGroup calls f with the sources of edges in their order, at most group at a time, whose elements of starts have
// been prefetched.
func eachGroup(row []uint32, starts []int64, f func(row []uint32)) {
	asm.Prefetch(starts, row[:min(ahead, len(row))])
	for at := 0; at < len(row); at += group {
		asm.Prefetch(starts, row[min(at+ahead, len(row)):min(at+ahead+group, len(row))])
		f(row[at:min(at+group, len(row))])
	}
}
