package sample

import "fmt"

// check panics unless the Worker could have drawn the batch: list lengths are consistent, ids are in range, nodes are
// distinct except for repeated seeds, no hop has a source that only a later hop found, and targets have no more edges
// than their fanouts allow, each once and from the list of the target.
func (w *Worker) check(g *Subgraph) {
	s := w.sampler
	nodes := make([]int64, len(w.nodes)+1) // the first node of each type, and the end
	for t := range w.nodes {
		perHop := g.NodesPerHop[t*(s.hops+1) : (t+1)*(s.hops+1)]
		nodes[t+1] = nodes[t] + sum(perHop)
		w.checkNodes(g, t, nodes[t], nodes[t]+perHop[0], nodes[t+1])
	}
	if !(nodes[len(w.nodes)] == int64(len(g.Nodes)) && len(g.NodesPerHop) == len(w.nodes)*(s.hops+1) &&
		len(g.EdgesPerHop) == len(w.edges)*s.hops) {
		violated("%d nodes, %v by hop; %d relations, edges %v by hop", len(g.Nodes), g.NodesPerHop, len(w.edges),
			g.EdgesPerHop)
	}
	ptr, edges := int64(0), int64(0)
	for i, e := range w.edges {
		one := edgeArrays{ptr: g.Ptr[ptr : ptr+int64(len(e.edges.ptr))]}
		n := one.ptr[len(one.ptr)-1]
		one.row = g.Row[edges : edges+n]
		if len(g.Pos) > 0 {
			one.pos = g.Pos[edges : edges+n]
		}
		w.checkEdges(g, i, &one, nodes)
		ptr, edges = ptr+int64(len(one.ptr)), edges+n
	}
	if !(ptr == int64(len(g.Ptr)) && edges == int64(len(g.Row))) {
		violated("%d ends of lists and %d edges, in the relations %d and %d", len(g.Ptr), len(g.Row), ptr, edges)
	}
}

// checkNodes checks the nodes of a type, which start at first with the seeds.
func (w *Worker) checkNodes(g *Subgraph, typ int, first, seedEnd, end int64) {
	lowest, beyond := w.sampler.first[typ], w.sampler.first[typ+1]
	seen := make(map[[2]int64]bool, end-first)
	for i, v := range g.Nodes[first:end] {
		at := [2]int64{v}
		if g.Tree != nil {
			at[1] = int64(g.Tree[first+int64(i)])
		}
		if !(v >= lowest && v < beyond) {
			violated("node %d of type %d is %d, beyond [%d, %d)", i, typ, v, lowest, beyond)
		}
		if first+int64(i) >= seedEnd && seen[at] {
			violated("node %d of type %d, in tree %d, is there twice", v, typ, at[1])
		}
		seen[at] = true
	}
}

// checkEdges checks the edges of a relation. Edges that were not drawn have no hop and no fanout.
func (w *Worker) checkEdges(g *Subgraph, relation int, one *edgeArrays, nodes []int64) {
	s, e := w.sampler, w.edges[relation].relation
	perHop := func(typ int) []int64 { return g.NodesPerHop[typ*(s.hops+1) : (typ+1)*(s.hops+1)] }
	sources, targets := perHop(e.Source), perHop(e.Target)
	if s.subgraph != Directional {
		if !(int64(len(one.ptr))-1 == sum(targets)) {
			violated("relation %d has %d lists, of %d nodes", relation, len(one.ptr)-1, sum(targets))
		}
		w.checkRows(g, relation, one, 0, len(one.ptr)-1, All, nodes[e.Source+1]-nodes[e.Source], nodes)
		return
	}
	target, reached := 0, sources[0]
	for hop := range s.hops {
		reached += sources[hop+1]
		end := target + int(targets[hop])
		drawn := one.ptr[end] - one.ptr[target]
		if !(drawn == g.EdgesPerHop[relation*s.hops+hop]) {
			violated("relation %d has %d edges in hop %d, counted %d", relation, drawn, hop,
				g.EdgesPerHop[relation*s.hops+hop])
		}
		w.checkRows(g, relation, one, target, end, e.fanouts[hop], reached, nodes)
		target = end
	}
	if !(target == len(one.ptr)-1) {
		violated("relation %d has %d lists, of %d nodes", relation, len(one.ptr)-1, target)
	}
}

// checkRows checks the edges of some targets: at most k each, from sources that were reached before.
func (w *Worker) checkRows(
	g *Subgraph, relation int, one *edgeArrays, from, to int, most, reached int64, nodes []int64,
) {
	e := w.edges[relation].relation
	own := w.sampler.subgraph == Directional && e.steps == nil && one.pos != nil // every edge is from its target's list
	firstSource, firstTarget := nodes[e.Source], nodes[e.Target]
	for t := from; t < to; t++ {
		lo, hi := one.ptr[t], one.ptr[t+1]
		if !(lo <= hi && (most == All || hi-lo <= most)) {
			violated("target %d of relation %d has edges %d to %d, at most %d", t, relation, lo, hi, most)
		}
		node := g.Nodes[firstTarget+int64(t)] - w.sampler.first[e.Target]
		seen := make(map[int64]bool, hi-lo)
		for i := lo; i < hi; i++ {
			if !(int64(one.row[i]) < reached) {
				violated("edge %d of relation %d is from source %d of %d", i, relation, one.row[i], reached)
			}
			from := firstSource + int64(one.row[i])
			if g.Tree != nil && g.Tree[from] != g.Tree[firstTarget+int64(t)] {
				violated("edge %d of relation %d is from tree %d to tree %d", i, relation, g.Tree[from],
					g.Tree[firstTarget+int64(t)])
			}
			if !own {
				continue
			}
			pos := one.pos[i]
			if begin, end := e.Indptr.Range(node); !(pos >= begin && pos < end && (e.replace || !seen[pos])) {
				violated("edge %d of relation %d is at %d, of node %d with [%d, %d)", i, relation, pos, node,
					begin, end)
			}
			seen[pos] = true
			if source := g.Nodes[from] - w.sampler.first[e.Source]; !e.joins(pos, source) {
				violated("edge %d of relation %d, at %d, is not from node %d", i, relation, pos, source)
			}
		}
	}
}

// joins reports whether the edge at a position starts at this node. It returns true for lists on disk, which it cannot
// read.
func (r *relation) joins(pos, source int64) bool {
	switch {
	case r.Indices32 != nil:
		return int64(r.Indices32[pos]) == source
	case r.Packed != nil:
		return r.Packed.At(pos) == source
	case r.Indices64 != nil:
		return r.Indices64[pos] == source
	}
	return true
}

func sum(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

func violated(format string, args ...any) { panic("sample: " + fmt.Sprintf(format, args...)) }
