package sample

import (
	"context"
	"fmt"
)

// Other edges than those that were drawn, in graphs with types: what subgraph.go and induced.go do, for every relation.
//
//   - Induced: all edges of each relation from a node of the batch to another.
//   - Bidirectional: beside what was drawn of a relation, an edge against each that was drawn of its reverse. Where that is the relation
//     itself, edges have positions as without types; where it is another, those that go against its edges have none, for they need not be edges of
//     the relation at all.

// checkReverse checks the subgraph type and what goes with it.
func (c *HeteroConfig) checkReverse(g *HeteroGraph) error {
	if c.Subgraph != Bidirectional {
		if c.Reverse != nil {
			return fmt.Errorf("sample: reverse relations, want none of a subgraph that is not bidirectional: %w", ErrConfig)
		}
		return nil
	}
	if len(c.Reverse) != len(g.Relations) {
		return fmt.Errorf("sample: reverses of %d relations, want %d as there are: %w", len(c.Reverse), len(g.Relations), ErrConfig)
	}
	for i, j := range c.Reverse {
		if j < -1 || j >= len(g.Relations) || j >= 0 && (g.Relations[j].Source != g.Relations[i].Target || g.Relations[j].Target != g.Relations[i].Source) {
			return fmt.Errorf("sample: relation %d as the reverse of relation %d, want one from its target's type to its source's, or -1: %w", j, i, ErrConfig)
		}
	}
	return nil
}

// complete gives all relations the edges of the batch's type.
func (w *HeteroWorker) complete(ctx context.Context) error {
	switch w.sampler.subgraph {
	case Bidirectional:
		return w.addReverse(ctx)
	case Induced:
		return w.induce(ctx)
	}
	return nil
}

// drawn is what was drawn of a relation.
func (w *HeteroWorker) drawn(i int) *Subgraph {
	r := &w.relations[i]
	expanded := w.types[r.target].first // what the last hop reached is not
	total := r.ptr.data[expanded]
	sub := &Subgraph{Ptr: r.ptr.data[:expanded+1], Row: r.row.data[:total], Room: r.room}
	if r.HasPositions() {
		sub.Pos = r.pos.data[:total]
	}
	if r.HasWeights() {
		sub.Weight = r.weight.data[:total]
	}
	return sub
}

// addReverse reads the edges of all relations before it changes those of any.
func (w *HeteroWorker) addReverse(ctx context.Context) error {
	nothing := &Subgraph{Ptr: []int64{0}}
	for i := range w.relations {
		r := &w.relations[i]
		r.edges = w.drawn(i)
		r.threads = r.scratch
		against := nothing // what was drawn is sorted all the same
		if j := w.sampler.reverse[i]; j >= 0 {
			against = w.drawn(j)
		}
		b := batch{Worker: r.Worker, ctx: ctx}
		if err := b.collect(r.edges, against, w.types[r.target].n); err != nil {
			return fmt.Errorf("sample: relation %d: %w", i, err)
		}
	}
	for i := range w.relations {
		r := &w.relations[i]
		b := batch{Worker: r.Worker, ctx: ctx}
		if err := b.merge(r.edges, w.types[r.target].n, w.sampler.reverse[i] == i); err != nil {
			return fmt.Errorf("sample: relation %d: %w", i, err)
		}
		r.room = r.edges.Room
	}
	return nil
}

// induce looks up the sources of all relations, once nothing is numbered any more.
func (w *HeteroWorker) induce(ctx context.Context) error {
	for i := range w.relations {
		r := &w.relations[i]
		source, target := w.types[r.source], w.types[r.target]
		r.Worker.ids = source.ids
		b := batch{Worker: r.Worker, ctx: ctx, roomFor: r.room}
		r.edges = new(Subgraph)
		err := b.induce(r.edges, target.numbered(), source.numbered())
		r.Worker.ids = idMap{}
		if err != nil {
			return fmt.Errorf("sample: relation %d: %w", i, err)
		}
		r.room = r.edges.Room
	}
	return nil
}
