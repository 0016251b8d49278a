package sample

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// complete gives a batch the edges of a subgraph type, as slowly as the documentation says.
func (g *testTypes) complete(cfg Config, sub cutBatch) cutBatch {
	type edge struct {
		row uint32
		pos int64
	}
	out := sub
	out.Relations = nil
	for i, r := range g.relations {
		lists := make([][]edge, len(sub.Nodes[r.target]))
		if cfg.Subgraph == Induced {
			local := map[int64]int{}
			for at, v := range slices.Backward(sub.Nodes[r.source]) { // the first of those that are there twice
				local[v] = at
			}
			for t, v := range sub.Nodes[r.target] {
				for p := r.indptr[v]; p < r.indptr[v+1]; p++ {
					if at, found := local[r.wide[p]]; found {
						lists[t] = append(lists[t], edge{uint32(at), p})
					}
				}
			}
		} else {
			add := func(target int, e edge) {
				if !slices.ContainsFunc(lists[target], func(other edge) bool { return other.row == e.row }) {
					lists[target] = append(lists[target], e)
				}
			}
			drawn := sub.Relations[i]
			for t := range len(drawn.Ptr) - 1 {
				for e := drawn.Ptr[t]; e < drawn.Ptr[t+1]; e++ {
					add(t, edge{drawn.Row[e], drawn.Pos[e]})
				}
			}
			if j := cfg.Reverse[i]; j >= 0 {
				drawn := sub.Relations[j]
				for t := range len(drawn.Ptr) - 1 {
					for e := drawn.Ptr[t]; e < drawn.Ptr[t+1]; e++ {
						pos := int64(-1)
						if i == j {
							pos = drawn.Pos[e]
						}
						add(int(drawn.Row[e]), edge{uint32(t), pos})
					}
				}
			}
			for _, list := range lists {
				slices.SortFunc(list, func(a, b edge) int { return cmp.Compare(a.row, b.row) })
			}
		}
		all := cutEdges{Ptr: []int64{0}, Row: []uint32{}, Pos: []int64{}, EdgesPerHop: sub.Relations[i].EdgesPerHop}
		for _, list := range lists {
			for _, e := range list {
				all.Row, all.Pos = append(all.Row, e.row), append(all.Pos, e.pos)
			}
			all.Ptr = append(all.Ptr, int64(len(all.Row)))
		}
		out.Relations = append(out.Relations, all)
	}
	return out
}

func subgraphConfigs() map[string]plainConfig {
	labor := &Labor{BatchDependency: 1}
	return map[string]plainConfig{
		"bidirectional":         {Fanouts: []int64{15, 10}, Subgraph: Bidirectional},
		"bidirectional all":     {Fanouts: []int64{All, 3}, Subgraph: Bidirectional},
		"bidirectional repeats": {Fanouts: []int64{15, 10}, Replace: true, Subgraph: Bidirectional},
		"bidirectional labor":   {Fanouts: []int64{5, 5}, Labor: labor, Subgraph: Bidirectional},
		"bidirectional seeds":   {Subgraph: Bidirectional},
		"induced":               {Fanouts: []int64{15, 10}, Subgraph: Induced},
		"induced all":           {Fanouts: []int64{All, 3}, Subgraph: Induced},
		"induced repeats":       {Fanouts: []int64{15, 10}, Replace: true, Subgraph: Induced},
		"induced labor":         {Fanouts: []int64{5, 5}, Labor: labor, Subgraph: Induced},
		"induced seeds":         {Subgraph: Induced},
	}
}

// subgraphs are the configs for a graph of this form.
func (g *testTypes) subgraphs() map[string]Config {
	all := map[string]Config{}
	if len(g.relations) == 1 {
		for name, cfg := range subgraphConfigs() {
			all[name] = cfg.config()
		}
		return all
	}
	draws := fanouts([]int64{5, 3}, map[int][]int64{2: {0, 0}, 4: {-1, 2}})
	return map[string]Config{
		"bidirectional":          {Fanouts: draws, Subgraph: Bidirectional, Reverse: reverses},
		"bidirectional, replace": {Fanouts: draws, Subgraph: Bidirectional, Reverse: reverses, Replace: true},
		"one way":                {Fanouts: draws, Subgraph: Bidirectional, Reverse: []int{0, 2, -1, -1, 3, -1, -1, -1}},
		"induced":                {Fanouts: draws, Subgraph: Induced},
		"induced, replace":       {Fanouts: draws, Subgraph: Induced, Replace: true},
	}
}

func TestSubgraphsEqualReference(t *testing.T) {
	for name, g := range testForms(3000, explore.Seed(t, 7)) {
		batches := [][][]int64{g.someSeeds(100, 5), {{3, 1, 3}}, {{7}}}
		if len(g.nodes) > 1 {
			batches, _ = heteroSeeds()
		}
		for what, cfg := range g.subgraphs() {
			var drawn, wants []cutBatch
			key := func(batch int) Key { return Key{1, 2, uint64(batch)} }
			for i, seeds := range batches {
				drawn = append(drawn, g.reference(cfg, key(i), seeds, nil, nil))
				wants = append(wants, g.complete(cfg, drawn[i]))
			}
			for form := range 3 {
				for threads, stamp := range map[int]bool{1: true, 2: false, 8: true} {
					explore.Run(t, fmt.Sprintf("%s/%s/form=%d/threads=%d", name, what, form, threads), func(t *testing.T) {
						w := newTypesWorker(t, g.form(form), cfg, stamp, threads)
						for i, seeds := range batches {
							var got Subgraph
							require.NoError(t, w.Draw(context.Background(), key(i), Request{Seeds: w.sampler.flat(seeds)}, &got))
							requireCutEqual(t, wants[i], w.sampler.cut(got))
							edges := 0
							for _, r := range drawn[i].Relations {
								edges += len(r.Row)
							}
							require.GreaterOrEqual(t, got.Room, int64(max(len(got.Row), edges)))
						}
					})
				}
			}
		}
	}
}

// Lists that are longer than what is brought and what is looked up at a time, one of them to its very end.
func TestInducedLongLists(t *testing.T) {
	g := &testGraph{indptr: []int64{0}}
	for _, deg := range []int64{FetchedEdges, 0, FetchedEdges + inducedEdges - 1, 1, 3 * FetchedEdges / 2, 0, 0} {
		for i := range deg {
			g.wide, g.narrow = append(g.wide, i*7%20), append(g.narrow, int32(i*7%20))
		}
		g.indptr = append(g.indptr, int64(len(g.wide)))
	}
	for len(g.indptr) < 21 {
		g.indptr = append(g.indptr, int64(len(g.wide)))
	}
	cfg := plainConfig{Fanouts: []int64{2}, Subgraph: Induced}
	seeds := []int64{0, 1, 2, 3, 4, 5, 6}
	for form, graph := range g.forms() {
		t.Run(form, func(t *testing.T) {
			w := newWorker(t, graph, cfg, true, 2)
			var got Subgraph
			require.NoError(t, w.Sample(context.Background(), Key{}, seeds, &got))
			types := plainTypes(g)
			drawn := types.reference(cfg.config(), Key{}, [][]int64{seeds}, nil, nil)
			requireEqual(t, types.complete(cfg.config(), drawn).plain(), got)
		})
	}
}

// Of both directions there is one edge for every one, and no other.
func TestBidirectionalIsSymmetric(t *testing.T) {
	g := newTestGraph(3000, explore.Seed(t, 11))
	w := newWorker(t, g.forms()["ram32"], plainConfig{Fanouts: []int64{10, 10}, Subgraph: Bidirectional}, true, 2)
	var sub Subgraph
	require.NoError(t, w.Sample(context.Background(), Key{}, g.seeds(100, 3), &sub))
	edges := map[[2]int]bool{}
	for target := range len(sub.Nodes) {
		for e := sub.Ptr[target]; e < sub.Ptr[target+1]; e++ {
			pair := [2]int{int(sub.Row[e]), target}
			require.False(t, edges[pair])
			edges[pair] = true
		}
	}
	require.NotEmpty(t, edges)
	for pair := range edges {
		require.True(t, edges[[2]int{pair[1], pair[0]}])
	}
}

// These numbers are a promise, as those of golden_test.go are.
func TestGoldenSubgraphs(t *testing.T) {
	want := map[string]uint64{
		"bidirectional":         0xbdcd5185d41ce50d,
		"bidirectional all":     0x2460c4cf6e3a210b,
		"bidirectional labor":   0xb53d91e5a9a0996c,
		"bidirectional repeats": 0x393df357273acdb2,
		"bidirectional seeds":   0xb757f9309306a9a5,
		"induced":               0xa77e71412cbd9157,
		"induced all":           0x269b5f4bfe2745a,
		"induced labor":         0xd7e33c1c8b71f0ce,
		"induced repeats":       0x5db045b87a4c8273,
		"induced seeds":         0x55736c87134c793f,
	}
	g := newTestGraph(3000, 7)
	for name, cfg := range subgraphConfigs() {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, g.forms()["ram32"], cfg, true, 2)
			var sub Subgraph
			require.NoError(t, w.Sample(context.Background(), Key{1, 2, 3}, g.seeds(200, 5), &sub))
			require.Equal(t, want[name], digest(t, sub.Nodes, sub.Ptr, sub.Row, sub.Pos))
		})
	}
}

func TestSubgraphsStayWithinWorkerBytes(t *testing.T) {
	for name, g := range testForms(20000, 7) {
		if name == "one type" {
			continue // as none
		}
		seeds, stamp := g.someSeeds(500, 5), len(g.nodes) == 1
		if len(g.nodes) > 1 {
			seeds = [][]int64{{1, 97, 5, 8, 9, 10, 11}, {97}, {3}, nil, {2}}
		}
		for what, cfg := range g.subgraphs() {
			for form := range 3 {
				s, err := New(g.form(form), cfg)
				require.NoError(t, err)
				first, err := s.NewWorker(mem.NewBudget(0), stamp, 1)
				require.NoError(t, err)
				var sub Subgraph
				r := Request{Seeds: s.flat(seeds)}
				require.NoError(t, first.Draw(context.Background(), Key{}, r, &sub))
				d := Demand{Edges: slices.Clone(sub.Rooms)}
				for _, nodes := range s.cut(sub).Nodes {
					d.Nodes = append(d.Nodes, int64(len(nodes)))
				}
				first.Close()
				w, err := s.NewWorker(mem.NewBudget(s.WorkerBytes(d, stamp)), stamp, 1)
				require.NoError(t, err, name, what)
				require.NoError(t, w.Reserve(d))
				require.NoError(t, w.Draw(context.Background(), Key{}, r, &sub), name, what)
				w.Close()
			}
		}
	}
}

func TestSubgraphFaults(t *testing.T) {
	for _, cfg := range []plainConfig{
		{Fanouts: []int64{2}, Subgraph: Induced + 1},
		{Fanouts: []int64{2}, Walks: []Walk{{Walks: 1, Length: 1}}, Subgraph: Induced},
		{Fanouts: []int64{2}, Walks: []Walk{{Walks: 1, Length: 1}}, Subgraph: Bidirectional},
	} {
		_, err := newPlain(newTestGraph(30, 7).forms()["ram32"], cfg)
		require.ErrorIs(t, err, ErrConfig)
	}
	for name, g := range testForms(3000, 7) {
		if name == "one type" {
			continue // as none
		}
		seeds := g.someSeeds(300, 5)
		if len(g.nodes) > 1 {
			seeds = [][]int64{{1, 97}, {4}, nil, nil, {2}}
		}
		for what, cfg := range g.subgraphs() {
			if len(cfg.Fanouts[0]) == 0 || len(g.relations) == 1 && cfg.Fanouts[0][0] != 15 {
				continue // little to look at
			}
			for form := range 3 {
				w := newTypesWorker(t, g.form(form), cfg, true, 1)
				for n := 0; ; n++ { // cancelled at every look
					sub := Subgraph{Room: -1}
					err := w.Draw(newCountdown(n), Key{}, Request{Seeds: w.sampler.flat(seeds)}, &sub)
					if err == nil {
						require.Positive(t, n)
						break
					}
					require.ErrorIs(t, err, context.Canceled, what)
					require.EqualValues(t, -1, sub.Room)
				}
			}
		}
	}
	g := newTestGraph(3000, 7)
	for _, kind := range []SubgraphType{Bidirectional, Induced} {
		cfg := plainConfig{Fanouts: []int64{15, 10}, Subgraph: kind}
		failure := errors.New("disk on fire")
		for n := 0; ; n++ { // after n fetches
			graph := g.forms()["adjacency"]
			graph.Adjacency = &failingFetch{testGraph: g, err: failure, good: n}
			w := newWorker(t, graph, cfg, true, 1)
			var sub Subgraph
			if err := w.Sample(context.Background(), Key{}, g.seeds(300, 5), &sub); err == nil {
				break
			} else {
				require.ErrorIs(t, err, failure)
			}
		}
	}
}

// reverses gives the reverse of each relation: itself, another one, or none.
var reverses = []int{0, 2, 1, 4, 3, -1, -1, 7}

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

func TestWrongSubgraphsOfTypes(t *testing.T) {
	g := citations(7)
	for message, cfg := range map[string]Config{
		"subgraph type 3":                         {Subgraph: Induced + 1},
		"reverse relations, expected none":        {Subgraph: Induced, Reverse: reverses},
		"reverses of 0 relations, expected 8":     {Subgraph: Bidirectional},
		"relation 2 as the reverse of relation 0": {Subgraph: Bidirectional, Reverse: []int{2, 2, 1, 4, 3, -1, -1, 7}},
		"relation 8 as the reverse of relation 7": {Subgraph: Bidirectional, Reverse: []int{0, 2, 1, 4, 3, -1, -1, 8}},
	} {
		cfg.Fanouts = fanouts([]int64{3}, nil)
		_, err := New(g.form(0), cfg)
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, message)
	}
}
