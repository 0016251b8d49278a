package sample

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// reverses are those of citations: itself, one another, none.
var reverses = []int{0, 2, 1, 4, 3, -1, -1, 7}

func heteroSubgraphConfigs() map[string]Config {
	draws := fanouts([]int64{5, 3}, map[int][]int64{2: {0, 0}, 4: {-1, 2}})
	return map[string]Config{
		"bidirectional":          {Fanouts: draws, Subgraph: Bidirectional, Reverse: reverses},
		"bidirectional, replace": {Fanouts: draws, Subgraph: Bidirectional, Reverse: reverses, Replace: true},
		"one way":                {Fanouts: draws, Subgraph: Bidirectional, Reverse: []int{0, 2, -1, -1, 3, -1, -1, -1}},
		"induced":                {Fanouts: draws, Subgraph: Induced},
		"induced, replace":       {Fanouts: draws, Subgraph: Induced, Replace: true},
	}
}

func TestHeteroSubgraphsEqualReference(t *testing.T) {
	g := citations(explore.Seed(t, 7))
	batches, _ := heteroSeeds()
	for name, cfg := range heteroSubgraphConfigs() {
		var wants []cutBatch
		for i, seeds := range batches {
			wants = append(wants, g.complete(cfg, g.reference(cfg, Key{Batch: uint64(i)}, seeds, nil, nil)))
		}
		for form := range 3 {
			for _, threads := range []int{1, 2, 8} {
				t.Run(fmt.Sprintf("%s/form=%d/threads=%d", name, form, threads), func(t *testing.T) {
					w := newTypesWorker(t, g.form(form), cfg, threads == 2, threads)
					for i, seeds := range batches {
						var got cutBatch
						require.NoError(t, w.Sample(context.Background(), Key{Batch: uint64(i)}, seeds, &got))
						requireCutEqual(t, wants[i], got)
					}
				})
			}
		}
	}
}

// Trees are made bidirectional without joining them.
func TestBidirectionalTreesOfTypes(t *testing.T) {
	g := citations(explore.Seed(t, 7))
	batches, _ := heteroSeeds()
	cfg := Config{Fanouts: fanouts([]int64{4, 2}, nil), Subgraph: Bidirectional, Reverse: reverses, Disjoint: true}
	w := newTypesWorker(t, g.form(1), cfg, true, 2)
	for i, seeds := range batches {
		key := Key{Batch: uint64(i)}
		var got cutBatch
		require.NoError(t, w.Sample(context.Background(), key, seeds, &got))
		requireCutEqual(t, g.complete(cfg, g.reference(cfg, key, seeds, nil, nil)), got)
		for i, r := range g.relations {
			edges := got.Relations[i]
			for target := range len(edges.Ptr) - 1 {
				for _, source := range edges.Row[edges.Ptr[target]:edges.Ptr[target+1]] {
					require.Equal(t, got.Trees[r.target][target], got.Trees[r.source][source])
				}
			}
		}
	}
}

func TestHeteroSubgraphsStayWithinWorkerBytes(t *testing.T) {
	g := citations(7)
	seeds := [][]int64{{1, 97, 5, 8, 9, 10, 11}, {97}, {3}, nil, {2}}
	for name, cfg := range heteroSubgraphConfigs() {
		for form := range 3 {
			s, err := New(g.form(form), cfg)
			require.NoError(t, err)
			stamp := false
			first, err := s.NewWorker(mem.NewBudget(0), stamp, 1)
			require.NoError(t, err)
			var flat Subgraph
			all := []int64{}
			for t, of := range seeds {
				for _, v := range of {
					all = append(all, s.First()[t]+v)
				}
			}
			require.NoError(t, first.Draw(context.Background(), Key{}, Request{Seeds: all}, &flat))
			d := Demand{Edges: slices.Clone(flat.Rooms)}
			for typ := range g.nodes {
				n := int64(0)
				for _, k := range flat.NodesPerHop[typ*3 : typ*3+3] {
					n += k
				}
				d.Nodes = append(d.Nodes, n)
			}
			first.Close()
			limited := mem.NewBudget(s.WorkerBytes(d, stamp))
			w, err := s.NewWorker(limited, stamp, 1)
			require.NoError(t, err, name)
			require.NoError(t, w.Reserve(d))
			require.NoError(t, w.Draw(context.Background(), Key{}, Request{Seeds: all}, &flat), name)
			w.Close()
		}
	}
}

func TestWrongSubgraphsOfTypes(t *testing.T) {
	g := citations(7)
	for message, cfg := range map[string]Config{
		"subgraph type 3":                         {Subgraph: Induced + 1},
		"reverse relations, want none":            {Subgraph: Induced, Reverse: reverses},
		"reverses of 0 relations, want 8":         {Subgraph: Bidirectional},
		"relation 2 as the reverse of relation 0": {Subgraph: Bidirectional, Reverse: []int{2, 2, 1, 4, 3, -1, -1, 7}},
		"relation 8 as the reverse of relation 7": {Subgraph: Bidirectional, Reverse: []int{0, 2, 1, 4, 3, -1, -1, 8}},
	} {
		cfg.Fanouts = fanouts([]int64{3}, nil)
		_, err := New(g.form(0), cfg)
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, message)
	}
	for name, cfg := range heteroSubgraphConfigs() {
		w := newTypesWorker(t, g.form(2), cfg, true, 1)
		seeds := [][]int64{{1, 97}, {4}, nil, nil, {2}}
		for n := 0; ; n++ { // cancelled at every look
			out := cutBatch{Nodes: [][]int64{{42}}}
			err := w.Sample(newCountdown(n), Key{}, seeds, &out)
			if err == nil {
				require.Positive(t, n)
				break
			}
			require.ErrorIs(t, err, context.Canceled, name)
			require.Equal(t, [][]int64{{42}}, out.Nodes)
		}
	}
}
