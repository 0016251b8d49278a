package sizing

import "freshgo/core/plan"

// orderShare is the share of the memory, as a divisor, in which an online cache finds the order of a block, where
// Divide chooses the number of batches. Arbitrary. For Match, batches of 500,000 rows and 10^8 nodes, 1 GiB has blocks
// of 6 batches, and 64 GiB has blocks of all reorderBatches, which take 1.1 GB.
const orderShare = 8

// reserveOrder reserves the memory in which an online cache finds the order of a block of batches: for their rows, and
// for simulations of a cache that may hold all of them.
func reserveOrder(z *division, s *Split) {
	ask := &z.ask
	bytes := func(n int64) int64 {
		rows := n * max(1, z.costs.Nodes)
		c := plan.Simulation{Policy: ask.Cache, NumRows: z.graph.Nodes, Capacity: z.graph.Nodes}
		return 4*rows + plan.ReorderBytes(n, rows, &c)
	}
	if s.Reorder = ask.Reorder; s.Reorder == Auto {
		s.Reorder = reorderBatches
		room := min(ask.Memory/orderShare, ask.Memory-unreserved(z))
		for ask.Memory > 0 && s.Reorder > 2 && bytes(s.Reorder) > room {
			s.Reorder--
		}
	}
	if s.Reorder > 0 {
		s.Traces = bytes(min(s.Reorder, ask.EpochBatches))
		s.reserved = s.Traces
	}
}
