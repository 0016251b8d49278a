package batch

import (
	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// The tensors of a batch that the sampler gives: for every node type n_id, input_id, num_sampled_nodes and, with trees,
// batch and seed_time; for every relation edge_index, ptr, e_id, num_sampled_edges and edge_weight, in the order of the
// graph. Names of node type i begin with "n<i>/" and names of relation j with "e<j>/"; a homogeneous graph, whose type
// and relation have no names, has names without a prefix. Ids are the user's, within their type. Types that a batch
// does not reach are there, and empty. A trace has n_id and input_id alone.

// CopyOut widens the sampler's compact output into the batch's tensors.
func (d *Drawn) CopyOut(b *Batch) error {
	if d.Parts.Packed {
		n := packBytes(&d.TypeOffsets, d.Parts, b.NumSeeds) + d.Cut.LevelBytes(d.Parts.Transposed)
		if err := b.beginPack(n); err != nil {
			return err
		}
	}
	if err := d.copyTypes(b, d.copyNodes); err != nil {
		return err
	}
	if err := d.described.ofBatch(d, b); err != nil {
		return err
	}
	for i := range d.Parts.Schema.Edges {
		if err := d.copyRelation(b, i); err != nil {
			return err
		}
	}
	if d.Cut.On() {
		if err := d.estimate(); err != nil {
			return err
		}
		return d.levelTensors(b)
	}
	return nil
}

// CopyIDs copies the ids of nodes and inputs alone.
func (d *Drawn) CopyIDs(b *Batch) error { return d.copyTypes(b, d.copyNodeIDs) }

// copyTypes adds the tensors of each node type, and then the ids of the batch.
func (d *Drawn) copyTypes(b *Batch, each func(b *Batch, t int) error) error {
	d.ids.begin(d.Parts.Schema)
	for t := range d.Parts.Schema.NumTypes() {
		if err := each(b, t); err != nil {
			return err
		}
	}
	return d.described.idsOfBatch(d, b)
}

// copyNodeIDs adds the ids of the nodes and of the inputs of a node type.
func (d *Drawn) copyNodeIDs(b *Batch, t int) error {
	s, c := d.Parts.Schema, &d.TypeOffsets
	nodes := d.Delivered.Nodes[c.Nodes[t]:c.Nodes[t+1]]
	nID, err := b.add(s.NodeName(t, "n_id"), int64(len(nodes)))
	if err != nil {
		return err
	}
	withinType(nID, nodes, s.First[t])
	d.ids.nodes[t] = nID
	return d.described.idsOfType(d, b, t)
}

// copyNodes adds the tensors of a node type that are not the user's.
func (d *Drawn) copyNodes(b *Batch, t int) error {
	s, c := d.Parts.Schema, &d.TypeOffsets
	if err := d.copyNodeIDs(b, t); err != nil {
		return err
	}
	if err := d.described.ofType(d, b, t); err != nil {
		return err
	}
	if d.Parts.Held {
		n := c.Nodes[t+1] - c.Nodes[t]
		place, err := b.AddTensor(s.NodeName(t, draw.PlaceName), manifest.DType_INT32, []int64{n})
		if err != nil {
			return err
		}
		copy(mem.View[int32](place), d.BatchRows.Missed.Place[c.Nodes[t]:c.Nodes[t+1]])
	}
	if s.Subgraph != sample.Directional {
		return nil // its edges are not in the order of hops
	}
	return b.addCounts(s.NodeName(t, "num_sampled_nodes"), s.NodesPerHop(d.Delivered, t))
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

// relationOf returns one relation of a batch as a Subgraph, whose nodes are the nodes of the source type.
func (d *Drawn) relationOf(i int) sample.Subgraph {
	g, s, c := d.Delivered, d.Parts.Schema, &d.TypeOffsets
	lo, hi, source := c.Edges[i], c.Edges[i+1], s.Edges[i].Source
	one := sample.Subgraph{
		Nodes: g.Nodes[c.Nodes[source]:c.Nodes[source+1]], Ptr: g.Ptr[c.Ptr[i]:c.Ptr[i+1]], Row: g.Row[lo:hi],
		EdgesPerHop: s.EdgesPerHop(g, i),
	}
	if len(g.Pos) > 0 { // else these are walks, or a trace without positions
		one.Pos = g.Pos[lo:hi]
	}
	if len(g.Weight) > 0 {
		one.Weight = g.Weight[lo:hi]
	}
	return one
}

// copyRelation adds the tensors of a relation that are not the user's.
func (d *Drawn) copyRelation(b *Batch, i int) error {
	g := d.relationOf(i)
	types := d.Parts.Schema
	edges := int64(len(g.Row))
	edgeIndex, err := addEdgeIndex(b, types.EdgeName(i, "edge_index"), g.Row, g.Ptr)
	if err != nil {
		return err
	}
	ptr, err := b.add(types.EdgeName(i, "ptr"), int64(len(g.Ptr)))
	if err != nil {
		return err
	}
	copy(ptr, g.Ptr)
	if types.Subgraph == sample.Directional {
		if err := b.addCounts(types.EdgeName(i, "num_sampled_edges"), g.EdgesPerHop); err != nil {
			return err
		}
	}
	if d.Parts.Weighted {
		data, err := b.AddTensor(types.EdgeName(i, draw.EdgeWeightName), manifest.DType_FLOAT32, []int64{edges})
		if err != nil {
			return err
		}
		copy(mem.View[float32](data), g.Weight)
	}
	ids := &d.ids.edges[i]
	*ids = edgeIDs{numbered: types.Numbered(i), index: edgeIndex, ptr: ptr}
	if ids.numbered {
		if ids.numbers, err = b.add(types.EdgeName(i, "e_id"), edges); err != nil {
			return err
		}
		copy(ids.numbers, g.Pos) // positions, until numberEdges
	}
	if d.Cut.On() {
		return nil
	}
	return d.transposeGraph(b, &g, types.EdgeName(i, ""), "")
}

// AddKeys adds the keys of the batch's draws, and the number of the batch.
func (b *Batch) AddKeys(s *sample.Sampler, key sample.Key) error {
	var keys []int64
	for _, k := range append(s.HopKeys(key), key.Batch) {
		keys = append(keys, int64(k))
	}
	return b.addCounts(draw.KeyName, keys)
}

// addEdgeIndex appends edges that are grouped by target, with their sources, as rows of sources and targets; in a
// packed batch the sources alone, as ptr gives the targets.
func addEdgeIndex[T int32 | uint32](b *Batch, name string, sources []T, ptr []int64) ([]int64, error) {
	shape := []int64{2, int64(len(sources))}
	if b.pack.on() {
		shape = shape[1:]
	}
	edgeIndex, err := b.add(name, shape...)
	if err != nil {
		return nil, err
	}
	for i, s := range sources {
		edgeIndex[i] = int64(s)
	}
	if b.pack.on() {
		return edgeIndex, nil
	}
	targets := edgeIndex[len(sources):]
	for t := range len(ptr) - 1 {
		for e := ptr[t]; e < ptr[t+1]; e++ {
			targets[e] = int64(t)
		}
	}
	return edgeIndex, nil
}

// inputTensors adds the tensors that describe the inputs of batches: nodes, or links.
type inputTensors interface {
	// idsOfType adds input_id to the tensors of a node type, or idsOfBatch to those of the batch.
	idsOfType(d *Drawn, b *Batch, typ int) error
	idsOfBatch(d *Drawn, b *Batch) error
	// ofType adds the other tensors of the inputs to the tensors of a node type, and ofBatch to those of the batch. A
	// trace has none.
	ofType(d *Drawn, b *Batch, typ int) error
	ofBatch(d *Drawn, b *Batch) error
}

// seedTensors describes input nodes.
type seedTensors struct{}

// idsOfType adds the positions of the inputs of one type in the user's list.
func (seedTensors) idsOfType(d *Drawn, b *Batch, typ int) error {
	inputs, err := b.add(d.Parts.Schema.NodeName(typ, "input_id"), d.TypeOffsets.Seeds[typ])
	if err != nil {
		return err
	}
	d.Inputs.Visit(typ, d.Request.Inputs, func(i int, at, place int64) { inputs[i] = place })
	return nil
}

func (seedTensors) idsOfBatch(*Drawn, *Batch) error { return nil }

// ofType adds, with trees, the trees of the nodes of one type and the times of its inputs.
func (seedTensors) ofType(d *Drawn, b *Batch, typ int) error {
	parts, c := d.Parts, &d.TypeOffsets
	if !parts.Disjoint {
		return nil
	}
	if _, err := d.addTrees(b, typ); err != nil || !parts.Timed {
		return err
	}
	times, err := b.add(parts.Schema.NodeName(typ, draw.SeedTimeName), c.Seeds[typ])
	if err != nil {
		return err
	}
	d.Inputs.Visit(typ, d.Request.Inputs, func(i int, at, _ int64) { times[i] = d.Inputs.Times[at] })
	return nil
}

func (seedTensors) ofBatch(*Drawn, *Batch) error { return nil }

// addTrees adds the trees of the nodes of one type.
func (d *Drawn) addTrees(b *Batch, typ int) (trees []int64, err error) {
	of := d.Delivered.Tree[d.TypeOffsets.Nodes[typ]:d.TypeOffsets.Nodes[typ+1]]
	trees, err = b.add(d.Parts.Schema.NodeName(typ, draw.TreeName), int64(len(of)))
	if err != nil {
		return nil, err
	}
	for i, tree := range of {
		trees[i] = int64(tree)
	}
	return trees, nil
}

// linkTensors describes links.
type linkTensors struct{ *links.Links }

func (k linkTensors) idsOfType(*Drawn, *Batch, int) error { return nil }

// idsOfBatch adds the positions of the links in the user's list.
func (k linkTensors) idsOfBatch(d *Drawn, b *Batch) error {
	return b.addCounts(d.Parts.Schema.EdgeName(k.Options.Relation, "input_id"), d.Request.Inputs)
}

// ofType adds the links in whose trees the nodes are.
func (k linkTensors) ofType(d *Drawn, b *Batch, typ int) error {
	if !d.Parts.Disjoint {
		return nil
	}
	trees, err := d.addTrees(b, typ)
	if err == nil {
		k.LinksOfTrees(trees, b.NumSeeds)
	}
	return err
}

// ofBatch adds the times of the links, and where their ends are among the nodes.
func (k linkTensors) ofBatch(d *Drawn, b *Batch) error {
	parts, inputs := d.Parts, d.Request.Inputs
	if parts.Timed {
		for _, name := range parts.TimesNames() {
			times, err := b.add(name, k.Options.NumTimes(b.NumSeeds))
			if err != nil {
				return err
			}
			for i := range times {
				times[i] = d.Inputs.Times[inputs[i%len(inputs)]]
			}
		}
	}
	for _, t := range k.Tensors(&d.Request.Places, b.NumSeeds) {
		places, err := b.add(parts.LinkName(t.Name), t.Shape...)
		if err != nil {
			return err
		}
		copy(places, t.Places)
	}
	return nil
}

// TensorBytes returns the size of the tensors of a batch with these offsets and the given number of seeds, or links.
func TensorBytes(c *draw.TypeOffsets, p *draw.Parts, seeds int64) int64 {
	total := seeds*8 + p.Links.NumEnds(seeds)*8
	s := p.Schema
	for t := range s.NumTypes() {
		total += (c.Nodes[t+1] - c.Nodes[t]) * 8
		if s.Subgraph == sample.Directional {
			total += int64(s.Hops+1) * 8
		}
		if p.Disjoint {
			total += (c.Nodes[t+1] - c.Nodes[t]) * 8
		}
		if p.Timed && p.Links == nil {
			total += c.Seeds[t] * 8
		}
		if p.Held {
			total += (c.Nodes[t+1] - c.Nodes[t]) * 4
		}
	}
	if p.Timed && p.Links != nil {
		total += p.Links.NumTimes(seeds) * 8 * int64(len(p.TimesNames()))
	}
	for i, r := range s.Edges {
		edges := c.Edges[i+1] - c.Edges[i]
		total += edges*16 + (c.Expanded[i]+1)*8
		if p.Packed {
			total -= edges * 8 // of targets
		}
		if s.Numbered(i) {
			total += edges * 8
		}
		if s.Subgraph == sample.Directional {
			total += int64(s.Hops) * 8
		}
		if p.Transposed {
			total += transposedBytes(c.Nodes[r.Source+1]-c.Nodes[r.Source], edges)
		}
		if p.Weighted {
			total += edges * 4
		}
	}
	if p.Packed {
		total += packGaps(p)
	}
	for i := range p.Tensors {
		total += rowBytes(c, p, &p.Tensors[i])
	}
	return total
}

// rowBytes returns the size of the rows that a batch has of a tensor of the graph, with the copies of those that stay
// beside tables that training changes: see fetch.Filler.Tensors.
func rowBytes(c *draw.TypeOffsets, p *draw.Parts, t *draw.Tensor) int64 {
	switch {
	case t.ByID || t.ByEdge && !p.Schema.Numbered(t.Type):
		return 0
	case t.ByEdge:
		return (c.Edges[t.Type+1] - c.Edges[t.Type]) * t.Delivered()
	}
	each := t.Delivered()
	if p.Trains && t.Trained == nil && t.OnDisk != nil {
		each += int64(t.Width)
	}
	return (c.Rows[t.Type+1] - c.Rows[t.Type]) * each
}
