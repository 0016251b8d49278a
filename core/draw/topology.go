package draw

import (
	"context"

	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/store"
)

// The neighbour lists of all relations, and the rows of nodes, as the split puts them into memory
// or leaves them on disk.

// Topology opens the neighbour lists of a sampling.
type Topology struct{ sampling *Sampling }

func NewTopology(m *Sampling) Topology { return Topology{m} }

// OpenIndptr loads the offsets of all relations that are not loaded yet. They always stay in memory, and are counted
// apart from the budget until the size of the working set is known, so that a budget too small is answered with the one
// that works.
func (g Topology) OpenIndptr(ctx context.Context) error {
	m, s := g.sampling, g.sampling.Parts.Schema
	for _, r := range s.stored() {
		if r.Indptr != nil {
			continue
		}
		indptr, err := r.OnDisk.LoadIndptr(ctx, mem.NewBudget(0), mem.Topology)
		if err != nil {
			return err
		}
		m.OnClose(indptr.Free)
		r.Indptr = indptr
	}
	return nil
}

// OpenIndptrFirst is OpenIndptr for links, which are opened by the offsets, and for times, whose memory depends on
// them. Else Measure loads them.
func (g Topology) OpenIndptrFirst(ctx context.Context) error {
	if o := &g.sampling.Options; o.TimeAttr == "" && o.Links == nil {
		return nil
	}
	return g.OpenIndptr(ctx)
}

// OpenLists finds neighbours and edge numbers of all relations where the split puts them.
func (g Topology) OpenLists(ctx context.Context) error {
	m, s := g.sampling, g.sampling.Parts.Schema
	m.fromDisk = new(graph.Counts)
	if !m.Split.Neighbors && m.Split.NeighborLists == 0 {
		g.dropLoaded()
	}
	for i, r := range s.stored() {
		var err error
		if r.Neighbors, err = g.openNeighbors(ctx, i); err != nil {
			return err
		}
		of := r.OnDisk
		r.EdgeIDs = graph.InMemory(nil, nil, r.NumEdges)
		if of.EdgeIDs == nil || s.Walked || r.unnumbered {
			continue
		}
		if !m.Split.EdgeIDs {
			r.EdgeIDs, err = m.Graph.IDs(ctx, of.EdgeIDs, r.NumEdges)
		} else {
			r.EdgeIDs, err = g.hold(ctx, of.EdgeIDs, r.NumEdges, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openNeighbors finds the neighbours of a relation. What a trial loads the loader may take over: see measure.
func (g Topology) openNeighbors(ctx context.Context, relation int) (ids graph.IDs, err error) {
	m := g.sampling
	types := m.Parts.Schema
	r := &types.Relations[relation]
	of, limit := r.OnDisk, types.NumNodes(r.Source)
	switch loaded := m.loaded[relation]; {
	case !m.Split.Neighbors:
		ids, err = m.Graph.IDs(ctx, of.Indices, limit)
		ids.CountIn(m.fromDisk)
		return ids, err
	case m.trial:
		if loaded, err = graph.LoadIDs(ctx, m.Budget, of.Indices, limit, types.packs); err != nil {
			return ids, err
		}
		if m.loaded == nil {
			m.loaded = map[int]*graph.Loaded{}
		}
		m.loaded[relation] = loaded
		return loaded.IDs(), nil
	case loaded != nil:
		err = loaded.Recount(m.Budget, mem.NeighborCache)
		delete(m.loaded, relation)
		return m.Graph.Keep(loaded), err
	}
	return g.hold(ctx, of.Indices, limit, types.packs)
}

// hold loads ids and keeps them.
func (g Topology) hold(ctx context.Context, a *store.Array, limit int64, packs bool) (ids graph.IDs, err error) {
	loaded, err := graph.LoadIDs(ctx, g.sampling.Budget, a, limit, packs)
	if err != nil {
		return ids, err
	}
	return g.sampling.Graph.Keep(loaded), nil
}

func (g Topology) dropLoaded() {
	m := g.sampling
	for _, ids := range m.loaded {
		ids.Free()
	}
	m.loaded = nil
}

// OpenOrder finds the row of every node, of a store whose rows are not in the order of the nodes. Those that measuring
// has found are taken over.
func (g Topology) OpenOrder(ctx context.Context) error {
	m := g.sampling
	if m.Order != nil {
		return nil
	}
	var err error
	m.Order, err = g.rowsOfNodes(ctx)
	return err
}

// rowsOfNodes returns the row of every node, counted over all types, or nil where node v has row v. Its memory is
// counted with the offsets, see openIndptr.
func (g Topology) rowsOfNodes(ctx context.Context) ([]uint32, error) {
	m, s := g.sampling, g.sampling.Parts.Schema
	types := m.Parts.stored
	if !m.Parts.ordered() {
		return nil, nil
	}
	if len(types) == 1 {
		block, err := types[0].RowOf(ctx, mem.NewBudget(0), mem.Topology)
		if err != nil {
			return nil, err
		}
		m.OnClose(block.Free)
		return mem.Slice[uint32](block), nil
	}
	block, err := mem.NewBudget(0).Alloc(mem.Topology, 4*m.Parts.NumNodes)
	if err != nil {
		return nil, err
	}
	m.OnClose(block.Free)
	order := mem.Slice[uint32](block)
	for i := range types {
		if err := g.rowsOfType(ctx, i, &types[i], order[s.First[i]:s.First[i+1]]); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// rowsOfType writes the rows of a type's nodes.
func (g Topology) rowsOfType(ctx context.Context, typ int, of *store.NodeType, out []uint32) error {
	s := g.sampling.Parts.Schema
	first := uint32(s.First[typ])
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
