package sample

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// TestChecksFindWrongBatches: a batch passes as it was drawn, and not with any one thing wrong.
func TestChecksFindWrongBatches(t *testing.T) {
	g := newTestGraph(300, explore.Seed(t, 3))
	for _, disjoint := range []bool{false, true} {
		w := newWorker(t, g.forms()["ram32"], plainConfig{Fanouts: []int64{4, 3}, Disjoint: disjoint}, false, 1)
		for name, spoil := range map[string]func(*Subgraph){
			"":                            func(*Subgraph) {},
			"is -1, beyond":               func(g *Subgraph) { g.Nodes[4] = -1 },
			"is 300, beyond":              func(g *Subgraph) { g.Nodes[4] = 300 },
			"is there twice":              func(g *Subgraph) { g.Nodes[len(g.Nodes)-1] = g.Nodes[0]; repeatTree(g) },
			"nodes, [":                    func(g *Subgraph) { g.Nodes = append(slices.Clone(g.Nodes), 7) },
			"counted":                     func(g *Subgraph) { g.EdgesPerHop[0]++ },
			"ends of lists and":           func(g *Subgraph) { g.Row = append(slices.Clone(g.Row), 0) },
			"at most 4":                   func(g *Subgraph) { g.Ptr[1] = 5 },
			"is from source":              func(g *Subgraph) { g.Row[0] = uint32(len(g.Nodes) - 1) },
			"is not from node":            func(g *Subgraph) { g.Nodes[3], g.Nodes[4] = g.Nodes[4], g.Nodes[3] },
			"is at ":                      func(g *Subgraph) { g.Pos[0] = g.Pos[g.Ptr[1]] },
			"of relation 0 is at 1000000": func(g *Subgraph) { g.Pos[0] = 1000000 },
		} {
			sub := drawSpoilable(t, w)
			sub.Ptr, sub.Pos, sub.Row = slices.Clone(sub.Ptr), slices.Clone(sub.Pos), slices.Clone(sub.Row)
			spoil(&sub)
			if name == "" {
				w.check(&sub)
				continue
			}
			func() {
				defer func() { require.Contains(t, recover(), name) }()
				w.check(&sub)
			}()
		}
	}
}

// drawSpoilable draws a batch that has what TestChecksFindWrongBatches spoils: two seeds have edges, the first hop
// finds several nodes, and the second finds more.
func drawSpoilable(t *testing.T, w *Worker) (sub Subgraph) {
	for seed := int64(0); seed < 290; seed++ {
		require.NoError(t, w.Sample(context.Background(), Key{}, []int64{seed, seed + 1, seed + 7}, &sub))
		perHop, ptr := sub.NodesPerHop, sub.Ptr
		if !(perHop[1] > 1 && perHop[2] > 0 && ptr[0] < ptr[1] && ptr[1] < ptr[2]) {
			continue
		}
		if sub.Nodes[3] != sub.Nodes[4] {
			return sub
		}
	}
	require.Fail(t, "no batch can be spoilt")
	return sub
}

// repeatTree puts the last node into the tree of the first.
func repeatTree(g *Subgraph) {
	if g.Tree != nil {
		g.Tree[len(g.Tree)-1] = g.Tree[0]
	}
}
