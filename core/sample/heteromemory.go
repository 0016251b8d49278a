package sample

import (
	"unsafe"

	"freshgo/core/mem"
)

// HeteroDemand is the size of a batch by node type and by relation: what a HeteroWorker's memory follows.
type HeteroDemand struct{ Nodes, Edges []int64 }

// WorkerBytes is what Reserve makes a HeteroWorker of this HeteroSampler hold for batches up to a demand, its id maps included.
func (s *HeteroSampler) WorkerBytes(d HeteroDemand, stamp []bool) int64 {
	var total int64
	add := func(n, size int64) {
		if n > 0 {
			total += max(n*size, minBuffer)
		}
	}
	for t := range s.types {
		nodes, front := s.nodesDemand(d, t)
		add(nodes, 8)
		add(1, 8) // ptr, of which the seeds need the first
		add(front, 8)
		if s.disjoint {
			add(d.Nodes[t], 4)
		}
		if stamp[t] && !s.disjoint {
			add(max(s.types[t].graph.NumNodes, 1), stampSize)
		} else {
			add(tableSlots(d.Nodes[t]), 8)
		}
	}
	for i := range s.relations {
		n := s.edgesDemand(d, i)
		add(n.ptr, 8)
		add(n.pos, 8)
		add(n.row, 4)
		add(n.wide, 8)
		add(n.spans, int64(unsafe.Sizeof(span{}))) // unsafe: only a size
		add(n.weight, 4)
		add(n.counts, 8)
		r := &s.relations[i]
		if r.method != nil {
			total += r.method.bytes(r.Sampler, r.demand(d, i))
		}
		both := r.demand(d, i)
		if s.subgraph == Bidirectional && s.reverse[i] >= 0 {
			both.Edges = max(both.Edges, d.Edges[s.reverse[i]]) // it sorts those of both
		}
		total += r.subgraphBytes(both)
	}
	nodes, ptrs, edges, placed, weighted := s.flatDemand(d)
	add(nodes, 8)
	add(ptrs, 8)
	add(placed, 8)
	add(edges, 4)
	add(weighted, 4)
	if s.disjoint {
		add(nodes, 4)
	}
	return total
}

// Reserve grows the HeteroWorker to batches up to a demand, so that none of them allocates. Larger ones still work while the budget has room.
func (w *HeteroWorker) Reserve(d HeteroDemand) error {
	for i, t := range w.types {
		nodes, front := w.sampler.nodesDemand(d, i)
		if err := t.nodes.grow(w.budget, mem.Trace, nodes, 0); err != nil {
			return err
		}
		ids := &t.front
		if w.sampler.disjoint {
			ids = &t.forest.ids
			if err := t.forest.trees.grow(w.budget, mem.Trace, d.Nodes[i], 0); err != nil {
				return err
			}
		}
		if err := ids.grow(w.budget, mem.Trace, front, 0); err != nil {
			return err
		}
		if err := t.ids.resize(d.Nodes[i]); err != nil {
			return err
		}
	}
	for i := range w.relations {
		r, n := &w.relations[i], w.sampler.edgesDemand(d, i)
		for _, b := range []struct {
			buffer *buffer[int64]
			room   int64
		}{{&r.ptr, n.ptr}, {&r.pos, n.pos}, {&r.wide, n.wide}, {&r.counts, n.counts}} {
			if err := b.buffer.grow(w.budget, mem.Trace, b.room, 0); err != nil {
				return err
			}
		}
		if err := r.row.grow(w.budget, mem.Trace, n.row, 0); err != nil {
			return err
		}
		if err := r.spans.grow(w.budget, mem.Trace, n.spans, 0); err != nil {
			return err
		}
		if err := r.weight.grow(w.budget, mem.Trace, n.weight, 0); err != nil {
			return err
		}
	}
	nodes, ptrs, edges, placed, weighted := w.sampler.flatDemand(d)
	if err := w.growTrees(nodes); err != nil {
		return err
	}
	return w.flat.grow(w.budget, nodes, ptrs, edges, placed, weighted)
}

// resize replaces a hash map by one that numbers this many nodes without growing.
func (m *idMap) resize(nodes int64) error {
	if m.table.block == nil || tableSlots(nodes) == int64(len(m.table.data)) {
		return nil
	}
	m.table.free()
	err := m.table.grow(m.budget, mem.IDMap, tableSlots(nodes), 0)
	if err == nil {
		m.setShift()
	}
	return err
}

// nodesDemand is the number of elements of the buffers of a node type.
func (s *HeteroSampler) nodesDemand(d HeteroDemand, t int) (nodes, front int64) {
	most := int64(0) // that a hop of one relation may write
	for _, i := range s.groups[t] {
		most = max(most, s.types[t].newNodes(d.Edges[i]))
	}
	return d.Nodes[t] + most + 1, d.Nodes[t]
}

// edgesDemand is the number of elements of the buffers of a relation; its nodes are those of the node types.
func (s *HeteroSampler) edgesDemand(d HeteroDemand, relation int) scratch {
	r := &s.relations[relation]
	return r.Sampler.scratch(r.demand(d, relation))
}

// demand is what a batch wants of one relation: the nodes are its targets.
func (r *heteroRelation) demand(d HeteroDemand, relation int) Demand {
	return Demand{Nodes: d.Nodes[r.target], Edges: d.Edges[relation]}
}
