package loader

import "freshgo/core/sample"

// A batch's way through pruning: see core/prune.

// keep copies what a worker has drawn, so that the worker may draw the next batch while this one waits to be pruned.
func keep(to, from *sample.Subgraph) {
	to.Nodes, to.Ptr = append(to.Nodes[:0], from.Nodes...), append(to.Ptr[:0], from.Ptr...)
	to.Row, to.Pos = append(to.Row[:0], from.Row...), append(to.Pos[:0], from.Pos...)
	to.Weight, to.Tree = append(to.Weight[:0], from.Weight...), append(to.Tree[:0], from.Tree...)
	to.NodesPerHop, to.EdgesPerHop = from.NodesPerHop, from.EdgesPerHop
}

// estimate computes what each new embedding would have saved, for the update.
func (p *preparer) estimate() error { return p.cut.Estimate(p.loader.draw.Parts.RowCost()) }
