package loader

import (
	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// The tensors of a batch that the sampler gives: for every node type n_id, input_id, num_sampled_nodes and, with trees,
// batch and seed_time; for every relation edge_index, ptr, e_id, num_sampled_edges and edge_weight, in the order of the
// graph. Names of node type i begin with "n<i>/" and names of relation j with "e<j>/"; a homogeneous graph, whose type
// and relation have no names, has names without a prefix. Ids are the user's, within their type. Types that a batch
// does not reach are there, and empty. A trace has n_id and input_id alone.

// copyOut widens the sampler's compact output into the batch's tensors.
func (p *preparer) copyOut(b *Batch) error {
	s := p.loader.draw.Parts.Schema
	p.ids.begin(s)
	for t := range s.NumTypes() {
		if err := p.copyNodes(b, t); err != nil {
			return err
		}
	}
	if err := p.described.idsOfBatch(p, b); err != nil {
		return err
	}
	if err := p.described.ofBatch(p, b); err != nil {
		return err
	}
	for i := range s.Edges {
		if err := p.copyRelation(b, i); err != nil {
			return err
		}
	}
	if p.cut.On() {
		if err := p.estimate(); err != nil {
			return err
		}
		return p.levelTensors(b)
	}
	return nil
}

// copyIDs copies the ids of nodes and inputs alone.
func (p *preparer) copyIDs(b *Batch) error {
	s := p.loader.draw.Parts.Schema
	p.ids.begin(s)
	for t := range s.NumTypes() {
		if err := p.copyNodeIDs(b, t); err != nil {
			return err
		}
	}
	return p.described.idsOfBatch(p, b)
}

// copyNodeIDs adds the ids of the nodes and of the inputs of a node type.
func (p *preparer) copyNodeIDs(b *Batch, t int) error {
	s, c := p.loader.draw.Parts.Schema, &p.typeOffsets
	nodes := p.batch.Nodes[c.Nodes[t]:c.Nodes[t+1]]
	nID, err := p.add(b, s.NodeName(t, "n_id"), int64(len(nodes)))
	if err != nil {
		return err
	}
	withinType(nID, nodes, s.First[t])
	p.ids.nodes[t] = nID
	return p.described.idsOfType(p, b, t)
}

// copyNodes adds the tensors of a node type that are not the user's.
func (p *preparer) copyNodes(b *Batch, t int) error {
	s, c := p.loader.draw.Parts.Schema, &p.typeOffsets
	if err := p.copyNodeIDs(b, t); err != nil {
		return err
	}
	if err := p.described.ofType(p, b, t); err != nil {
		return err
	}
	if p.loader.draw.Parts.Held {
		n := c.Nodes[t+1] - c.Nodes[t]
		place, err := p.addTensor(b, s.NodeName(t, draw.PlaceName), manifest.DType_INT32, []int64{n})
		if err != nil {
			return err
		}
		copy(mem.View[int32](place), p.batchRows.Place[c.Nodes[t]:c.Nodes[t+1]])
	}
	if s.Subgraph != sample.Directional {
		return nil // its edges are not in the order of hops
	}
	return p.addCounts(b, s.NodeName(t, "num_sampled_nodes"), s.NodesPerHop(p.batch, t))
}

// withinType writes the numbers that nodes of a type have within it, whose first node has this global number.
func withinType(out, nodes []int64, first int64) {
	if first == 0 {
		copy(out, nodes)
		return
	}
	for i, v := range nodes {
		out[i] = v - first
	}
}

// addCounts appends a copy of counts to the batch.
func (p *preparer) addCounts(b *Batch, name string, counts []int64) error {
	to, err := p.add(b, name, int64(len(counts)))
	copy(to, counts)
	return err
}

// relationOf returns one relation of a batch as a Subgraph of its own: its nodes are the nodes of the source type.
func (p *preparer) relationOf(i int) sample.Subgraph {
	g, s, c := p.batch, p.loader.draw.Parts.Schema, &p.typeOffsets
	lo, hi, source := c.Edges[i], c.Edges[i+1], s.Edges[i].Source
	one := sample.Subgraph{
		Nodes: g.Nodes[c.Nodes[source]:c.Nodes[source+1]], Ptr: g.Ptr[c.Ptr[i]:c.Ptr[i+1]], Row: g.Row[lo:hi],
		EdgesPerHop: s.EdgesPerHop(g, i),
	}
	if !s.Walked {
		one.Pos = g.Pos[lo:hi]
	}
	if len(g.Weight) > 0 {
		one.Weight = g.Weight[lo:hi]
	}
	return one
}

// copyRelation adds the tensors of a relation that are not the user's.
func (p *preparer) copyRelation(b *Batch, i int) error {
	g := p.relationOf(i)
	types := p.loader.draw.Parts.Schema
	edges := int64(len(g.Row))
	edgeIndex, err := p.add(b, types.EdgeName(i, "edge_index"), 2, edges)
	if err != nil {
		return err
	}
	fillEdgeIndex(edgeIndex, g.Row, g.Ptr)
	ptr, err := p.add(b, types.EdgeName(i, "ptr"), int64(len(g.Ptr)))
	if err != nil {
		return err
	}
	copy(ptr, g.Ptr)
	if types.Subgraph == sample.Directional {
		if err := p.addCounts(b, types.EdgeName(i, "num_sampled_edges"), g.EdgesPerHop); err != nil {
			return err
		}
	}
	if p.loader.draw.Parts.Weighted {
		data, err := p.addTensor(b, types.EdgeName(i, draw.EdgeWeightName), manifest.DType_FLOAT32, []int64{edges})
		if err != nil {
			return err
		}
		copy(mem.View[float32](data), g.Weight)
	}
	ids := &p.ids.edges[i]
	*ids = edgeIDs{numbered: types.Numbered(i), index: edgeIndex, ptr: ptr}
	if ids.numbered {
		if ids.numbers, err = p.add(b, types.EdgeName(i, "e_id"), edges); err != nil {
			return err
		}
		copy(ids.numbers, g.Pos) // positions, until numberEdges
	}
	if p.cut.On() {
		return nil
	}
	return p.transposeGraph(b, &g, types.EdgeName(i, ""), "")
}

// fillEdgeIndex writes edges that are grouped by target, with their sources, as
// rows of sources and targets.
func fillEdgeIndex[T int32 | uint32](edgeIndex []int64, sources []T, ptr []int64) {
	for i, s := range sources {
		edgeIndex[i] = int64(s)
	}
	targets := edgeIndex[len(sources):]
	for t := range len(ptr) - 1 {
		for e := ptr[t]; e < ptr[t+1]; e++ {
			targets[e] = int64(t)
		}
	}
}

// add appends an int64 tensor to the batch and returns its elements.
func (p *preparer) add(b *Batch, name string, shape ...int64) ([]int64, error) {
	data, err := p.addTensor(b, name, manifest.DType_INT64, shape)
	if err != nil {
		return nil, err
	}
	return int64s(data), nil
}

// addTensor appends a tensor to the batch and returns its memory.
func (p *preparer) addTensor(b *Batch, name string, dtype manifest.DType, shape []int64) ([]byte, error) {
	n := int64(dtype.Size())
	for _, d := range shape {
		n *= d
	}
	buffer, err := p.loader.alloc.Acquire(n)
	if err != nil {
		return nil, err
	}
	b.Arrays = append(b.Arrays, Array{Name: name, DType: dtype, Shape: shape, Buffer: buffer})
	return buffer.Bytes(), nil
}
