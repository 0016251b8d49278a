package loader

import (
	"freshgo/core/links"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// What batches may need that are too large to be sampled within the memory.

// mostCounted bounds the counts of a demand, so that sums of their bytes do not overflow. Batches with more edges are
// refused by the sampler.
const mostCounted = 1 << 40

// multiplied estimates the demand of a batch whose part, 1/by of its seeds, has the demand d. An induced batch has the
// edges between all of its nodes, whose number grows with their square.
func (m *sampling) multiplied(d sizing.Demand, by float64, most *sizing.Demand) sizing.Demand {
	rooms := 1.0
	if m.options.Subgraph == sample.Induced {
		rooms = by
	}
	return d.Multiplied(by, rooms, most)
}

// mostDemand returns the demand that no batch exceeds: each hop draws for all nodes that the hop before may have
// reached.
func (m *sampling) mostDemand() sizing.Demand {
	types, o := m.parts.types, &m.options
	limit := int64(mostCounted / max(1, len(types.edges)*types.hops, types.types()*(types.hops+1)))
	times := func(a, b int64) int64 {
		if a > 0 && b > limit/a {
			return limit
		}
		return a * b
	}
	seeds := min(o.BatchSize, m.seeds.count())
	ends := seeds
	if o.Links != nil {
		ends = o.Links.NumEnds(seeds)
	}
	trees := int64(1)
	if o.disjoint() {
		trees = ends
	}
	d := sizing.Demand{
		NodesPerHop: make([]int64, types.types()*(types.hops+1)), EdgesPerHop: make([]int64, len(types.edges)*types.hops),
		Rooms: make([]int64, len(types.edges)),
	}
	found := types.mostSeeds(ends, o.Links)
	for t, n := range found {
		d.NodesPerHop[t*(types.hops+1)] = min(n, limit)
		d.Nodes += min(n, limit)
	}
	for hop := range types.hops {
		next := make([]int64, types.types())
		for i, e := range types.edges {
			n := times(found[e.target], types.mostEach(o, i, hop))
			if hop > 0 && !o.Replace && !types.walked { // a node is expanded once, seeds as often as they are given
				n = min(n, times(trees, types.relations[i].numEdges))
			}
			d.EdgesPerHop[i*types.hops+hop] = n
			d.Rooms[i] += n
			d.HopEdges = max(d.HopEdges, n)
			next[e.source] = min(next[e.source]+n, times(trees, types.count(e.source)), limit)
		}
		for t, n := range next {
			d.NodesPerHop[t*(types.hops+1)+hop+1] = n
			d.Nodes += n
		}
		found = next
	}
	d.Rooms = types.mostRooms(o, d.Rooms)
	d.Edges = sumOf(d.Rooms)
	d.Nodes = min(d.Nodes, m.mostNodes())
	d.Rows = d.Nodes
	return d
}

// roomy reports whether there is memory for any batches, worked at as the options ask.
func (m *sampling) roomy(r *sizing.Request, g *sizing.Graph) bool {
	of, err := m.samplerOnDisk()
	if err != nil {
		return false // which opening will report
	}
	d := m.mostDemand()
	m.options.complete(&d)
	split, err := sizing.Divide(*r, *g, m.costs(&d, of, g))
	return err == nil && split.AsAsked(r)
}

// mostSeeds returns the most seeds of each type in a batch with the given number of ends.
func (s *schema) mostSeeds(ends int64, of *links.Options) []int64 {
	seeds := make([]int64, s.types())
	for _, r := range s.runs {
		seeds[r.typ] = min(ends, r.to-r.from)
	}
	if of != nil {
		r := &s.relations[of.Relation]
		seeds[r.source], seeds[r.target] = ends, ends
	}
	return seeds
}

// mostEach returns the most edges that a hop draws for a node.
func (s *schema) mostEach(o *Options, edges, hop int) int64 {
	k := o.RelationFanouts[edges][hop]
	if k >= 0 || s.walked {
		return max(k, 0)
	}
	widest, ptr := int64(0), s.relations[edges].Indptr
	for v := range max(0, len(ptr)-1) {
		widest = max(widest, ptr[v+1]-ptr[v])
	}
	return widest
}

// mostRooms returns the most edges of each relation in a batch, by the edges drawn.
func (s *schema) mostRooms(o *Options, drawn []int64) []int64 {
	rooms := make([]int64, len(drawn))
	for i, n := range drawn {
		switch rooms[i] = n; o.Subgraph {
		case sample.Induced:
			rooms[i] += s.relations[i].numEdges
		case sample.Bidirectional:
			if back := s.reverse[i]; back >= 0 {
				rooms[i] += drawn[back]
			}
		}
	}
	return rooms
}
