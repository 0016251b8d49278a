package sample

import (
	"math/bits"
	"unsafe"

	"freshgo/core/mem"
)

// Demand is the size of a batch: what a Worker's memory follows.
type Demand struct{ Nodes, Edges int64 }

// WorkerBytes is what Reserve makes a Worker of this Sampler hold for batches up to a demand, its id map included.
func (s *Sampler) WorkerBytes(d Demand, stamp bool) int64 {
	n := s.scratch(d)
	var total int64
	for _, nBytes := range []int64{
		n.nodes * 8, n.ptr * 8, n.pos * 8, n.wide * 8, n.row * 4, n.spans * int64(unsafe.Sizeof(span{})), // unsafe: only a size
		n.weight * 4, n.counts * 8, n.trees * 8, n.trees * 4,
	} {
		if nBytes > 0 {
			total += max(nBytes, minBuffer)
		}
	}
	if s.method != nil {
		total += s.method.bytes(s, d) + s.threadBytes()
	}
	total += s.subgraphBytes(d)
	if stamp && !s.disjoint {
		return total + max(StampBytes(s.graph.NumNodes), minBuffer)
	}
	return total + max(tableSlots(d.Nodes)*8, minBuffer)
}

// Reserve grows the Worker to batches up to a demand, so that none of them allocates. Larger ones still work while the
// budget has room.
func (w *Worker) Reserve(d Demand) error {
	n := w.sampler.scratch(d)
	for _, b := range []struct {
		buffer *buffer[int64]
		room   int64
	}{{&w.nodes, n.nodes}, {&w.ptr, n.ptr}, {&w.pos, n.pos}, {&w.wide, n.wide}, {&w.counts, n.counts}, {&w.forest.ids, n.trees}} {
		if err := b.buffer.grow(w.budget, mem.Trace, b.room, 0); err != nil {
			return err
		}
	}
	if err := w.row.grow(w.budget, mem.Trace, n.row, 0); err != nil {
		return err
	}
	if err := w.spans.grow(w.budget, mem.Trace, n.spans, 0); err != nil {
		return err
	}
	if err := w.weight.grow(w.budget, mem.Trace, n.weight, 0); err != nil {
		return err
	}
	if err := w.forest.trees.grow(w.budget, mem.Trace, n.trees, 0); err != nil {
		return err
	}
	if w.ids.table.block == nil {
		return nil
	}
	w.ids.table.free()
	err := w.ids.table.grow(w.budget, mem.IDMap, tableSlots(d.Nodes), 0)
	if err == nil {
		w.ids.setShift()
	}
	return err
}

// scratch is the number of elements of a Worker's buffers.
type scratch struct{ nodes, ptr, pos, row, spans, wide, weight, counts, trees int64 }

func (s *Sampler) scratch(d Demand) scratch {
	n := scratch{
		nodes: d.Nodes + s.newNodes(d.Edges) + 1, // numbering may write as many as there are edges in a hop
		ptr:   d.Nodes + 1,
		pos:   d.Edges,
		row:   d.Edges,
		spans: d.Nodes,
	}
	if s.graph.Indices32 == nil || s.disjoint {
		n.wide = d.Edges
	}
	if s.disjoint {
		n.trees = d.Nodes
	}
	if s.method != nil {
		g := s.method.gives()
		n.counts = d.Nodes
		if g.ids {
			n.wide = d.Edges
		}
		if g.weight {
			n.weight = d.Edges
		}
		if !g.pos {
			n.pos = 0
		}
	}
	if s.subgraph == Induced {
		n.pos, n.row = n.pos+inducedEdges, n.row+inducedEdges // which are looked up before it is known what they add
	}
	return n
}

// threadBytes is the scratch of a thread for large fanouts.
func (s *Sampler) threadBytes() (total int64) {
	for hop, k := range s.fanouts {
		set, entries := s.method.scratch(hop, s.widest, k)
		var n int64
		if set > scanLimit {
			n += max(8*int64(setSlots(int(set))), minBuffer)
		}
		if entries > scanLimit+1 {
			n += max(16*entries, minBuffer)
		}
		total = max(total, n)
	}
	return total
}

// tableSlots is the size of a hash map that numbers this many nodes without growing.
func tableSlots(nodes int64) int64 {
	return max(minTable, int64(1)<<bits.Len64(uint64(2*(nodes+group)-1)))
}
