package history

// Memory of batches in preparation: sizes are counts by hop, for one node type after another, and for each relation.

// BatchBytes returns the memory of a Batch for batches up to these sizes, with the copy of the drawn batch that it
// begins with.
func (s *Shape) BatchBytes(nodesPerHop, edgesPerHop []int64) int64 {
	h := s.merged(nodesPerHop, edgesPerHop)
	layers := h.layers()
	nodes, edges := h.nodesTo(layers), h.edgesTo(layers-1)
	total := PrunedBytes(h.nodes, h.edges)
	const places, loops = 4, 4
	if s.Single() {
		return total + nodes*(8+8+places+loops) + edges*(8+4)
	}
	ptrs := int64(0)
	for _, r := range s.Relations {
		ptrs += 8 * (sum(nodesPerHop[r.Target*(layers+1):][:layers]) + 1)
	}
	const graphs = 3 // as drawn, merged and left
	total += graphs*(nodes*8+edges*(4+8)) + 2*ptrs
	total += nodes*(7*4+8+1+places) + edges*(4+8) // lists by node, and by edge
	for l := range layers {
		total += 4 * 7 * h.nodesTo(layers-l) // of a table
	}
	return total
}

// merged returns the size of the batch as one graph.
func (s *Shape) merged(nodesPerHop, edgesPerHop []int64) hops {
	layers := len(edgesPerHop) / len(s.Relations)
	h := hops{nodes: make([]int64, layers+1), edges: make([]int64, layers)}
	for i, n := range nodesPerHop {
		h.nodes[i%(layers+1)] += n
	}
	for i, n := range edgesPerHop {
		h.edges[i%layers] += n
	}
	return h
}

// LevelBytes returns the size of the tables and layers of the current batch as tensors of 8 bytes per element, with
// their edges by source if transposed, and the counts of Counts.
func (b *Batch) LevelBytes(transposed bool) int64 {
	s, total := &b.shape, 8*int64(b.numCounts())
	if s.Single() {
		total += 2 * 8 * int64(len(b.graph.Nodes)) // see Degrees
	}
	for l := range b.Tables {
		t, edges := &b.Tables[l], int64(len(b.out.Layers[l].Edge))
		total += 8 * (int64(len(t.Nodes)+len(t.Computed)+2*len(t.Hits)) + 3*edges)
		for _, r := range s.Relations {
			total += 8 * (t.Targets[r.Target] + 1)
			if transposed {
				total += 8 * (t.First[r.Source+1] - t.First[r.Source] + 1)
			}
		}
		if transposed {
			total += 8 * edges
		}
	}
	return total
}

// LevelBytes returns their size when nothing is pruned, which is the most: a node of hop j is in the levels 0 to L-j,
// its edges in the layers 1 to L-j.
func (s *Shape) LevelBytes(nodesPerHop, edgesPerHop []int64, transposed bool) int64 {
	h := s.merged(nodesPerHop, edgesPerHop)
	layers := h.layers()
	rows := func(typ, hops int) int64 { return sum(nodesPerHop[typ*(layers+1):][:hops]) }
	total := 8*int64(4+2*s.Types()*(1+layers)) + 16*h.nodesTo(layers)
	for l := range layers {
		for hop := range layers - l {
			total += 8 * 3 * (h.nodes[hop] + h.edges[hop])
		}
		for _, r := range s.Relations {
			total += 8 * (rows(r.Target, layers-l) + 1)
			if transposed {
				total += 8 * (rows(r.Source, layers-l+1) + 1)
			}
		}
		if transposed {
			total += 8 * h.edgesTo(layers-l-1)
		}
	}
	return total
}

// Counts lists the sizes of the batch: the rows of features loaded, and the nodes and edges that it would have had; of
// each node type the rows loaded and the nodes that it would have had; of each level and node type the rows of its
// table and the targets among them.
func (b *Batch) Counts(out []int64) []int64 {
	out = append(out, int64(len(b.loaded)), b.out.PlainNodes, b.out.PlainEdges)
	for typ := range b.shape.Types() {
		loaded, _ := b.LoadedOf(typ)
		out = append(out, int64(len(loaded)), b.plain.nodes[typ+1]-b.plain.nodes[typ])
	}
	for l := range b.Tables {
		t := &b.Tables[l]
		for typ, targets := range t.Targets {
			out = append(out, t.First[typ+1]-t.First[typ], targets)
		}
	}
	return out
}

// numCounts returns the number of counts, with the number of the iteration before them.
func (b *Batch) numCounts() int { return 4 + 2*b.shape.Types()*(1+len(b.Tables)) }
