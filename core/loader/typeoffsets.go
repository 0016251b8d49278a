package loader

import (
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Where the lists of each type and relation lie in a flat batch, and what it takes.

// typeOffsets holds the offsets of the lists of each type and relation in a flat batch.
type typeOffsets struct {
	nodes    []int64 // of each type, its first node; and the end
	seeds    []int64 // of each type
	reached  []int64 // of each type, nodes found before the last hop
	expanded []int64 // of each relation, targets; its part of Ptr has one more
	ptr      []int64 // of each relation, its first place in Ptr; and the end
	edges    []int64 // of each relation, its first edge; and the end
	rows     []int64 // of each type, its first row of the node tensors; and the end: nodes, unless some have no row
}

// cut sets c to the offsets of a batch, in the memory that c has.
func (c *typeOffsets) cut(s *schema, g *sample.Subgraph) {
	c.nodes, c.ptr, c.edges = append(c.nodes[:0], 0), append(c.ptr[:0], 0), append(c.edges[:0], 0)
	c.seeds, c.reached, c.expanded = c.seeds[:0], c.reached[:0], c.expanded[:0]
	for t := range s.types() {
		counts := s.nodesPerHop(g, t)
		reached := sumOf(counts[:s.hops])
		c.seeds, c.reached = append(c.seeds, counts[0]), append(c.reached, reached)
		c.nodes = append(c.nodes, c.nodes[t]+reached+counts[s.hops])
	}
	c.rows = c.nodes
	for i, r := range s.edges {
		expanded, n := c.reached[r.target], sumOf(s.edgesPerHop(g, i))
		if s.subgraph != sample.Directional {
			expanded = c.nodes[r.target+1] - c.nodes[r.target]
			n = g.Ptr[c.ptr[i]+expanded]
		}
		c.expanded = append(c.expanded, expanded)
		c.ptr, c.edges = append(c.ptr, c.ptr[i]+expanded+1), append(c.edges, c.edges[i]+n)
	}
}

// nodesPerHop is the nodes of a type that each hop found, the seeds first.
func (s *schema) nodesPerHop(g *sample.Subgraph, typ int) []int64 {
	return g.NodesPerHop[typ*(s.hops+1) : (typ+1)*(s.hops+1)]
}

// edgesPerHop is the edges of a relation that each hop drew.
func (s *schema) edgesPerHop(g *sample.Subgraph, relation int) []int64 {
	return g.EdgesPerHop[relation*s.hops : (relation+1)*s.hops]
}

// bytes returns the size of the tensors of a batch with the given number of seeds, or links.
func (c *typeOffsets) bytes(p *parts, seeds int64) int64 {
	total := seeds*8 + p.links.NumEnds(seeds)*8
	s := p.types
	for t := range s.types() {
		total += (c.nodes[t+1] - c.nodes[t]) * 8
		if s.subgraph == sample.Directional {
			total += int64(s.hops+1) * 8
		}
		if p.disjoint {
			total += (c.nodes[t+1] - c.nodes[t]) * 8
		}
		if p.timed && p.links == nil {
			total += c.seeds[t] * 8
		}
		if p.held {
			total += (c.nodes[t+1] - c.nodes[t]) * 4
		}
	}
	if p.timed && p.links != nil {
		total += p.links.NumTimes(seeds) * 8 * int64(len(p.timesNames()))
	}
	for i, r := range s.edges {
		edges := c.edges[i+1] - c.edges[i]
		total += edges*16 + (c.expanded[i]+1)*8
		if s.numbered(i) {
			total += edges * 8
		}
		if s.subgraph == sample.Directional {
			total += int64(s.hops) * 8
		}
		if p.transposed {
			total += transposedBytes(c.nodes[r.source+1]-c.nodes[r.source], edges)
		}
		if p.weighted {
			total += edges * 4
		}
	}
	for i := range p.tensors {
		switch t := &p.tensors[i]; {
		case t.byEdge && !s.numbered(t.typ):
		case t.byEdge:
			total += (c.edges[t.typ+1] - c.edges[t.typ]) * t.delivered()
		default:
			total += (c.rows[t.typ+1] - c.rows[t.typ]) * t.delivered()
		}
	}
	return total
}

// nodesOfTypes returns the number of nodes of each type.
func (c *typeOffsets) nodesOfTypes() (counts []int64) {
	for t := range c.nodes[1:] {
		counts = append(counts, c.nodes[t+1]-c.nodes[t])
	}
	return counts
}

// demanded returns the offsets of a batch that needs no less of any type and relation than those measured, and in all
// no more than the demand says.
func (s *schema) demanded(d *sizing.Demand) *typeOffsets {
	c := &typeOffsets{nodes: []int64{0}, rows: []int64{0}, ptr: []int64{0}, edges: []int64{0}}
	g := sample.Subgraph{NodesPerHop: d.NodesPerHop, EdgesPerHop: d.EdgesPerHop, Rooms: d.Rooms}
	if len(g.NodesPerHop) == 0 { // nothing was measured
		g.NodesPerHop, g.EdgesPerHop = make([]int64, s.types()*(s.hops+1)), make([]int64, len(s.edges)*s.hops)
		g.Rooms = make([]int64, len(s.edges))
	}
	for t := range s.types() {
		counts := s.nodesPerHop(&g, t)
		reached := min(d.Nodes, sumOf(counts[:s.hops]))
		nodes := min(d.Nodes, sumOf(counts))
		c.seeds, c.reached = append(c.seeds, counts[0]), append(c.reached, reached)
		c.nodes, c.rows = append(c.nodes, c.nodes[t]+nodes), append(c.rows, c.rows[t]+min(d.Rows, nodes))
	}
	for i, r := range s.edges {
		expanded, edges := c.reached[r.target], sumOf(s.edgesPerHop(&g, i))
		if s.subgraph != sample.Directional {
			expanded, edges = c.nodes[r.target+1]-c.nodes[r.target], g.Rooms[i]
		}
		c.expanded = append(c.expanded, expanded)
		c.ptr, c.edges = append(c.ptr, c.ptr[i]+expanded+1), append(c.edges, c.edges[i]+edges)
	}
	return c
}

func sumOf(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}
