package sizing

import "freshgo/core/cache"

const (
	// fewLists is the share of the topology's bytes, as a divisor, below which lists are not worth reading all
	// neighbours at opening. Arbitrary; a twentieth of the bytes served 15 to 29 % of the edges drawn.
	fewLists = 256

	// unlimitedTogether bounds the memory for shared reads of a loader without a limit, whose batches are not measured, as
	// unlimitedTraces does for traces: it is for 600 batches of 300,000 neighbours.
	unlimitedTogether = 1 << 30

	// leastTogether is the least memory for shared reads. With less, of epochs of ten batches, planned windows were
	// predicted to move 53 MB an epoch and moved 66, where a fixed cache moved 53.
	leastTogether = 4 << 20

	// widestEdge is the most that an in-edge takes: a neighbour and its edge's number.
	widestEdge = 8 + 8
)

// topology returns the memory of all neighbours and edge numbers held whole.
func (g *Graph) topology() int64 { return g.heldNeighbors() + packedOr(g.PackedEdgeIDs, g.EdgeIDs) }

// heldNeighbors returns the memory of all neighbours.
func (g *Graph) heldNeighbors() int64 {
	if g.Packs {
		return packedOr(g.PackedNeighbors, g.Neighbors)
	}
	return g.Neighbors
}

// lists returns the memory of all lists, cached one by one.
func (g *Graph) lists() int64 {
	return packedOr(g.PackedNeighbors, g.Neighbors) + packedOr(g.PackedEdgeIDs, g.EdgeIDs)
}

// packedOr returns the packed size, if it is known.
func packedOr(packed, plain int64) int64 {
	if packed > 0 {
		return packed
	}
	return plain
}

// holdTopology decides what of the topology stays in memory, and how much memory is for shared reads of lists on disk.
// It returns what is left of rest, negative if that is too little for the candidate's groups. Whole arrays come first:
// sampling then waits for no disk. Where neighbours and edge numbers do not fit together, lists of both are cached.
//
// Memory given as a whole is divided between lists and rows by halves. Measured on a generated graph and a web graph,
// with 0.1 to 0.8 of the topology's bytes to divide, rows of 32 to 2048 bytes in a static cache and 11 us a request and
// 1 us a KiB: what a further megabyte of either saves falls fast and alike. Halves saved at least 0.9 of what the best
// of halves, lists alone and rows alone did in the cases summed up; neighbours first, as in Ginex, down to 0.4 of it.
// Everything is held from three quarters on: that saves up to a tenth less, but no sampling waits for the disk.
//
// Times of nodes come before lists: a list that is read costs a page or few, the times of its sources one each.
func (z *division) holdTopology(s *Split, c *candidate, rest int64) int64 {
	room, lists := z.ask.NeighborCache, z.ask.NeighborCache
	pot := &room // for times of nodes
	if lists == Auto {
		pot = &rest
	}
	if z.graph.TimesOfNodes && !c.unweighted && z.graph.Weights+z.graph.UserWeights <= *pot {
		s.Weights = true
		*pot -= z.graph.Weights
		lists -= z.graph.Weights // by name
	}
	if z.ask.NeighborCache == Auto {
		spare := rest - z.wanted()
		room, lists = max(rest/4*3, spare), max(rest/2, spare)
		switch c.holding {
		case holdWhole, holdNeighbors:
			room = max(0, rest)
		case holdSome:
			room = min(room, lists)
		case holdNone:
			room, lists = 0, 0
		}
		if lists < z.graph.lists()/fewLists {
			lists = 0
		}
	}
	lists = min(lists, z.graph.lists()+z.graph.ListTables) // all of them: packed, they take less than whole arrays may
	var held int64
	switch {
	case z.graph.topology() <= room && c.holding != holdNeighbors:
		s.Neighbors, s.EdgeIDs = true, true
		held = z.graph.topology()
	case c.holding != holdNeighbors && z.canChoose(s) && lists >= z.graph.ListTables+widestEdge:
		s.NeighborLists = lists
		held = lists
		rest = max(0, rest-int64(s.Workers)*z.costs.FetchWorker-inFlight(s.Working)*z.costs.FetchBatch)
	case z.graph.heldNeighbors() <= room:
		s.Neighbors = true
		held = z.graph.heldNeighbors()
	}
	switch more := room - held; {
	case !s.Neighbors:
	case s.Weights && !c.byNode && z.graph.TimesInOrder <= more: // of nodes, which are freed then
		s.TimesInOrder = true
		held += z.graph.TimesInOrder - z.graph.Weights
	case s.Weights && z.graph.LongLists <= more:
		s.LongLists = true
		held += z.graph.LongLists
	case z.graph.Weights > 0 && !z.graph.TimesOfNodes && !c.unweighted && z.graph.Weights+z.graph.UserWeights <= more:
		s.Weights = true
		held += z.graph.Weights
	}
	if z.ask.NeighborCache == Auto {
		rest = max(0, rest-held)
	} else {
		rest += room - held // what a size by name leaves over
	}
	switch {
	case s.Neighbors || s.Cache != "belady":
	case z.ask.Memory == 0: // batches were not measured
		s.Together = unlimitedTogether
	case c.group > 1:
		s.Together = z.costs.togetherBytes(c.group, z.all.missed(s.NeighborLists, z.graph.lists()))
		if s.Together < leastTogether {
			s.Together = 0
		}
		rest -= s.Together
	}
	return rest
}

// canChoose reports whether the lists to cache can be chosen: that takes for a while what is free as long as nothing
// runs.
func (z *division) canChoose(s *Split) bool {
	choosing := z.graph.ListTables + z.graph.Choosing
	fits := z.ask.Memory == 0 || z.graph.Fixed+z.graph.Checks+z.graph.engine(s.Depth)+choosing <= z.ask.Memory
	return fits && z.graph.OnDisk && z.graph.Lists > 0 && z.graph.Nodes <= cache.MaxRows
}

// wanted returns the memory of all rows, without memory that is reserved by name.
func (z *division) wanted() (total int64) {
	if !z.graph.OnDisk || z.ask.Cache == "none" || z.ask.FeatureCache != Auto {
		return 0
	}
	for i := range z.graph.Tensors {
		total += z.graph.Tensors[i].bytes()
	}
	return total
}

// timesOrWeights is the memory of what edges are drawn by.
func (g *Graph) timesOrWeights(s *Split) (total int64) {
	switch {
	case s.TimesInOrder:
		return g.TimesInOrder
	case s.LongLists:
		total = g.LongLists
	}
	if s.Weights {
		total += g.Weights
	}
	return total
}
