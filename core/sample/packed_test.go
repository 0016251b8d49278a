package sample

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/packed"
)

// packed is the graph with its neighbours packed.
func (g *testGraph) packed() plainGraph {
	n, width := int64(len(g.wide)), packed.Width(g.nodes())
	all := packed.Of(make([]byte, packed.Bytes(n, width)), n, width)
	p := all.Packer(0)
	packed.Put(&p, g.wide)
	p.End()
	return plainGraph{NumNodes: g.nodes(), Indptr: g.indptr, Packed: all}
}

// TestPackedNeighbors holds that batches of packed neighbours are the reference's.
func TestPackedNeighbors(t *testing.T) {
	g := newTestGraph(700, 4)
	for _, cfg := range []plainConfig{
		{Fanouts: []int64{5, 3, 2}}, {Fanouts: []int64{All, 2}}, {Fanouts: []int64{300, 10}},
		{Fanouts: []int64{7, 4}, Replace: true},
	} {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprint(cfg.Fanouts, cfg.Replace, threads), func(t *testing.T) {
				w := newWorker(t, g.packed(), cfg, threads == 1, threads)
				for batch := range uint64(5) {
					seeds, key := g.seeds(40, batch), Key{Seed: 1, Epoch: 2, Batch: batch}
					var got Subgraph
					require.NoError(t, w.Sample(context.Background(), key, seeds, &got))
					requireEqual(t, reference(g.indptr, g.wide, cfg, key, seeds), got)
				}
			})
		}
	}
}

// TestPackedIsForKindsThatReadIt: the others read arrays, which would be empty.
func TestPackedIsForKindsThatReadIt(t *testing.T) {
	g := newTestGraph(100, 1)
	for name, cfg := range map[string]plainConfig{
		"labor":   {Fanouts: []int64{3}, Labor: &Labor{}},
		"walks":   {Fanouts: []int64{3}, Walks: []Walk{{Walks: 1, Length: 1}}},
		"trees":   {Fanouts: []int64{3}, Disjoint: true},
		"induced": {Fanouts: []int64{3}, Subgraph: Induced},
		"both":    {Fanouts: []int64{3}, Subgraph: Bidirectional},
	} {
		_, err := newPlain(g.packed(), cfg)
		require.ErrorIs(t, err, ErrGraph, name)
	}
	short := g.packed()
	short.Indptr = append([]int64{}, short.Indptr...)
	short.Indptr[len(short.Indptr)-1]++
	_, err := newPlain(short, plainConfig{Fanouts: []int64{3}})
	require.ErrorIs(t, err, ErrGraph)
}
