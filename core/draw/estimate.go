package draw

import (
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// What batches may need that are too large to be sampled within the memory.

// mostCounted bounds the counts of a demand, so that sums of their bytes do not overflow. Batches with more edges are
// refused by the sampler.
const mostCounted = 1 << 40

// multiplied estimates the demand of a batch whose part, 1/by of its seeds, has the demand d. An induced batch has the
// edges between all of its nodes, whose number grows with their square.
func multiplied(m *Sampling, d sizing.Demand, by float64, most *sizing.Demand) sizing.Demand {
	rooms := 1.0
	if m.Options.Subgraph == sample.Induced {
		rooms = by
	}
	return d.Multiplied(by, rooms, most)
}

// MaxDemand returns the demand that no batch exceeds: each hop draws for all nodes that the hop before may have
// reached.
func MaxDemand(m *Sampling) sizing.Demand {
	types, o := m.Parts.Schema, &m.Options
	limit := int64(mostCounted / max(1, len(types.Edges)*types.Hops, types.NumTypes()*(types.Hops+1)))
	times := func(a, b int64) int64 {
		if a > 0 && b > limit/a {
			return limit
		}
		return a * b
	}
	seeds := min(o.BatchSize, m.Seeds.Count())
	ends := seeds
	if o.Links != nil {
		ends = o.Links.NumEnds(seeds)
	}
	trees := int64(1)
	if o.Trees() {
		trees = ends
	}
	d := sizing.Demand{
		NodesPerHop: make([]int64, types.NumTypes()*(types.Hops+1)), EdgesPerHop: make([]int64, len(types.Edges)*types.Hops),
		Rooms: make([]int64, len(types.Edges)),
	}
	found := mostSeeds(m, ends)
	for t, n := range found {
		d.NodesPerHop[t*(types.Hops+1)] = min(n, limit)
		d.Nodes += min(n, limit)
	}
	for hop := range types.Hops {
		next := make([]int64, types.NumTypes())
		for i, e := range types.Edges {
			n := times(found[e.Target], mostEach(m, i, hop))
			if hop > 0 && !o.Replace && !types.Walked { // a node is expanded once, seeds as often as they are given
				n = min(n, times(trees, types.Relations[i].NumEdges))
			}
			d.EdgesPerHop[i*types.Hops+hop] = n
			d.Rooms[i] += n
			d.HopEdges = max(d.HopEdges, n)
			next[e.Source] = min(next[e.Source]+n, times(trees, types.NumNodes(e.Source)), limit)
		}
		for t, n := range next {
			d.NodesPerHop[t*(types.Hops+1)+hop+1] = n
			d.Nodes += n
		}
		found = next
	}
	d.Rooms = mostRooms(m, d.Rooms)
	d.Edges = Sum(d.Rooms)
	d.Nodes = min(d.Nodes, m.MaxNodes())
	d.Rows = d.Nodes
	return d
}

// mostSeeds returns the most seeds of each type in a batch with the given number of ends.
func mostSeeds(m *Sampling, ends int64) []int64 {
	s := m.Parts.Schema
	seeds := make([]int64, s.NumTypes())
	for _, r := range s.Runs {
		seeds[r.Type] = min(ends, r.To-r.From)
	}
	if k := m.Options.Links; k != nil {
		r := &s.Relations[k.Relation]
		seeds[r.Source], seeds[r.Target] = ends, ends
	}
	return seeds
}

// mostEach returns the most edges that a hop draws for a node.
func mostEach(m *Sampling, edges, hop int) int64 {
	s := m.Parts.Schema
	fanout := m.Options.RelationFanouts[edges][hop]
	if fanout >= 0 || s.Walked {
		return max(fanout, 0)
	}
	if indptr := s.Relations[edges].Indptr; indptr != nil {
		return indptr.Longest()
	}
	return 0
}

// mostRooms returns the most edges of each relation in a batch, by the edges drawn.
func mostRooms(m *Sampling, drawn []int64) []int64 {
	s := m.Parts.Schema
	rooms := make([]int64, len(drawn))
	for i, n := range drawn {
		switch rooms[i] = n; m.Options.Subgraph {
		case sample.Induced:
			rooms[i] += s.Relations[i].NumEdges
		case sample.Bidirectional:
			if back := s.reverse[i]; back >= 0 {
				rooms[i] += drawn[back]
			}
		}
	}
	return rooms
}
