package draw

import (
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Where the lists of each type and relation lie in a flat batch, and what it takes.

// TypeOffsets holds the offsets of the lists of each type and relation in a flat batch.
type TypeOffsets struct {
	Nodes    []int64 // of each type, its first node; and the end
	Seeds    []int64 // of each type
	reached  []int64 // of each type, nodes found before the last hop
	Expanded []int64 // of each relation, targets; its part of Ptr has one more
	Ptr      []int64 // of each relation, its first place in Ptr; and the end
	Edges    []int64 // of each relation, its first edge; and the end
	Rows     []int64 // of each type, its first row of the node tensors; and the end: nodes, unless some have no row
}

// Cut sets c to the offsets of a batch, in the memory that c has.
func (c *TypeOffsets) Cut(s *Schema, g *sample.Subgraph) {
	c.Nodes, c.Ptr, c.Edges = append(c.Nodes[:0], 0), append(c.Ptr[:0], 0), append(c.Edges[:0], 0)
	c.Seeds, c.reached, c.Expanded = c.Seeds[:0], c.reached[:0], c.Expanded[:0]
	for t := range s.NumTypes() {
		counts := s.NodesPerHop(g, t)
		reached := Sum(counts[:s.Hops])
		c.Seeds, c.reached = append(c.Seeds, counts[0]), append(c.reached, reached)
		c.Nodes = append(c.Nodes, c.Nodes[t]+reached+counts[s.Hops])
	}
	c.Rows = c.Nodes
	for i, r := range s.Edges {
		expanded, n := c.reached[r.target], Sum(s.EdgesPerHop(g, i))
		if s.Subgraph != sample.Directional {
			expanded = c.Nodes[r.target+1] - c.Nodes[r.target]
			n = g.Ptr[c.Ptr[i]+expanded]
		}
		c.Expanded = append(c.Expanded, expanded)
		c.Ptr, c.Edges = append(c.Ptr, c.Ptr[i]+expanded+1), append(c.Edges, c.Edges[i]+n)
	}
}

// NodesPerHop is the nodes of a type that each hop found, the seeds first.
func (s *Schema) NodesPerHop(g *sample.Subgraph, typ int) []int64 {
	return g.NodesPerHop[typ*(s.Hops+1) : (typ+1)*(s.Hops+1)]
}

// EdgesPerHop is the edges of a relation that each hop drew.
func (s *Schema) EdgesPerHop(g *sample.Subgraph, relation int) []int64 {
	return g.EdgesPerHop[relation*s.Hops : (relation+1)*s.Hops]
}

// NodesOfTypes returns the number of nodes of each type.
func (c *TypeOffsets) NodesOfTypes() (counts []int64) {
	for t := range c.Nodes[1:] {
		counts = append(counts, c.Nodes[t+1]-c.Nodes[t])
	}
	return counts
}

// Demanded returns the offsets of a batch that needs no less of any type and relation than those measured, and in all
// no more than the demand says.
func (s *Schema) Demanded(d *sizing.Demand) *TypeOffsets {
	c := &TypeOffsets{Nodes: []int64{0}, Rows: []int64{0}, Ptr: []int64{0}, Edges: []int64{0}}
	g := sample.Subgraph{NodesPerHop: d.NodesPerHop, EdgesPerHop: d.EdgesPerHop, Rooms: d.Rooms}
	if len(g.NodesPerHop) == 0 { // nothing was measured
		g.NodesPerHop, g.EdgesPerHop = make([]int64, s.NumTypes()*(s.Hops+1)), make([]int64, len(s.Edges)*s.Hops)
		g.Rooms = make([]int64, len(s.Edges))
	}
	for t := range s.NumTypes() {
		counts := s.NodesPerHop(&g, t)
		reached := min(d.Nodes, Sum(counts[:s.Hops]))
		nodes := min(d.Nodes, Sum(counts))
		c.Seeds, c.reached = append(c.Seeds, counts[0]), append(c.reached, reached)
		c.Nodes, c.Rows = append(c.Nodes, c.Nodes[t]+nodes), append(c.Rows, c.Rows[t]+min(d.Rows, nodes))
	}
	for i, r := range s.Edges {
		expanded, edges := c.reached[r.target], Sum(s.EdgesPerHop(&g, i))
		if s.Subgraph != sample.Directional {
			expanded, edges = c.Nodes[r.target+1]-c.Nodes[r.target], g.Rooms[i]
		}
		c.Expanded = append(c.Expanded, expanded)
		c.Ptr, c.Edges = append(c.Ptr, c.Ptr[i]+expanded+1), append(c.Edges, c.Edges[i]+edges)
	}
	return c
}

func Sum(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}
