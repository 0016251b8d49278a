package sample

import (
	"math/bits"

	"freshgo/core/mem"
)

// Demand is the size of a batch by node type and by relation, which determines a Worker's memory.
type Demand struct{ Nodes, Edges []int64 }

// size is the demand of a batch along one relation: nodes counts its targets.
type size struct{ nodes, edges int64 }

func (s *Sampler) size(d Demand, relation int) size {
	return size{d.Nodes[s.relations[relation].Target], d.Edges[relation]}
}

// WorkerBytes returns the memory of a Worker of this Sampler after Reserve for batches up to a demand, including id
// maps.
func (s *Sampler) WorkerBytes(d Demand, stamp bool) int64 {
	var total int64
	for t := range s.numTypes() {
		total += reservedBytes(new(nodeSet).rooms(s.nodesDemand(d, t)))
		if ids := new(idMap); stamp && !s.disjoint {
			total += reservedBytes([]room{{buffer: &ids.stamps, n: max(s.numNodes(t), 1)}})
		} else {
			total += reservedBytes([]room{{buffer: &ids.table, n: tableSlots(d.Nodes[t])}})
		}
	}
	for i := range s.relations {
		r := &s.relations[i]
		total += reservedBytes(new(edgeSet).rooms(r.edgesDemand(s.size(d, i))))
		if r.method != nil {
			total += r.method.bytes(r, s.size(d, i)) + r.threadBytes()
		}
		both := s.size(d, i)
		if s.subgraph == Bidirectional && s.reverse[i] >= 0 {
			both.edges = max(both.edges, d.Edges[s.reverse[i]]) // it sorts the edges of both
		}
		total += r.subgraphBytes(both)
	}
	return total + reservedBytes(new(flat).rooms(s.flatDemand(d)))
}

// Reserve grows the Worker to batches up to a demand, which then allocate nothing. Larger batches still work while the
// budget has room.
func (w *Worker) Reserve(d Demand) error {
	for t, s := range w.nodes {
		if err := reserve(w.budget, s.rooms(w.sampler.nodesDemand(d, t))...); err != nil {
			return err
		}
		if err := s.ids.resize(d.Nodes[t]); err != nil {
			return err
		}
	}
	for i, e := range w.edges {
		if err := reserve(w.budget, e.rooms(e.relation.edgesDemand(w.sampler.size(d, i)))...); err != nil {
			return err
		}
	}
	return reserve(w.budget, w.flat.rooms(w.sampler.flatDemand(d))...)
}

// resize replaces a hash map by one that numbers the given number of nodes without growing.
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

// tableSlots returns the size of a hash map that numbers the given number of nodes without growing.
func tableSlots(nodes int64) int64 {
	return max(minTable, int64(1)<<bits.Len64(uint64(2*(nodes+group)-1)))
}

// nodesRoom holds the lengths of the buffers of a node type.
type nodesRoom struct{ nodes, front, trees int64 }

func (s *nodeSet) rooms(n nodesRoom) []room {
	return []room{
		{buffer: &s.nodes, n: n.nodes}, {buffer: &s.front, n: n.front},
		{buffer: &s.forest.ids, n: n.trees}, {buffer: &s.forest.trees, n: n.trees},
	}
}

func (s *Sampler) nodesDemand(d Demand, t int) nodesRoom {
	most := int64(0) // elements that a hop of one relation may write: one for each of its edges
	for _, i := range s.groups[t] {
		most = max(most, newNodes(d.Edges[i], s.numNodes(t), s.disjoint))
	}
	n := nodesRoom{nodes: d.Nodes[t] + most + 1}
	switch {
	case s.disjoint:
		n.trees = d.Nodes[t]
	case s.moved[t]:
		n.front = d.Nodes[t]
	}
	return n
}

// edgesRoom holds the lengths of the buffers of a relation.
type edgesRoom struct{ ptr, pos, row, spans, wide, weight, counts int64 }

func (e *edgeSet) rooms(n edgesRoom) []room {
	return []room{
		{buffer: &e.ptr, n: n.ptr}, {buffer: &e.pos, n: n.pos}, {buffer: &e.row, n: n.row}, {buffer: &e.spans, n: n.spans},
		{buffer: &e.wide, n: n.wide}, {buffer: &e.weight, n: n.weight}, {buffer: &e.counts, n: n.counts},
	}
}

func (r *relation) edgesDemand(d size) edgesRoom {
	n := edgesRoom{ptr: d.nodes + 1, pos: d.edges, row: d.edges, spans: d.nodes}
	if r.Indices32 == nil && r.Packed == nil || r.disjoint {
		n.wide = d.edges
	}
	if r.method != nil {
		g := r.method.gives()
		n.counts = d.nodes
		if g.ids {
			n.wide = d.edges
		}
		if g.weight {
			n.weight = d.edges
		}
		if !g.pos {
			n.pos = 0
		}
	}
	if r.subgraph == Induced {
		n.pos, n.row = n.pos+inducedEdges, n.row+inducedEdges // elements that are looked up before it is known which are kept
	}
	return n
}

// threadBytes returns the scratch memory of a thread for large fanouts.
func (r *relation) threadBytes() (total int64) {
	for hop, k := range r.fanouts {
		set, entries := r.method.scratch(hop, r.widest, k)
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
