package loader

import (
	"context"
	"errors"

	"freshgo/core/history"
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

// lastHop says which lists of the last hop a batch needs: it is sample.LastHop.
type lastHop struct {
	past  *past
	index int64 // of the batch
}

// findSelfLoops looks for an edge from a node to itself, where lists could be left
// out.
func (h *past) findSelfLoops(ctx context.Context) error {
	l := h.loader
	r := &l.parts.types.relations[0]
	if !l.parts.types.unnamed() || !r.Neighbors.OnDisk() || l.split.Cache == "belady" || l.options.WeightAttr != "" {
		return nil
	}
	found, target := errors.New("found"), int64(0)
	edges := r.Edges(l.budget)
	err := edges.Scan(ctx, func(first int64, sources []int64) error {
		for i, source := range sources {
			for r.Indptr[target+1] <= first+int64(i) {
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

// Needed appends the targets that the history has no embeddings of. It waits for the batch's turn, which it stays, so that
// nothing that was looked up changes.
func (f *lastHop) Needed(ctx context.Context, _ int, targets []int64, places []int32) ([]int32, error) {
	h := f.past
	h.mu.Lock()
	defer h.mu.Unlock()
	reads := false
	if !h.plain {
		if err := h.awaitTurn(ctx, f.index); err != nil {
			return nil, err
		}
		reads = h.reads(h.first + f.index)
	}
	for t, node := range targets {
		if reads && h.finds(h.first+f.index, 1, node) != history.Miss {
			continue
		}
		places = append(places, int32(t))
	}
	return places, nil
}
