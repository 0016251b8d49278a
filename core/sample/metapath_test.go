package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// referenceMetapath finds the neighbours of v walk after walk, as the documentation says.
func referenceMetapath(g *heteroTestGraph, path []int, w Walk, key Key, hop int, v, k int64) (edges []referenceEdge) {
	list := func(relation int, v int64) []int64 {
		r := g.relations[relation]
		return r.wide[r.indptr[v]:r.indptr[v+1]]
	}
	if len(list(path[0], v)) == 0 {
		return nil
	}
	times := map[int64]int{}
	for walk := range w.Walks {
		rng := newReferenceRNG(1, key.Seed, key.Epoch, key.Batch, uint64(hop), uint64(v), uint64(walk))
		at, ended := v, false
		for time := range w.Length {
			back := time > 0 && float64(rng.next()>>11) < w.Restart*(1<<53)
			if back || ended || len(list(path[0], at)) == 0 {
				at = v
			}
			ended = false
			for _, relation := range path {
				sources := list(relation, at)
				if ended = len(sources) == 0; ended {
					break
				}
				at = sources[rng.below(int64(len(sources)))]
			}
			if !ended {
				times[at]++
			}
		}
	}
	for node, n := range times {
		edges = append(edges, referenceEdge{source: node, weight: float32(n)})
	}
	slices.SortFunc(edges, func(a, b referenceEdge) int {
		if a.weight != b.weight {
			return int(b.weight - a.weight)
		}
		return int(a.source - b.source)
	})
	if k != All {
		edges = edges[:min(int(k), len(edges))]
	}
	return edges
}

// referencePaths draws a batch.
func referencePaths(g *heteroTestGraph, cfg MetapathConfig, key Key, seeds []int64) Subgraph {
	sub := Subgraph{Nodes: slices.Clone(seeds), Ptr: []int64{0}, Row: []uint32{}, NodesPerHop: []int64{int64(len(seeds))}}
	local := map[int64]uint32{}
	for i, v := range seeds {
		if _, found := local[v]; !found {
			local[v] = uint32(i)
		}
	}
	first := 0
	for hop, k := range cfg.Fanouts {
		end, edges := len(sub.Nodes), len(sub.Row)
		for _, v := range sub.Nodes[first:end] {
			for _, e := range referenceMetapath(g, cfg.Metapath, cfg.Walks[hop], key, hop, v, k) {
				if _, found := local[e.source]; !found {
					local[e.source] = uint32(len(sub.Nodes))
					sub.Nodes = append(sub.Nodes, e.source)
				}
				sub.Row, sub.Weight = append(sub.Row, local[e.source]), append(sub.Weight, e.weight)
			}
			sub.Ptr = append(sub.Ptr, int64(len(sub.Row)))
		}
		sub.NodesPerHop = append(sub.NodesPerHop, int64(len(sub.Nodes)-end))
		sub.EdgesPerHop = append(sub.EdgesPerHop, int64(len(sub.Row)-edges))
		first = end
	}
	return sub
}

func newPathWorker(t testing.TB, g HeteroGraph, cfg MetapathConfig, stamp bool, threads int) *Worker {
	t.Helper()
	s, err := NewMetapath(g, cfg)
	require.NoError(t, err)
	budget := mem.NewBudget(0)
	w, err := s.NewWorker(budget, stamp, threads)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.Close()
		require.Zero(t, budget.Used())
	})
	return w
}

// Relations of citations: 0 is within type 0, 1 and 2 lead between types 0 and 1, 3 and 4 between 0 and 2, 5 from 1 to 2.
func pathConfigs() map[string]MetapathConfig {
	walk := []Walk{{4, 3, .5}, {2, 4, .2}}
	return map[string]MetapathConfig{
		"there and back":  {Fanouts: []int64{5, 3}, Walks: walk, Metapath: []int{1, 2}},
		"of another type": {Fanouts: []int64{5, 3}, Walks: walk, Metapath: []int{2, 1}},
		"around":          {Fanouts: []int64{5, All}, Walks: walk, Metapath: []int{3, 5, 2}},
		"five":            {Fanouts: []int64{All, 4}, Walks: walk, Metapath: []int{0, 1, 2, 3, 4}},
		"many walkers":    {Fanouts: []int64{10}, Walks: []Walk{{1500, 2, 0}}, Metapath: []int{1, 2}},
	}
}

func TestMetapathsEqualReference(t *testing.T) {
	g := citations(3)
	for name, cfg := range pathConfigs() {
		for form := range 3 {
			t.Run(fmt.Sprint(name, form), func(t *testing.T) {
				numNodes := g.nodes[g.relations[cfg.Metapath[0]].target]
				for threads, stamp := range map[int]bool{1: true, 2: false, 8: true} {
					w := newPathWorker(t, g.form(form), cfg, stamp, threads)
					rng := newReferenceRNG(9, uint64(form))
					for batch, count := range []int{1, 7, 90} {
						seeds := make([]int64, count)
						for i := range seeds {
							seeds[i] = rng.below(numNodes)
						}
						key := Key{1, 2, uint64(batch)}
						var got Subgraph
						require.NoError(t, w.Sample(context.Background(), key, seeds, &got))
						requireEqual(t, referencePaths(g, cfg, key, seeds), got)
						require.Nil(t, got.Pos)
					}
				}
			})
		}
	}
}

// A metapath of one relation is a walk in a homogeneous graph.
func TestMetapathOfOneRelationIsAWalk(t *testing.T) {
	g := newTestGraph(3000, 7)
	walk := []Walk{{4, 3, .5}, {2, 4, .2}}
	for form, graph := range g.forms() {
		relation := Relation{Indptr: graph.Indptr, Indices32: graph.Indices32, Indices64: graph.Indices64, Adjacency: graph.Adjacency}
		path := newPathWorker(t, HeteroGraph{NumNodes: []int64{g.nodes()}, Relations: []Relation{relation}},
			MetapathConfig{Fanouts: []int64{5, All}, Walks: walk, Metapath: []int{0}}, true, 2)
		plain := newWorker(t, graph, Config{Fanouts: []int64{5, All}, Walks: walk}, true, 2)
		var want, got Subgraph
		require.NoError(t, plain.Sample(context.Background(), Key{4, 5, 6}, g.seeds(200, 5), &want), form)
		require.NoError(t, path.Sample(context.Background(), Key{4, 5, 6}, g.seeds(200, 5), &got), form)
		requireEqual(t, want, got)
	}
}

// bipartite is users 0 to len(users)-1, each with a list of items, and the other way.
func bipartite(numItems int, users ...[]int32) HeteroGraph {
	items := make([][]int32, numItems)
	for u, list := range users {
		for _, i := range list {
			items[i] = append(items[i], int32(u))
		}
	}
	relation := func(source, target int, lists [][]int32) Relation {
		g := graphOf(lists...)
		return Relation{Source: source, Target: target, Indptr: g.Indptr, Indices32: g.Indices32}
	}
	return HeteroGraph{NumNodes: []int64{int64(len(users)), int64(numItems)}, Relations: []Relation{relation(1, 0, users), relation(0, 1, items)}}
}

// How often walks user - item - user visit users, from the powers of the transition matrix. In "dead ends" some relations lead to nodes that
// the next one does not leave: what was walked there visits nothing and begins again at the target.
func TestMetapathsVisitAsOftenAsExpected(t *testing.T) {
	graphs := map[string]HeteroGraph{
		"one item":  bipartite(1, []int32{0}, []int32{0}, []int32{0}),
		"chain":     bipartite(3, []int32{0}, []int32{0, 1}, []int32{1, 2}, []int32{2}),
		"popular":   bipartite(4, []int32{0, 1, 2, 3}, []int32{0}, []int32{0, 0, 1}, []int32{3}),
		"alone":     bipartite(2, []int32{0}, []int32{1}),
		"dead ends": bipartite(3, []int32{0, 1, 2}, []int32{0}, []int32{0, 2}),
	}
	dead := graphs["dead ends"].Relations
	items := graphOf([]int32{0, 1, 2}, nil, []int32{2})
	dead[1].Indptr, dead[1].Indices32 = items.Indptr, items.Indices32
	for name, g := range graphs {
		for _, walk := range []Walk{{1, 1, 0}, {1, 4, 0}, {3, 3, .5}} {
			t.Run(fmt.Sprint(name, walk), func(t *testing.T) {
				const batches = 5000
				w := newPathWorker(t, g, MetapathConfig{Fanouts: []int64{All}, Walks: []Walk{walk}, Metapath: []int{0, 1}}, true, 1)
				users := int(g.NumNodes[0])
				sum, squares := make([]float64, users), make([]float64, users)
				var sub Subgraph
				for batch := range uint64(batches) {
					require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &sub))
					for e, row := range sub.Row {
						times := float64(sub.Weight[e])
						sum[sub.Nodes[row]] += times
						squares[sub.Nodes[row]] += times * times
					}
				}
				for v, want := range expectedPathVisits(g, walk) {
					want *= float64(walk.Walks)
					mean := sum[v] / batches
					deviation := math.Sqrt(max(0, squares[v]/batches-mean*mean) / batches)
					require.LessOrEqual(t, math.Abs(mean-want), 5.5*deviation+1e-9, "user %d", v)
				}
			})
		}
	}
}

// expectedPathVisits is of user 0, all of whose walks can begin, on a graph where every user has items.
func expectedPathVisits(g HeteroGraph, w Walk) []float64 {
	users := int(g.NumNodes[0])
	step := func(r Relation, from []float64, to int) (next []float64, lost float64) {
		next = make([]float64, to)
		for v, p := range from {
			list := r.Indices32[r.Indptr[v]:r.Indptr[v+1]]
			if len(list) == 0 {
				lost += p
			}
			for _, u := range list {
				next[u] += p / float64(len(list))
			}
		}
		return next, lost
	}
	at, visits := make([]float64, users), make([]float64, users)
	at[0] = 1
	for time := range w.Length {
		if time > 0 {
			total := 0.
			for v := range at {
				total += at[v]
				at[v] *= 1 - w.Restart
			}
			at[0] += total * w.Restart
		}
		items, none := step(g.Relations[0], at, int(g.NumNodes[1]))
		if none > 0 {
			panic("a user without items")
		}
		var ended float64
		at, ended = step(g.Relations[1], items, users)
		for v, p := range at {
			visits[v] += p
		}
		at[0] += ended
	}
	return visits
}

func TestGoldenMetapaths(t *testing.T) {
	// A promise, as those of golden_test.go are.
	want := map[string]uint64{
		"around":          0x5a20c09a7ae56489,
		"five":            0xa68ed498140cfee8,
		"many walkers":    0xdd56756d9255705b,
		"of another type": 0xc0017cd8d689ad42,
		"there and back":  0x9302a32ed0445f21,
	}
	g := citations(3)
	for name, cfg := range pathConfigs() {
		t.Run(name, func(t *testing.T) {
			w := newPathWorker(t, g.form(0), cfg, true, 2)
			var sub Subgraph
			require.NoError(t, w.Sample(context.Background(), Key{1, 2, 3}, []int64{5, 3, 11, 19, 3}, &sub))
			require.Equal(t, want[name], digest(t, sub.Nodes, sub.Ptr, sub.Row, sub.Weight))
		})
	}
}

func TestMetapathFaults(t *testing.T) {
	g := citations(3)
	walk := []Walk{{4, 3, .5}}
	for _, tt := range []struct {
		cfg   MetapathConfig
		err   error
		words string
	}{
		{MetapathConfig{Fanouts: []int64{5}, Walks: walk}, ErrConfig, "no relations"},
		{MetapathConfig{Fanouts: []int64{5}, Walks: walk, Metapath: []int{1, 8}}, ErrConfig, "relation 8, want one of 8"},
		{MetapathConfig{Fanouts: []int64{5}, Walks: walk, Metapath: []int{-1, 1}}, ErrConfig, "step 0"},
		{MetapathConfig{Fanouts: []int64{5}, Walks: walk, Metapath: []int{1}}, ErrConfig, "does not connect: step 0, relation 1, leads to nodes of type 1"},
		{MetapathConfig{Fanouts: []int64{5}, Walks: walk, Metapath: []int{1, 3}}, ErrConfig, "does not connect"},
		{MetapathConfig{Fanouts: []int64{5}, Walks: []Walk{{4, 0, .5}}, Metapath: []int{1, 2}}, ErrConfig, "length 0"},
		{MetapathConfig{Fanouts: []int64{5, 5}, Walks: walk, Metapath: []int{1, 2}}, ErrConfig, "walks for 1 hops"},
		{MetapathConfig{Fanouts: []int64{5}, Metapath: []int{1, 2}}, ErrConfig, "walks for 0 hops"},
		{MetapathConfig{Fanouts: []int64{0}, Walks: walk, Metapath: []int{1, 2}}, ErrFanout, "fanout 0"},
	} {
		_, err := NewMetapath(g.form(0), tt.cfg)
		require.ErrorIs(t, err, tt.err)
		require.ErrorContains(t, err, tt.words)
	}
	broken := g.form(0)
	broken.Relations[1].Indptr = broken.Relations[1].Indptr[1:]
	_, err := NewMetapath(broken, MetapathConfig{Fanouts: []int64{5}, Walks: walk, Metapath: []int{1, 2}})
	require.ErrorIs(t, err, ErrGraph)

	cfg := pathConfigs()["around"]
	seeds := []int64{1, 2, 3, 4, 5, 6, 7, 8}
	for form := range 3 {
		w := newPathWorker(t, g.form(form), cfg, true, 1)
		for n := 0; ; n++ { // cancelled at every look
			sub := Subgraph{Room: -1}
			if err := w.Sample(newCountdown(n), Key{}, seeds, &sub); err == nil {
				require.Greater(t, n, 3)
				break
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.EqualValues(t, -1, sub.Room)
			}
		}
		var sub Subgraph
		require.ErrorIs(t, w.Sample(context.Background(), Key{}, []int64{1200}, &sub), ErrSeed)
	}
	failure := errors.New("disk on fire")
	for n := range 18 { // fetches: two hops of three and four times three steps, less where nobody moves
		graph := g.form(0)
		graph.Relations[5] = Relation{Source: 1, Target: 2, Indptr: g.relations[5].indptr, Adjacency: &failingFetch{testGraph: g.relations[5].testGraph, err: failure, good: n}}
		var sub Subgraph
		err := newPathWorker(t, graph, cfg, true, 1).Sample(context.Background(), Key{}, seeds, &sub)
		if n < 3 {
			require.ErrorIs(t, err, failure)
		} else if n > 6 {
			require.NoError(t, err)
		}
	}
}

func TestMetapathsStayWithinWorkerBytes(t *testing.T) {
	g := citations(3)
	for name, cfg := range pathConfigs() {
		for form := range 3 {
			t.Run(fmt.Sprint(name, form), func(t *testing.T) {
				s, err := NewMetapath(g.form(form), cfg)
				require.NoError(t, err)
				first := newPathWorker(t, g.form(form), cfg, true, 1)
				seeds := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
				var sub Subgraph
				require.NoError(t, first.Sample(context.Background(), Key{}, seeds, &sub))
				d := Demand{Nodes: int64(len(sub.Nodes)), Edges: sub.Room}
				w, err := s.NewWorker(mem.NewBudget(s.WorkerBytes(d, true)), true, 1)
				require.NoError(t, err)
				defer w.Close()
				require.NoError(t, w.Reserve(d))
				require.NoError(t, w.Sample(context.Background(), Key{}, seeds, &sub))
			})
		}
	}
}
