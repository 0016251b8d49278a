package batch

import (
	"freshgo/core/draw"
	"freshgo/core/sample"
)

// TensorBytes returns the size of the tensors of a batch with these offsets and the given number of seeds, or links.
func TensorBytes(c *draw.TypeOffsets, p *draw.Parts, seeds int64) int64 {
	total := seeds*8 + p.Links.NumEnds(seeds)*8
	s := p.Schema
	for t := range s.NumTypes() {
		total += (c.Nodes[t+1] - c.Nodes[t]) * 8
		if s.Subgraph == sample.Directional {
			total += int64(s.Hops+1) * 8
		}
		if p.Disjoint {
			total += (c.Nodes[t+1] - c.Nodes[t]) * 8
		}
		if p.Timed && p.Links == nil {
			total += c.Seeds[t] * 8
		}
		if p.Held {
			total += (c.Nodes[t+1] - c.Nodes[t]) * 4
		}
	}
	if p.Timed && p.Links != nil {
		total += p.Links.NumTimes(seeds) * 8 * int64(len(p.TimesNames()))
	}
	for i, r := range s.Edges {
		edges := c.Edges[i+1] - c.Edges[i]
		total += edges*16 + (c.Expanded[i]+1)*8
		if s.Numbered(i) {
			total += edges * 8
		}
		if s.Subgraph == sample.Directional {
			total += int64(s.Hops) * 8
		}
		if p.Transposed {
			total += transposedBytes(c.Nodes[r.Source+1]-c.Nodes[r.Source], edges)
		}
		if p.Weighted {
			total += edges * 4
		}
	}
	for i := range p.Tensors {
		switch t := &p.Tensors[i]; {
		case t.ByEdge && !s.Numbered(t.Type):
		case t.ByEdge:
			total += (c.Edges[t.Type+1] - c.Edges[t.Type]) * t.Delivered()
		default:
			total += (c.Rows[t.Type+1] - c.Rows[t.Type]) * t.Delivered()
		}
	}
	return total
}
