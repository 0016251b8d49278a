package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// referenceMetapath finds the neighbours of v walk after walk, as the documentation says.
func referenceMetapath(g *testTypes, path []int, w Walk, key Key, hop int, v, k int64) (edges []referenceEdge) {
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
	return mostVisited(times, k)
}

// referencePaths draws a batch whose metapath numbers the nodes of its source type.
func referencePaths(g *testTypes, cfg Config, key Key, seeds [][]int64) cutBatch {
	sub := cutBatch{Relations: make([]cutEdges, len(cfg.Metapaths))}
	first, local := make([]int, len(g.nodes)), make([]map[int64]uint32, len(g.nodes))
	for t, of := range seeds {
		sub.Nodes, sub.NodesPerHop = append(sub.Nodes, slices.Clone(of)), append(sub.NodesPerHop, []int64{int64(len(of))})
		local[t] = map[int64]uint32{}
		for i, v := range of {
			if _, found := local[t][v]; !found {
				local[t][v] = uint32(i)
			}
		}
	}
	for i := range sub.Relations {
		sub.Relations[i].Ptr = []int64{0}
	}
	for hop := range cfg.Fanouts[0] {
		end := make([]int, len(g.nodes))
		for t := range end {
			end[t] = len(sub.Nodes[t])
		}
		for i, m := range cfg.Metapaths {
			r := &sub.Relations[i]
			target, source, edges := g.relations[m.Path[0]].target, g.relations[m.Path[len(m.Path)-1]].source, len(r.Row)
			for _, v := range sub.Nodes[target][first[target]:end[target]] {
				if cfg.Fanouts[i][hop] != 0 {
					for _, e := range referenceMetapath(g, m.Path, m.Walks[hop], relationKey(key, i), hop, v, cfg.Fanouts[i][hop]) {
						if _, found := local[source][e.source]; !found {
							local[source][e.source] = uint32(len(sub.Nodes[source]))
							sub.Nodes[source] = append(sub.Nodes[source], e.source)
						}
						r.Row, r.Weight = append(r.Row, local[source][e.source]), append(r.Weight, e.weight)
					}
				}
				r.Ptr = append(r.Ptr, int64(len(r.Row)))
			}
			r.EdgesPerHop = append(r.EdgesPerHop, int64(len(r.Row)-edges))
		}
		for t := range end {
			sub.NodesPerHop[t] = append(sub.NodesPerHop[t], int64(len(sub.Nodes[t])-end[t]))
		}
		first = end
	}
	return sub
}

func requirePaths(t *testing.T, want, got cutBatch) {
	t.Helper()
	require.Equal(t, want.NodesPerHop, got.NodesPerHop)
	for i := range want.Nodes {
		require.True(t, slices.Equal(want.Nodes[i], got.Nodes[i]), "nodes of type %d", i)
	}
	for i, w := range want.Relations {
		e := got.Relations[i]
		same := slices.Equal(w.Ptr, e.Ptr) && slices.Equal(w.Row, e.Row) && slices.Equal(w.Weight, e.Weight) &&
			slices.Equal(w.EdgesPerHop, e.EdgesPerHop)
		require.True(t, same, "metapath %d", i)
		require.Nil(t, e.Pos)
	}
}

// onePath is a Config of one metapath.
func onePath(fanouts []int64, walks []Walk, path ...int) Config {
	return Config{Fanouts: [][]int64{fanouts}, Metapaths: []Metapath{{Path: path, Walks: walks}}}
}

// Relations of citations: 0 is within type 0, 1 and 2 lead between types 0 and 1, 3 and 4 between 0 and 2, 5 from 1 to
// 2.
func pathConfigs() map[string]Config {
	walk := []Walk{{4, 3, .5}, {2, 4, .2}}
	once := []Walk{{5, 1, .5}, {2, 1, 0}}
	return map[string]Config{
		"there and back":  onePath([]int64{5, 3}, walk, 1, 2),
		"of another type": onePath([]int64{5, 3}, walk, 2, 1),
		"around":          onePath([]int64{5, All}, walk, 3, 5, 2),
		"five":            onePath([]int64{All, 4}, walk, 0, 1, 2, 3, 4),
		"many walkers":    onePath([]int64{10}, []Walk{{1500, 2, 0}}, 1, 2),
		"several": {
			Fanouts:   [][]int64{{5, 3}, {2, 0}, {All, 2}, {3, 3}},
			Metapaths: []Metapath{{[]int{1, 2}, walk}, {[]int{2, 1}, walk}, {[]int{1, 2, 1}, once}, {[]int{2}, once}},
		},
	}
}

func TestMetapathsEqualReference(t *testing.T) {
	g := citations(explore.Seed(t, 3))
	for name, cfg := range pathConfigs() {
		for form := range 3 {
			explore.Run(t, fmt.Sprint(name, form), func(t *testing.T) {
				for threads, stamp := range map[int]bool{1: true, 2: false, 8: true} {
					w := newTypesWorker(t, g.form(form), cfg, stamp, threads)
					rng := newReferenceRNG(9, uint64(form))
					for batch, count := range []int{1, 7, 90} {
						seeds := make([][]int64, len(g.nodes))
						for range count {
							i := rng.below(int64(len(cfg.Metapaths)))
							typ := g.relations[cfg.Metapaths[i].Path[0]].target
							seeds[typ] = append(seeds[typ], rng.below(g.nodes[typ]))
						}
						key := Key{1, 2, uint64(batch)}
						var got cutBatch
						require.NoError(t, w.Sample(context.Background(), key, seeds, &got))
						requirePaths(t, referencePaths(g, cfg, key, seeds), got)
					}
				}
			})
		}
	}
}

// A metapath of one relation is a walk in a homogeneous graph.
func TestMetapathOfOneRelationIsAWalk(t *testing.T) {
	g := newTestGraph(3000, explore.Seed(t, 7))
	walk := []Walk{{4, 3, .5}, {2, 4, .2}}
	for form, graph := range g.forms() {
		path := newTypesWorker(t, Graph{NumNodes: []int64{g.nodes()}, Relations: []Relation{graph.relation()}, Named: true},
			onePath([]int64{5, All}, walk, 0), true, 2)
		plain := newWorker(t, graph, plainConfig{Fanouts: []int64{5, All}, Walks: walk}, true, 2)
		var want, got Subgraph
		require.NoError(t, plain.Sample(context.Background(), relationKey(Key{4, 5, 6}, 0), g.seeds(200, 5), &want), form)
		require.NoError(t, path.Draw(context.Background(), Key{4, 5, 6}, Request{Seeds: g.seeds(200, 5)}, &got), form)
		requireEqual(t, want, got)
		require.Nil(t, got.Pos)
	}
}

// bipartite is users 0 to len(users)-1, each with a list of items, and the other way.
func bipartite(numItems int, users ...[]int32) Graph {
	items := make([][]int32, numItems)
	for u, list := range users {
		for _, i := range list {
			items[i] = append(items[i], int32(u))
		}
	}
	relation := func(source, target int, lists [][]int32) Relation {
		g := graphOf(lists...)
		return Relation{Source: source, Target: target, Indptr: offsets.Of(g.Indptr), Indices32: g.Indices32}
	}
	return Graph{NumNodes: []int64{int64(len(users)), int64(numItems)},
		Relations: []Relation{relation(1, 0, users), relation(0, 1, items)}, Named: true}
}

// How often walks user - item - user visit users, from the powers of the transition matrix. In "dead ends" some
// relations lead to nodes that the next one does not leave: what was walked there visits nothing and begins again at
// the target.
func TestMetapathsVisitAsOftenAsExpected(t *testing.T) {
	explore.Figures(t)
	graphs := map[string]Graph{
		"one item":  bipartite(1, []int32{0}, []int32{0}, []int32{0}),
		"chain":     bipartite(3, []int32{0}, []int32{0, 1}, []int32{1, 2}, []int32{2}),
		"popular":   bipartite(4, []int32{0, 1, 2, 3}, []int32{0}, []int32{0, 0, 1}, []int32{3}),
		"alone":     bipartite(2, []int32{0}, []int32{1}),
		"dead ends": bipartite(3, []int32{0, 1, 2}, []int32{0}, []int32{0, 2}),
	}
	dead := graphs["dead ends"].Relations
	items := graphOf([]int32{0, 1, 2}, nil, []int32{2})
	dead[1].Indptr, dead[1].Indices32 = offsets.Of(items.Indptr), items.Indices32
	for name, g := range graphs {
		for _, walk := range []Walk{{1, 1, 0}, {1, 4, 0}, {3, 3, .5}} {
			t.Run(fmt.Sprint(name, walk), func(t *testing.T) {
				const batches = 5000
				w := newTypesWorker(t, g, onePath([]int64{All}, []Walk{walk}, 0, 1), true, 1)
				users := int(g.NumNodes[0])
				sum, squares := make([]float64, users), make([]float64, users)
				var sub Subgraph
				for batch := range uint64(batches) {
					require.NoError(t, w.Draw(context.Background(), Key{Batch: batch}, Request{Seeds: []int64{0}}, &sub))
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
func expectedPathVisits(g Graph, w Walk) []float64 {
	users := int(g.NumNodes[0])
	step := func(r Relation, from []float64, to int) (next []float64, lost float64) {
		next = make([]float64, to)
		for v, p := range from {
			begin, end := r.Indptr.Range(int64(v))
			list := r.Indices32[begin:end]
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
		"around":          0xd8323662863dffe5,
		"five":            0x98c044f2ab2ce365,
		"many walkers":    0x573ba4aaa486fd15,
		"of another type": 0x78344bf26ea5cbbe,
		"several":         0x50740922337ac658,
		"there and back":  0xab449a8e01b492ad,
	}
	g := citations(3)
	for name, cfg := range pathConfigs() {
		t.Run(name, func(t *testing.T) {
			w := newTypesWorker(t, g.form(0), cfg, true, 2)
			first := w.sampler.first[g.relations[cfg.Metapaths[0].Path[0]].target]
			var sub Subgraph
			require.NoError(t, w.Draw(context.Background(), Key{1, 2, 3},
				Request{Seeds: []int64{first + 5, first + 3, first + 11, first + 19, first + 3}}, &sub))
			require.Equal(t, want[name], digest(t, sub.Nodes, sub.Ptr, sub.Row, sub.Weight))
		})
	}
}

func TestMetapathFaults(t *testing.T) {
	g := citations(3)
	walk := []Walk{{4, 3, .5}}
	again := onePath([]int64{5}, walk, 1, 2)
	again.Sampler = &Labor{BatchDependency: 1}
	for _, tt := range []struct {
		cfg   Config
		err   error
		words string
	}{
		{onePath([]int64{5}, walk), ErrConfig, "no relations"},
		{onePath([]int64{5}, walk, 1, 8), ErrConfig, "relation 8, expected one of 8"},
		{onePath([]int64{5}, walk, -1, 1), ErrConfig, "step 0"},
		{onePath([]int64{5}, walk, 1), ErrConfig, "from nodes of type 0 to type 1 and so cannot be walked twice"},
		{onePath([]int64{5}, walk, 1, 3), ErrConfig,
			"does not connect: step 0 leads to nodes of type 1, and step 1, relation 3, from type 0"},
		{onePath([]int64{5}, []Walk{{4, 0, .5}}, 1, 2), ErrConfig, "length 0"},
		{onePath([]int64{5, 5}, walk, 1, 2), ErrConfig, "walks for 1 hops"},
		{onePath([]int64{5}, nil, 1, 2), ErrConfig, "walks for 0 hops"},
		{onePath([]int64{-2}, walk, 1, 2), ErrFanout, "fanout -2"},
		{Config{Metapaths: again.Metapaths}, ErrFanout, "fanouts of 0 metapaths, expected 1"},
		{Config{Metapaths: append(again.Metapaths, again.Metapaths...), Fanouts: [][]int64{{5}, {5, 5}}}, ErrFanout,
			"2 fanouts of relation 1"},
		{again, ErrConfig, "random walks cannot be combined with LABOR"},
	} {
		_, err := New(g.form(0), tt.cfg)
		require.ErrorIs(t, err, tt.err)
		require.ErrorContains(t, err, tt.words)
	}
	broken := g.form(0)
	broken.Relations[1].Indptr = offsets.Of([]int64{0, 0})
	_, err := New(broken, onePath([]int64{5}, walk, 1, 2))
	require.ErrorIs(t, err, ErrGraph)

	cfg := pathConfigs()["around"]
	request := Request{Seeds: []int64{1, 2, 3, 4, 5, 6, 7, 8}}
	for form := range 3 {
		w := newTypesWorker(t, g.form(form), cfg, true, 1)
		for n := 0; ; n++ { // cancelled at every look
			sub := Subgraph{Room: -1}
			if err := w.Draw(newCountdown(n), Key{}, request, &sub); err == nil {
				require.Greater(t, n, 3)
				break
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.EqualValues(t, -1, sub.Room)
			}
		}
	}
	failure := errors.New("disk on fire")
	for n := range 18 { // fetches: two hops of three and four times three steps, less where nobody moves
		graph := g.form(0)
		graph.Relations[5] = Relation{Source: 1, Target: 2, Indptr: offsets.Of(g.relations[5].indptr),
			Adjacency: &failingFetch{testGraph: g.relations[5].testGraph, err: failure, good: n}}
		var sub Subgraph
		err := newTypesWorker(t, graph, cfg, true, 1).Draw(context.Background(), Key{}, request, &sub)
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
				s, err := New(g.form(form), cfg)
				require.NoError(t, err)
				first := newTypesWorker(t, g.form(form), cfg, true, 1)
				from := s.first[g.relations[cfg.Metapaths[0].Path[0]].target]
				request := Request{Seeds: []int64{from, from + 1, from + 2, from + 3, from + 4, from + 5, from + 6}}
				var sub Subgraph
				require.NoError(t, first.Draw(context.Background(), Key{}, request, &sub))
				d := Demand{Nodes: make([]int64, len(g.nodes)), Edges: sub.Rooms}
				hops := len(cfg.Fanouts[0]) + 1
				for i, n := range sub.NodesPerHop {
					d.Nodes[i/hops] += n
				}
				stamp := false
				w, err := s.NewWorker(mem.NewBudget(s.WorkerBytes(d, stamp)), stamp, 1)
				require.NoError(t, err)
				defer w.Close()
				require.NoError(t, w.Reserve(d))
				require.NoError(t, w.Draw(context.Background(), Key{}, request, &sub))
			})
		}
	}
}
