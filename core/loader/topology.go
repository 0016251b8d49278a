package loader

import (
	"context"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/store"
)

// The neighbour lists of all relations, and the rows of nodes, as the split puts them into memory
// or leaves them on disk.

// openIndptr loads or finds the offsets of all relations, which always stay in memory. They are counted apart from the
// budget until the size of the working set is known, so that a budget too small is answered with the one that works.
func (s *schema) openIndptr(ctx context.Context, m *sampling) error {
	for i := range s.relations {
		r := &s.relations[i]
		if r.csc != nil {
			r.Indptr = r.csc.Indptr
			continue
		}
		if !r.used {
			continue
		}
		block, err := r.onDisk.LoadIndptr(ctx, mem.NewBudget(0), mem.Topology)
		if err != nil {
			return err
		}
		m.onClose(block.Free)
		r.Indptr = mem.Slice[int64](block)
	}
	return nil
}

// openTopology finds neighbours and edge numbers of all relations where the split puts them.
func (s *schema) openTopology(ctx context.Context, m *sampling) error {
	m.fromDisk = new(graph.Counts)
	if !m.split.Neighbors {
		m.dropLoaded()
	}
	for i := range s.relations {
		r := &s.relations[i]
		if !r.used {
			continue
		}
		if g := r.csc; g != nil {
			r.Neighbors = graph.InMemory(unsigned(g.Indices32), g.Indices64, s.count(r.source))
			r.EdgeIDs = graph.InMemory(g.EdgeIDs32, g.EdgeIDs64, r.numEdges)
			continue
		}
		var err error
		if r.Neighbors, err = m.openNeighbors(ctx, i); err != nil {
			return err
		}
		of := r.onDisk
		r.EdgeIDs = graph.InMemory(nil, nil, r.numEdges)
		if of.EdgeIDs == nil || s.walked || r.unnumbered {
			continue
		}
		if r.EdgeIDs, err = m.graph.IDs(ctx, of.EdgeIDs, m.split.EdgeIDs, r.numEdges, nil, of.LoadEdgeIDs); err != nil {
			return err
		}
	}
	return nil
}

// openNeighbors finds the neighbours of a relation. What a trial loads the loader may take over: see measure.
func (m *sampling) openNeighbors(ctx context.Context, relation int) (ids graph.IDs, err error) {
	types := m.parts.types
	r := &types.relations[relation]
	of, limit := r.onDisk, types.count(r.source)
	if m.trial && m.split.Neighbors {
		block, err := of.LoadIndices(ctx, m.budget, mem.NeighborCache)
		if err != nil {
			return ids, err
		}
		if m.loaded == nil {
			m.loaded = map[int]*mem.Block{}
		}
		m.loaded[relation], ids = block, graph.InMemory(nil, nil, limit)
		ids.Hold(block, of.Indices)
		return ids, nil
	}
	loaded := m.loaded[relation]
	delete(m.loaded, relation)
	if ids, err = m.graph.IDs(ctx, of.Indices, m.split.Neighbors, limit, loaded, of.LoadIndices); err == nil {
		ids.CountIn(m.fromDisk)
	}
	return ids, err
}

func (m *sampling) dropLoaded() {
	for _, block := range m.loaded {
		block.Free()
	}
	m.loaded = nil
}

// openOrder finds the row of every node, of a store whose rows are not in the order of the nodes. Those that measuring
// has found are taken over.
func (m *sampling) openOrder(ctx context.Context) error {
	if m.parts.store == nil || m.order != nil {
		return nil
	}
	var err error
	m.order, err = m.parts.types.rowsOfNodes(ctx, m)
	return err
}

// rowsOfNodes returns the row of every node, counted over all types, or nil where node v has row v. Its memory is
// counted with the offsets, see openIndptr.
func (s *schema) rowsOfNodes(ctx context.Context, m *sampling) ([]uint32, error) {
	types := m.parts.store.NodeTypes()
	if !slices.ContainsFunc(types, func(t store.NodeType) bool { return t.Order != nil }) {
		return nil, nil
	}
	if len(types) == 1 {
		block, err := types[0].RowOf(ctx, mem.NewBudget(0), mem.Topology)
		if err != nil {
			return nil, err
		}
		m.onClose(block.Free)
		return mem.Slice[uint32](block), nil
	}
	block, err := mem.NewBudget(0).Alloc(mem.Topology, 4*m.parts.numNodes)
	if err != nil {
		return nil, err
	}
	m.onClose(block.Free)
	order := mem.Slice[uint32](block)
	for i := range types {
		if err := s.rowsOfType(ctx, i, &types[i], order[s.first[i]:s.first[i+1]]); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// rowsOfType writes the rows of a type's nodes.
func (s *schema) rowsOfType(ctx context.Context, typ int, of *store.NodeType, out []uint32) error {
	first := uint32(s.first[typ])
	block, err := of.RowOf(ctx, mem.NewBudget(0), mem.Staging)
	if err != nil {
		return err
	}
	if block == nil {
		for v := range out {
			out[v] = first + uint32(v)
		}
		return nil
	}
	defer block.Free()
	for v, row := range mem.Slice[uint32](block) {
		out[v] = first + row
	}
	return nil
}
