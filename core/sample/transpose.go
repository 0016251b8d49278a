package sample

import (
	"fmt"

	"freshgo/core/internal/asm"
)

// Transpose groups the edges of the batch by source, for the way back of message passing (FastGL, 4.2: "also ... to the
// backward phase"): local s has edges ptr[s] to ptr[s+1], of which target is the local id of the target and edge the place
// in Row. In every list both ascend, so that the graph of the first hops alone is a prefix of each list.
//
// The slices are the caller's: ptr has one element more than Nodes, target and edge as many as Row, fewer than 2^31.
// Cost: two passes over the edges, whose counters are prefetched; see BenchmarkTranspose.
func (g *Subgraph) Transpose(ptr []int64, target, edge []int32) {
	if len(ptr) != len(g.Nodes)+1 || len(target) != len(g.Row) || len(edge) != len(g.Row) || len(g.Row) > maxLocals {
		panic(fmt.Sprintf("sample: transposing %d nodes and %d edges into %d, %d and %d elements", len(g.Nodes), len(g.Row), len(ptr), len(target), len(edge)))
	}
	clear(ptr)
	starts := ptr[1:] // of the lists, while they are filled; in the end of each the start of the next
	row := g.Row
	asm.Prefetch(starts, row[:min(ahead, len(row))])
	for at := 0; at < len(row); at += group {
		asm.Prefetch(starts, row[min(at+ahead, len(row)):min(at+ahead+group, len(row))])
		for _, s := range row[at:min(at+group, len(row))] {
			starts[s]++
		}
	}
	var sum int64
	for s, n := range starts {
		starts[s] = sum
		sum += n
	}
	for t := range len(g.Ptr) - 1 {
		first, end := g.Ptr[t], g.Ptr[t+1]
		asm.Prefetch(starts, row[min(int(first)+ahead, len(row)):min(int(end)+ahead, len(row))])
		for e := first; e < end; e++ {
			at := starts[row[e]]
			starts[row[e]] = at + 1
			target[at], edge[at] = int32(t), int32(e)
		}
	}
}
