package sizing

// How loaders work that only read the graph, before or without a division of the memory. They take part in no batches.

// Reading returns the division for reading the graph from end to end.
func Reading() Split {
	return Split{Working: Working{Workers: 1, Prefetch: 1, Depth: minDepth}, Slot: MinSlot}
}

// Measuring returns the division for sampling batches to learn their size: with the neighbours in memory where they
// take up to three quarters of what is not taken already, since a batch costs thousands of reads. Times of nodes come
// before them.
func Measuring(r *Request, g *Graph) Split {
	s := Reading()
	if fullDepth*MinSlot <= r.Memory/modest {
		s.Depth, s.Workers = fullDepth, max(1, r.Workers)
	}
	room := (r.Memory - g.Fixed) / 4 * 3
	if g.TimesOfNodes && g.Weights+g.UserWeights <= room {
		s.Weights = true
		room -= g.Weights
	}
	s.Neighbors = g.heldNeighbors() <= room
	return s
}

// Scoring returns the division for scoring nodes without batches: with neighbours and weights in memory where they take
// less than half of it.
func Scoring(r *Request, g *Graph) Split {
	s := Split{Working: generous(r), Slot: MinSlot}
	s.Stamp = int64(s.Workers)*g.Stamp <= r.Memory/modest
	s.Neighbors = r.Memory == 0 || g.heldNeighbors() <= r.Memory/2
	s.Weights = r.Memory == 0 || g.heldNeighbors()+g.Weights+g.UserWeights <= r.Memory/2
	s.TimesInOrder = g.TimesOfNodes && s.Weights && s.Neighbors &&
		(r.Memory == 0 || g.heldNeighbors()+g.Weights+g.TimesInOrder <= r.Memory/2)
	return s
}
