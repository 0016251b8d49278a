package sizing

import "math"

// margin is the factor for measured batches, in eighths. Batches of one configuration differ by a few per cent; a batch
// that is larger still waits until it can have the room of the others and all memory that is left.
const margin = 10 // 1.25

// Demand is the most that one of the measured batches needed.
type Demand struct {
	Nodes    int64 // nodes
	Rows     int64 // rows of node tensors: of nodes that the consumer does not hold
	Edges    int64 // edges that the sampler makes room for
	HopEdges int64 // edges that are looked up at once

	NodesPerHop []int64 // as sample.Subgraph's: for each node type, for each hop and the seeds
	EdgesPerHop []int64 // for each edge type, for each hop
	Rooms       []int64 // Edges of each edge type
}

// Add makes d the larger of two demands in each place.
func (d *Demand) Add(other Demand) {
	d.Nodes, d.Rows = max(d.Nodes, other.Nodes), max(d.Rows, other.Rows)
	d.Edges, d.HopEdges = max(d.Edges, other.Edges), max(d.HopEdges, other.HopEdges)
	d.NodesPerHop = most(d.NodesPerHop, other.NodesPerHop)
	d.EdgesPerHop = most(d.EdgesPerHop, other.EdgesPerHop)
	d.Rooms = most(d.Rooms, other.Rooms)
}

// Multiplied returns d times by, with rooms for edges also times rooms, bounded by most in each place.
func (d *Demand) Multiplied(by, rooms float64, most *Demand) Demand {
	one := func(n, limit int64, by float64) int64 { return int64(min(math.Ceil(float64(n)*by), float64(limit))) }
	all := func(counts, limits []int64, by float64) []int64 {
		more := make([]int64, len(counts))
		for i, n := range counts {
			more[i] = one(n, limits[i], by)
		}
		return more
	}
	return Demand{
		Nodes: one(d.Nodes, most.Nodes, by), Rows: one(d.Rows, most.Rows, by),
		Edges: one(d.Edges, most.Edges, by*rooms), HopEdges: one(d.HopEdges, most.HopEdges, by),
		NodesPerHop: all(d.NodesPerHop, most.NodesPerHop, by), EdgesPerHop: all(d.EdgesPerHop, most.EdgesPerHop, by),
		Rooms: all(d.Rooms, most.Rooms, by*rooms),
	}
}

// most is the larger of two numbers in each place.
func most(a, b []int64) []int64 {
	more := make([]int64, max(len(a), len(b)))
	copy(more, a)
	for i, n := range b {
		more[i] = max(more[i], n)
	}
	return more
}

// Expected returns the demand that room is made for: d with a margin, and up to mostNodes nodes.
func (d *Demand) Expected(mostNodes int64) Demand {
	return Demand{
		Nodes:       min(withMargin(d.Nodes), mostNodes),
		Rows:        min(withMargin(d.Rows), mostNodes),
		Edges:       withMargin(d.Edges),
		HopEdges:    withMargin(d.HopEdges),
		NodesPerHop: allWithMargin(d.NodesPerHop),
		EdgesPerHop: allWithMargin(d.EdgesPerHop),
		Rooms:       allWithMargin(d.Rooms),
	}
}

// withMargin rounds up, so that even one has a margin.
func withMargin(n int64) int64 { return (n*margin + 7) / 8 }

func allWithMargin(counts []int64) []int64 {
	more := make([]int64, len(counts))
	for i, n := range counts {
		more[i] = withMargin(n)
	}
	return more
}
