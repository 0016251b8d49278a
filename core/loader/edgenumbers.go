package loader

import (
	"context"
	"fmt"
	"time"

	"freshgo/core/graph"
	"freshgo/core/sample"
)

// numberEdges replaces positions in the arrays of neighbours by the user's edge numbers.
func (p *preparer) numberEdges() error {
	s := p.loader.draw.Parts.Schema
	for i := range s.Edges {
		if !p.drawn.Numbered(i) {
			continue
		}
		if err := p.replacePositions(&s.Relations[i].EdgeIDs, p.drawn.Positions(i)); err != nil {
			return s.OfRelation(i, fmt.Errorf("numbering edges: %w", err))
		}
	}
	return nil
}

// replacePositions replaces positions by the edge numbers of an array.
func (p *preparer) replacePositions(edgeIDs *graph.IDs, d sample.Drawn) error {
	if edgeIDs.OnDisk() {
		start := time.Now()
		defer p.loader.counters.Reading.Since(start)
		return edgeIDs.Gather(p.epoch.ctx, &p.scratch, d, d.Pos)
	}
	return p.loader.draw.Compute(p.epoch.ctx, func() {
		// In memory nothing can fail, and nothing waits.
		_ = edgeIDs.Gather(context.Background(), nil, d, d.Pos)
	})
}
