package loader

import (
	"context"
	"errors"

	"freshgo/core/history"
	"freshgo/core/sample"
)

// Where the topology is on disk, the lists of nodes whose embeddings the history
// has need not be read. Of a node in the last hop but one only layer 1 reads its
// list, and no other hop's numbering depends on it; so a batch is sampled up to
// there ahead of its turn, then waits for that, and fetches the last and largest
// hop without the lists that will be pruned. In their place stands a neighbour that
// the batch has already, which nobody looks at: see history.Pruner.
//
// What is pruned is the same as if all had been read, but for what the batch would
// have had, which counts no nodes that only such lists name. A graph with edges
// from nodes to themselves is read whole, because GCN wants them counted.

// lastHop is what a batch being sampled tells the adjacency, in its context.
type lastHop struct {
	p      *preparer
	index  int64 // of the batch
	hops   int   // that are left
	drawn  sample.Drawn
	at     []int32 // by target of drawn: which of all it is
	source []int64
}

type lastHopKey struct{}

// findSelfLoops looks for an edge from a node to itself, where lists could be left
// out.
func (h *past) findSelfLoops(ctx context.Context, neighbors *idArray) error {
	l := h.loader
	if !l.parts.types.unnamed() || neighbors == nil || neighbors.disk == nil || l.split.Cache == "belady" || l.options.WeightAttr != "" {
		return nil
	}
	found, target := errors.New("found"), int64(0)
	edges := &adjacency{indptr: l.indptr, ids: neighbors, budget: l.budget}
	err := edges.Scan(ctx, func(first int64, sources []int64) error {
		for i, source := range sources {
			for l.indptr[target+1] <= first+int64(i) {
				target++
			}
			if source == target {
				return found
			}
		}
		return nil
	})
	h.skipLists = err == nil
	if errors.Is(err, found) {
		return nil
	}
	return err
}

// fetch is diskAdjacency.Fetch for one hop of such a batch.
func (f *lastHop) fetch(ctx context.Context, a *diskAdjacency, d sample.Drawn, out []int64) error {
	f.hops--
	if f.hops > 0 {
		return a.fetch(ctx, d, out)
	}
	h := f.p.loader.past
	h.mu.Lock()
	if h.plain {
		h.mu.Unlock()
		return a.fetch(ctx, d, out)
	}
	err := h.awaitTurn(ctx, f.index)
	if err == nil {
		f.choose(h, h.first+f.index, d)
	}
	h.mu.Unlock() // it stays this batch's turn, so that nothing that was looked up changes
	if err != nil {
		return err
	}
	f.source = grown(f.source, len(f.drawn.Pos))
	if err := a.fetch(ctx, f.drawn, f.source); err != nil {
		return err
	}
	known := f.p.request.Seeds[0]
	for i := range out {
		out[i] = known
	}
	for i, at := range f.at {
		copy(out[d.Ptr[at]-d.Ptr[0]:], f.source[f.drawn.Ptr[i]:f.drawn.Ptr[i+1]])
	}
	return nil
}

// choose lists the targets whose edges are needed. The caller holds h.mu.
func (f *lastHop) choose(h *past, i int64, d sample.Drawn) {
	f.drawn = sample.Drawn{Targets: f.drawn.Targets[:0], Ptr: append(f.drawn.Ptr[:0], 0), Pos: f.drawn.Pos[:0]}
	f.at = f.at[:0]
	reads := h.reads(i)
	for t, node := range d.Targets {
		if reads && h.finds(i, 1, node) != history.Miss {
			continue
		}
		f.at = append(f.at, int32(t))
		f.drawn.Targets = append(f.drawn.Targets, node)
		f.drawn.Pos = append(f.drawn.Pos, d.Pos[d.Ptr[t]-d.Ptr[0]:d.Ptr[t+1]-d.Ptr[0]]...)
		f.drawn.Ptr = append(f.drawn.Ptr, int64(len(f.drawn.Pos)))
	}
}
