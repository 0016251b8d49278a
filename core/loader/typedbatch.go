package loader

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// The tensors of a batch with types: those of a homogeneous batch, for every node type i under "n<i>/" (n_id, input_id, num_sampled_nodes, with trees
// batch and seed_time, and the node tensors) and for every edge type j under "e<j>/" (edge_index, ptr, e_id, num_sampled_edges, edge_weight and the edge tensors), in the order of the
// graph. Ids are those of the user, within their type. Types that a batch does not reach are there, and empty. A trace has n_id and input_id alone.

func nodeName(typ int, name string) string { return "n" + strconv.Itoa(typ) + "/" + name }

func edgeName(relation int, name string) string { return "e" + strconv.Itoa(relation) + "/" + name }

// nodeName is what batches call a tensor of a node type: of the unnamed type, the tensor's own name.
func (s *schema) nodeName(typ int, name string) string {
	if s.unnamed() {
		return name
	}
	return nodeName(typ, name)
}

// edgeName is what batches call a tensor of a relation or, with metapaths, of a metapath.
func (s *schema) edgeName(relation int, name string) string {
	if s.unnamed() {
		return name
	}
	return edgeName(relation, name)
}

// copyTypes is copyOut of a flat batch.
func (p *preparer) copyTypes(b *Batch) error {
	g, s, c := p.batch, p.loader.parts.types, &p.sections
	inputs := make([][]int64, s.types())
	for t := range s.types() {
		nodes := g.Nodes[c.nodes[t]:c.nodes[t+1]]
		nID, err := p.add(b, s.nodeName(t, "n_id"), int64(len(nodes)))
		if err != nil {
			return err
		}
		for i, v := range nodes {
			nID[i] = v - s.first[t]
		}
		if p.loader.links == nil {
			all, err := p.add(b, s.nodeName(t, "input_id"), c.seeds[t])
			if err != nil {
				return err
			}
			inputs[t] = all[:0]
		}
		if p.epoch.trace {
			continue
		}
		if err := p.treesOfType(b, t); err != nil {
			return err
		}
		if p.loader.options.Held != nil {
			place, err := p.addTensor(b, s.nodeName(t, PlaceName), manifest.DType_INT32, []int64{int64(len(nodes))})
			if err != nil {
				return err
			}
			copy(mem.View[int32](place), p.roster.place[c.nodes[t]:c.nodes[t+1]])
		}
		if s.subgraph != sample.Directional {
			continue // its edges are not in the order of hops
		}
		if err := p.addCounts(b, s.nodeName(t, "num_sampled_nodes"), g.NodesPerHop[t*(s.hops+1):(t+1)*(s.hops+1)]); err != nil {
			return err
		}
	}
	if k := p.loader.links; k != nil {
		places, err := p.add(b, s.edgeName(k.options.Relation, "input_id"), b.NumSeeds)
		if err != nil {
			return err
		}
		copy(places, p.request.inputs)
	} else {
		for _, at := range p.request.inputs {
			t, place := s.input(at)
			inputs[t] = append(inputs[t], place)
		}
	}
	if p.epoch.trace {
		return nil
	}
	// Else it was filled before there was room for the batch, or when it was pruned.
	if len(p.loader.onDisk) > 0 && p.loader.options.Held == nil && p.loader.past == nil {
		p.roster.fillTypes(p.loader, g.Nodes, c) // while the sampler's memory is there
	}
	if p.loader.links != nil {
		if err := p.addTimes(b); err != nil {
			return err
		}
	}
	if err := p.addLinks(b); err != nil {
		return err
	}
	for i := range s.edges {
		if err := p.copyRelation(b, i); err != nil {
			return err
		}
	}
	if p.pruned() {
		if err := p.estimate(b); err != nil {
			return err
		}
		return p.levelTensors(b)
	}
	return nil
}

func (p *preparer) addCounts(b *Batch, name string, counts []int64) error {
	to, err := p.add(b, name, int64(len(counts)))
	copy(to, counts)
	return err
}

// relationOf is one relation of a flat batch as a Subgraph of its own: its nodes are those of the source type.
func (p *preparer) relationOf(i int) sample.Subgraph {
	g, s, c := p.batch, p.loader.parts.types, &p.sections
	lo, hi, source := c.edges[i], c.edges[i+1], s.edges[i].source
	one := sample.Subgraph{
		Nodes: g.Nodes[c.nodes[source]:c.nodes[source+1]], Ptr: g.Ptr[c.ptr[i]:c.ptr[i+1]], Row: g.Row[lo:hi],
		EdgesPerHop: g.EdgesPerHop[i*s.hops : (i+1)*s.hops],
	}
	if !s.walked {
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
	types := p.loader.parts.types
	edges := int64(len(g.Row))
	edgeIndex, err := p.add(b, types.edgeName(i, "edge_index"), 2, edges)
	if err != nil {
		return err
	}
	fillEdgeIndex(edgeIndex, g.Row, g.Ptr)
	if err := p.addCounts(b, types.edgeName(i, "ptr"), g.Ptr); err != nil {
		return err
	}
	if types.subgraph == sample.Directional {
		if err := p.addCounts(b, types.edgeName(i, "num_sampled_edges"), g.EdgesPerHop); err != nil {
			return err
		}
	}
	if p.loader.parts.weighted {
		data, err := p.addTensor(b, types.edgeName(i, edgeWeightName), manifest.DType_FLOAT32, []int64{edges})
		if err != nil {
			return err
		}
		copy(mem.View[float32](data), g.Weight)
	}
	if types.numbered(i) {
		if err := p.addCounts(b, types.edgeName(i, "e_id"), g.Pos); err != nil { // positions, until numberTypes
			return err
		}
	}
	if p.pruned() {
		return nil
	}
	return p.transposeGraph(b, &g, types.edgeName(i, ""), "")
}

// typedIDs are the ids of a batch by type: of nodes, and of edges.
type typedIDs struct{ nodes, edges [][]int64 }

// idsOf finds the ids in the tensors of a batch.
func (s *schema) idsOf(b *Batch) (ids typedIDs) {
	for t := range s.types() {
		ids.nodes = append(ids.nodes, int64s(b.Array(s.nodeName(t, "n_id")).Buffer.Bytes()))
	}
	ids.edges = make([][]int64, len(s.relations))
	for i := range s.relations {
		if s.numbered(i) {
			ids.edges[i] = int64s(b.Array(s.edgeName(i, "e_id")).Buffer.Bytes())
		}
	}
	return ids
}

// fillTypes is fill of a batch with types.
func (p *preparer) fillTypes(b *Batch) error {
	l, s := p.loader, p.loader.parts.types
	ids := s.idsOf(b)
	if err := p.numberTypes(b, ids); err != nil {
		return err
	}
	tensors := make([][]byte, len(l.tables))
	for i := range l.tables {
		t := &l.tables[i]
		if t.byEdge && !s.numbered(t.typ) {
			continue
		}
		count := len(ids.of(t))
		if l.options.Held != nil && !t.byEdge {
			count = int(p.roster.bases[t.typ+1] - p.roster.bases[t.typ])
		}
		var err error
		if tensors[i], err = p.addTensor(b, t.label, t.dtype, append([]int64{int64(count)}, t.rowShape...)); err != nil {
			return err
		}
		if p.pruned() && !t.byEdge {
			p.clearUnloaded(tensors[i], t)
		}
	}
	if err := p.resolve(b, nil, tensors); err != nil {
		return err
	}
	if err := p.readPacks(tensors); err != nil {
		return err
	}
	for i := range l.tables {
		t := &l.tables[i]
		if t.byEdge && !s.numbered(t.typ) || !l.parts.reaches(&t.tensor) {
			continue
		}
		nID, eID := ids.of(t), ids.of(t) // the one that it has rows of
		if err := p.gather(t, nID, eID, tensors[i]); err != nil {
			return fmt.Errorf("reading %q of %s: %w", t.name, s.typeOf(&t.tensor), err)
		}
	}
	if p.super != nil {
		p.super.read()
		p.closeParcels()
	}
	return p.commit(b, tensors)
}

// of are the ids that a table has rows of.
func (ids *typedIDs) of(t *table) []int64 {
	if t.byEdge {
		return ids.edges[t.typ]
	}
	return ids.nodes[t.typ]
}

// numberTypes is numberEdges of every relation.
func (p *preparer) numberTypes(b *Batch, ids typedIDs) error {
	s, c := p.loader.parts.types, &p.sections
	for i := range s.relations {
		if !s.numbered(i) {
			continue
		}
		r := &s.relations[i]
		ptr := int64s(b.Array(s.edgeName(i, "ptr")).Buffer.Bytes())
		d := sample.Drawn{Targets: ids.nodes[r.target][:c.expanded[i]], Ptr: ptr, Pos: ids.edges[i]}
		if s.subgraph == sample.Bidirectional && r.edgeIDs.lists != nil { // its reverse is itself or none
			d = p.owners(r.indptr, d, ids.nodes[r.source], int64s(b.Array(s.edgeName(i, "edge_index")).Buffer.Bytes()))
		}
		if err := p.replacePositions(&r.edgeIDs, d); err != nil {
			return fmt.Errorf("numbering edges of %s: %w", r.name, err)
		}
	}
	return nil
}

// replacePositions replaces positions by the edge numbers of an array.
func (p *preparer) replacePositions(edgeIDs *idArray, d sample.Drawn) error {
	if edgeIDs.disk != nil {
		start := time.Now()
		defer since(&p.loader.counters.reading, start)
		return edgeIDs.gather(p.epoch.ctx, &p.fetchScratch, d, d.Pos)
	}
	return p.compute(func() {
		// In memory nothing can fail, and nothing waits.
		_ = edgeIDs.gather(context.Background(), nil, d, d.Pos)
	})
}

// fillGraph lists the nodes of a batch as it was drawn.
func (r *roster) fillGraph(l *Loader, g *sample.Subgraph, numSeeds int64) {
	if s := l.parts.types; !s.unnamed() {
		c := s.cut(g)
		r.fillTypes(l, g.Nodes, &c)
		return
	}
	r.fill(l, g.Nodes, numSeeds)
}

// fillTypes lists the nodes of a flat batch, of each type its seeds first, of which some may repeat, or all nodes, where they are in trees: those of
// types that have rows on disk.
func (r *roster) fillTypes(l *Loader, nodes []int64, c *sections) {
	r.rows, r.at, r.copies = r.rows[:0], r.at[:0], r.copies[:0]
	if l.options.Held != nil {
		r.fillTypesMissed(l, nodes, c)
		return
	}
	for t, cached := range l.cachedTypes {
		if !cached {
			continue
		}
		from, to := c.nodes[t], c.nodes[t+1]
		r.list(l, nodes, from, to, int64(l.mayRepeat(nodes[from:to], c.seeds[t])))
	}
}
