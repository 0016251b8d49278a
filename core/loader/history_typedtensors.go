package loader

import (
	"fmt"
	"sort"

	"freshgo/core/history"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The tensors of a pruned batch with types, beside those of every batch: tables of levels over all types one after the other, and the edges of each layer for
// every relation.
//
//	history_counts               iteration, rows loaded, plain nodes, plain edges; of each type the rows loaded and the plain nodes; of each level and type the
//	                             rows of its table and the targets among them
//	history_nodes_<level>        of each row of the table, its node within its type
//	history_computed_<level>     rows that the layer computes, ascending; and so hit, with slot
//	e<j>/history_ptr_<layer>     of the targets of the relation; and so edge_index, from rows of the source's type to those of the target's, and edge, places
//	                             among the edges of the relation in the batch

// typedLevelTensors is levelTensors of a batch with types.
func (p *preparer) typedLevelTensors(b *Batch) error {
	t, out, s := p.types, &p.out, p.loader.parts.types
	counts := []int64{p.loader.past.first + b.Index, int64(len(out.Loaded)), out.PlainNodes, out.PlainEdges}
	for typ := range s.types() {
		loaded, _ := t.loadedOf(typ)
		counts = append(counts, int64(len(loaded)), t.plain.nodes[typ+1]-t.plain.nodes[typ])
	}
	for l := range t.levels {
		for typ := range s.types() {
			counts = append(counts, t.levels[l].first[typ+1]-t.levels[l].first[typ], t.levels[l].dst[typ])
		}
	}
	if err := p.addCounts(b, "history_counts", counts); err != nil {
		return err
	}
	for l := range t.levels {
		level := &t.levels[l]
		if err := p.addNarrow(b, fmt.Sprintf("history_nodes_%d", l), level.Nodes); err != nil {
			return err
		}
		if l > 0 {
			if err := p.tableTensors(b, l, &level.Level); err != nil {
				return err
			}
		}
	}
	for l := range out.Layers {
		for i := range s.relations {
			if err := p.typedLayerTensors(b, l+1, i, t.layer(out, l+1, i)); err != nil {
				return err
			}
		}
	}
	return p.probeTensors(b)
}

func (p *preparer) typedLayerTensors(b *Batch, number, relation int, layer *history.Layer) error {
	name := func(part string) string { return edgeName(relation, fmt.Sprintf("history_%s_%d", part, number)) }
	ptr, err := p.add(b, name("ptr"), int64(len(layer.Ptr)))
	if err != nil {
		return err
	}
	copy(ptr, layer.Ptr)
	index, err := p.add(b, name("edge_index"), 2, int64(len(layer.Source)))
	if err != nil {
		return err
	}
	fillEdgeIndex(index, layer.Source, ptr)
	if err := p.addNarrow(b, name("edge"), layer.Edge); err != nil {
		return err
	}
	g := sample.Subgraph{Nodes: p.types.whole.Nodes[:layer.NumSrc], Ptr: layer.Ptr, Row: unsigned(layer.Source)}
	return p.transposeGraph(b, &g, edgeName(relation, "history_"), fmt.Sprint("_", number))
}

// loadedOf is the nodes of a type that are loaded; base is the first node of the type.
func (t *typedPruning) loadedOf(typ int) (loaded []int32, base int32) {
	at := func(end int64) int {
		return sort.Search(len(t.loaded), func(i int) bool { return int64(t.loaded[i]) >= end })
	}
	return t.loaded[at(t.left.nodes[typ]):at(t.left.nodes[typ+1])], int32(t.left.nodes[typ])
}

// levelBytes is what these tensors take.
func (t *typedPruning) levelBytes(out *history.Pruned, transposed bool) int64 {
	s := t.schema
	total := int64(8 * (4 + 2*s.types()*(1+len(t.levels))))
	for l := range t.levels {
		level := &t.levels[l]
		total += 8 * int64(len(level.Nodes)+len(level.Computed)+2*len(level.Hits)+3*len(out.Layers[l].Edge))
		for _, r := range s.relations {
			total += 8 * (level.dst[r.target] + 1)
			if transposed {
				total += transposedBytes(level.first[r.source+1]-level.first[r.source], 0)
			}
		}
		if transposed {
			total += 8 * int64(len(out.Layers[l].Edge))
		}
	}
	return total
}

// levelBytes is what they take when nothing is pruned, which is the most: see levelBytes.
func (s *schema) levelBytes(d *sizing.Demand, transposed bool) int64 {
	if len(d.NodesPerHop) == 0 {
		return 0 // nothing was measured
	}
	m := s.merged(d)
	total := levelBytes(&m, false) + int64(8*(4+2*s.types()*(1+s.hops)))
	for l := range m.EdgesPerHop {
		for _, r := range s.relations {
			rows := func(typ, hops int) (n int64) {
				for _, k := range d.NodesPerHop[typ*(s.hops+1):][:hops] {
					n += k
				}
				return n
			}
			total += 8 * (rows(r.target, s.hops-l) + 1)
			if transposed {
				total += transposedBytes(rows(r.source, s.hops-l+1), 0)
			}
		}
		if transposed {
			total += 8 * sumOf(m.EdgesPerHop[:s.hops-l])
		}
	}
	return total
}

// merged is the demand of batches as one graph.
func (s *schema) merged(d *sizing.Demand) sizing.Demand {
	m := sizing.Demand{
		Nodes: d.Nodes, NodesPerHop: make([]int64, s.hops+1), EdgesPerHop: make([]int64, s.hops),
	}
	for i, n := range d.NodesPerHop {
		m.NodesPerHop[i%(s.hops+1)] += n
	}
	for i, n := range d.EdgesPerHop {
		m.EdgesPerHop[i%s.hops] += n
	}
	return m
}

func sumOf(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// pruningBytes is what a preparer takes to prune a batch with types: the batch as it was drawn, as one graph and as it is left, what package history takes, and
// tables of levels, of which each has at most the nodes of the hops that it may be of.
func (s *schema) pruningBytes(d *sizing.Demand) int64 {
	m := s.merged(d)
	nodes, edges := sumOf(m.NodesPerHop), sumOf(m.EdgesPerHop)
	ptrs := int64(0)
	for _, r := range s.relations {
		ptrs += 8 * (sumOf(d.NodesPerHop[r.target*(s.hops+1):][:s.hops]) + 1)
	}
	total := history.PrunedBytesByHop(m.NodesPerHop, m.EdgesPerHop)
	total += 3*(nodes*8+edges*(4+8)) + 2*ptrs + nodes*(8+5*4+8+4+4) + edges*(4+8)
	for l := range m.EdgesPerHop {
		total += 4 * 6 * sumOf(m.NodesPerHop[:s.hops+1-l])
	}
	return total
}
