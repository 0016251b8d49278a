package history

import "freshgo/core/sample"

// CSR2 holds the in-edges of a batch's targets for one layer (FreshGNN, 4.3): the sources of row i are
// Col[Start[i]:End[i]]. End[i] = Start[i] prunes a row, and Keep restores it; neither moves an edge nor reads another
// row. Start and Col belong to the sampler and are shared by all layers. Each layer has its own End.
//
// Start has one element more than there are rows, so it keeps the end of a pruned row. The paper prunes rows of a full
// matrix; here one copy prunes all rows, and the computed rows are restored, so the rows that become unreachable, most
// of them, need not be found.
type CSR2 struct {
	Start, End []int64
	Col        []uint32
}

// newCSR2 returns the first len(end) rows of g, all pruned.
func newCSR2(g *sample.Subgraph, end []int64) CSR2 {
	copy(end, g.Ptr)
	return CSR2{Start: g.Ptr[:len(end)+1], End: end, Col: g.Row}
}

// Keep gives row i its edges.
func (c *CSR2) Keep(i int) { c.End[i] = c.Start[i+1] }

// Row returns the sources of row i, none where it is pruned.
func (c *CSR2) Row(i int) []uint32 { return c.Col[c.Start[i]:c.End[i]] }

// Len returns the number of edges of row i, 0 where it is pruned.
func (c *CSR2) Len(i int) int64 { return c.End[i] - c.Start[i] }
