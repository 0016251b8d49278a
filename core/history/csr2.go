package history

import "freshgo/core/sample"

// CSR2 holds the in-edges of a batch's targets as one layer sees them (FreshGNN, 4.3): the sources of row i are
// Col[Start[i]:End[i]]. A row is pruned by End[i] = Start[i] and put back by Keep; neither moves an edge nor looks at
// another row. Start and Col belong to the sampler and are shared by all layers. Each layer has an End of its own.
//
// Start has one element more than there are rows, so that it still has the end of a pruned row. The paper prunes rows
// of a full matrix; here all rows are pruned at first, by one copy, and the computed rows are put back: the rows that
// nothing reaches any more, which are most, need not be found.
type CSR2 struct {
	Start, End []int64
	Col        []uint32
}

// newCSR2 returns the first rows of g, as many as end has elements, all of them pruned.
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
