package prune

import (
	"context"

	"freshgo/core/history"
)

// Where neighbour lists are on disk, the lists of nodes whose embeddings the history has need not be read. Of a node in
// the last hop but one only layer 1 reads its list, and no other hop's numbering depends on it; so a batch is sampled
// up to there ahead of its turn, then waits for that, and fetches the last and largest hop without the lists that will
// be pruned.
//
// What is pruned is the same as if all lists had been read, but for the size that the batch would have had, which
// counts no nodes that only such lists name. The normalization of GCN wants edges from nodes to themselves counted, so
// the loader spares no lists of a graph with one node type and one relation that has some: see history.Batch.Degrees.

// LastHop selects the lists of the last hop that a batch needs. It implements sample.LastHop.
type LastHop struct {
	pruner *Pruner
	index  int64 // of the batch
}

// LastHop returns the lists that the epoch's batch with an index needs, before Prune.
func (c *Cut) LastHop(index int64) *LastHop { return &LastHop{c.pruner, index} }

// Needed appends the targets that the history has no embeddings of. It waits for the batch's turn, which it stays, so
// that nothing that was looked up changes.
func (f *LastHop) Needed(ctx context.Context, relation int, targets []int64, places []int32) ([]int32, error) {
	h, i, reads := f.pruner, int64(0), false
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	if !h.turns.plain {
		if err := h.turns.awaitTurn(ctx, f.index); err != nil {
			return nil, err
		}
		i = h.turns.first + f.index
		reads = h.prunes(i) && !h.decided.probes(i)
	}
	first := h.config.Shape.First[h.config.Shape.Relations[relation].Target]
	for t, node := range targets {
		if !reads || h.decided.finds(i, 1, first+node) == history.Miss {
			places = append(places, int32(t))
		}
	}
	return places, nil
}
