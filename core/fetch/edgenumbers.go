package fetch

import (
	"context"
	"fmt"
	"time"

	"freshgo/core/graph"
	"freshgo/core/sample"
)

// numberEdges replaces positions in the arrays of neighbours by the user's edge numbers.
func (f *Filler) numberEdges() error {
	s := f.Sampling.Parts.Schema
	for i := range s.Edges {
		if !f.Drawn.Numbered(i) {
			continue
		}
		if err := f.replacePositions(&s.Relations[i].EdgeIDs, f.Drawn.Positions(i)); err != nil {
			return s.OfRelation(i, fmt.Errorf("numbering edges: %w", err))
		}
	}
	return nil
}

// replacePositions replaces positions by the edge numbers of an array.
func (f *Filler) replacePositions(edgeIDs *graph.IDs, d sample.Drawn) error {
	if edgeIDs.OnDisk() {
		start := time.Now()
		defer f.Counters.Reading.Since(start)
		return edgeIDs.Gather(f.Turns.Ctx, &f.Scratch, d, d.Pos)
	}
	return f.Sampling.Compute(f.Turns.Ctx, func() {
		// In memory nothing can fail, and nothing waits.
		_ = edgeIDs.Gather(context.Background(), nil, d, d.Pos)
	})
}
