package sample

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// heteroTimes gives the relations of citations times, but for two.
func heteroTimes(g *testTypes) [][]int64 {
	times := make([][]int64, len(g.relations))
	for i, r := range g.relations {
		if i == 1 || i == 5 {
			continue
		}
		rng := newReferenceRNG(uint64(i), 3)
		times[i] = []int64{}
		for range r.wide {
			times[i] = append(times[i], rng.below(300)-100)
		}
		if i == 0 { // in order already
			for v := range len(r.indptr) - 1 {
				slices.Sort(times[i][r.indptr[v]:r.indptr[v+1]])
			}
		}
	}
	return times
}

// withNodeTimes gives the nodes of every other type times, in each form's range, and returns the times of the edges.
func (g *testTypes) withNodeTimes(seed uint64) [][]int64 {
	rng := newReferenceRNG(seed, 6)
	g.nodeTimes = make([][]int64, len(g.nodes))
	for t, n := range g.nodes {
		if t%2 == 1 {
			continue
		}
		g.nodeTimes[t] = make([]int64, n)
		for v := range g.nodeTimes[t] {
			g.nodeTimes[t][v] = rng.below(300) - 100
		}
	}
	times := make([][]int64, len(g.relations))
	for i, r := range g.relations {
		of := g.nodeTimes[r.source]
		if of == nil {
			continue
		}
		times[i] = make([]int64, len(r.wide))
		for p, v := range r.wide {
			times[i][p] = of[v]
		}
	}
	return times
}

// byNode returns times of nodes in one of three forms: narrow, wide, fetched.
func byNode(times []int64, form int) *TimesByNode {
	switch form % 3 {
	case 0:
		narrow := &TimesByNode{Least: slices.Min(times), Narrow: make([]uint32, len(times))}
		for v, time := range times {
			narrow.Narrow[v] = uint32(time - narrow.Least)
		}
		return narrow
	case 1:
		return &TimesByNode{Wide: times}
	}
	return &TimesByNode{Source: fetchedNodeTimes(times)}
}

// hubOrders returns long lists of a graph: most of its hubs.
func hubOrders(t testing.TB, g *testGraph, times *TimesByNode) *LongLists {
	r, budget := Relation{Indptr: offsets.Of(g.indptr), Indices64: g.wide}, mem.NewBudget(0)
	most := int64(len(g.wide)) * 3
	l, err := NewLongLists(context.Background(), &r, times, most, budget)
	require.NoError(t, err)
	require.LessOrEqual(t, budget.Used(), most)
	t.Cleanup(func() {
		l.Close()
		require.Zero(t, budget.Used())
	})
	return l
}

// fetchedNodeTimes is a source of times of nodes.
type fetchedNodeTimes []int64

func (f fetchedNodeTimes) FetchNodeTimes(_ context.Context, nodes, out []int64) error {
	for i, v := range nodes {
		out[i] = f[v]
	}
	return nil
}

// temporal returns the configuration of those relations: times of edges in memory, with an order and without, or
// fetched; or times of nodes.
func (g *testTypes) temporal(t testing.TB, times [][]int64, form int, how Temporal) []*Temporal {
	out := make([]*Temporal, len(g.relations))
	for i, r := range g.relations {
		if times[i] == nil {
			continue
		}
		one := how
		one.Times = &Times{Ascending: slices.Clone(times[i])}
		switch {
		case g.nodeTimes != nil:
			one.Times = &Times{Nodes: byNode(g.nodeTimes[r.source], i+form)}
			if form%2 == 0 && one.Times.Nodes.Source == nil {
				one.Times.Long = hubOrders(t, r.testGraph, one.Times.Nodes)
			}
		case (i+form)%3 == 0:
			one.Times = &Times{Source: &timedGraph{weightedGraph: &weightedGraph{testGraph: r.testGraph}, times: times[i]}}
		case TimesAscend(offsets.Of(r.indptr), times[i]):
		case form == 1:
			one.Times.Order64 = make([]int64, len(times[i]))
			require.NoError(t, SortTimes(context.Background(), offsets.Of(r.indptr), one.Times.Ascending, one.Times.Order64))
		default:
			one.Times.Order32 = make([]uint32, len(times[i]))
			require.NoError(t, SortTimes(context.Background(), offsets.Of(r.indptr), one.Times.Ascending, one.Times.Order32))
		}
		out[i] = &one
	}
	return out
}

// heteroSeeds returns batches of one type and of several, and their times; some see nothing and some everything.
func heteroSeeds() (batches [][][]int64, times [][]int64) {
	batches = [][][]int64{
		{{97, 3, 97}, nil, nil, nil, nil},
		{nil, nil, {7}, nil, nil},
		make([][]int64, 5),
		{{97, 5, 97, 5}, {97, 97, 1}, nil, nil, {0, 0}},
		{{1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 2}, {7, 8}, nil, {1}},
	}
	rng := newReferenceRNG(11, 4)
	for _, seeds := range batches {
		of := []int64{}
		for range slices.Concat(seeds...) {
			of = append(of, rng.below(320)-110)
		}
		if len(of) > 3 {
			of[0], of[3] = math.MinInt64, math.MaxInt64
		}
		times = append(times, of)
	}
	return batches, times
}

// A flat batch has its trees by type, whatever the order of the seeds of different types, and each seed its own time.
func TestFlatTrees(t *testing.T) {
	g := citations(explore.Seed(t, 7))
	times := heteroTimes(g)
	cfg := Config{Fanouts: fanouts([]int64{5, 3}, nil), Temporal: g.temporal(t, times, 0, Temporal{})}
	w := newTypesWorker(t, g.form(0), cfg, true, 2)
	first := w.sampler.first
	request := Request{Seeds: []int64{first[4] + 3, 97, first[1] + 4, 1, first[1] + 5, 97},
		Times: []int64{1, 2, 3, 4, 5, 6}}
	seeds, seedTimes := [][]int64{{97, 1, 97}, {4, 5}, nil, nil, {3}}, []int64{2, 4, 6, 3, 5, 1}
	for batch := range uint64(3) {
		var flat Subgraph
		require.NoError(t, w.Draw(context.Background(), Key{Batch: batch}, request, &flat))
		nodes, trees := slices.Clone(flat.Nodes), slices.Clone(flat.Tree)
		want := g.reference(cfg, Key{Batch: batch}, seeds, times, seedTimes)
		require.Equal(t, slices.Concat(want.Trees...), trees)
		at := 0
		for typ, of := range want.Nodes {
			for _, v := range of {
				require.Equal(t, first[typ]+v, nodes[at])
				at++
			}
		}
		require.Len(t, nodes, at)
	}
}

// These numbers are a promise, as those of golden_test.go are.
func TestGoldenTreesOfTypes(t *testing.T) {
	g := citations(7)
	times := heteroTimes(g)
	batches, seedTimes := heteroSeeds()
	w := newTypesWorker(t, g.form(0), Config{Fanouts: fanouts([]int64{5, 3, 2}, nil),
		Temporal: g.temporal(t, times, 1, Temporal{})}, true, 2)
	var sub cutBatch
	require.NoError(t, w.SampleTimed(context.Background(), Key{1, 2, 3}, batches[4], seedTimes[4], &sub))
	var all []any
	for i, nodes := range sub.Nodes {
		all = append(all, nodes, sub.Trees[i])
	}
	for _, r := range sub.Relations {
		all = append(all, r.Ptr, r.Row, r.Pos)
	}
	require.Equal(t, uint64(0x5c07a4ab016d9b57), digest(t, all...))
}

// Within its demand a worker of trees allocates nothing, times that are fetched included.
func TestReservedTreesOfTypes(t *testing.T) {
	g := citations(7)
	times := heteroTimes(g)
	batches, seedTimes := heteroSeeds()
	for form := range 3 {
		s, err := New(g.form(form), Config{Fanouts: fanouts([]int64{5, 5}, nil),
			Temporal: g.temporal(t, times, form, Temporal{})})
		require.NoError(t, err)
		budget, stamp := mem.NewBudget(0), true
		w, err := s.NewWorker(budget, stamp, 2)
		require.NoError(t, err)
		d := Demand{Nodes: []int64{4000, 4000, 4000, 10, 4000},
			Edges: []int64{20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000}}
		require.NoError(t, w.Reserve(d))
		for i, seeds := range batches {
			var out cutBatch
			require.NoError(t, cutWorker{w}.SampleTimed(context.Background(), Key{}, seeds, seedTimes[i], &out))
		}
		require.LessOrEqual(t, budget.Peak(), s.WorkerBytes(d, stamp))
		w.Close()
		require.Zero(t, budget.Used())
	}
}

func TestWrongTreesOfTypes(t *testing.T) {
	g := citations(3)
	temporal := g.temporal(t, heteroTimes(g), 1, Temporal{})
	base := fanouts([]int64{3}, nil)
	for name, c := range map[string]struct {
		cfg     Config
		message string
	}{
		"relations": {Config{Temporal: temporal[1:]}, "times of 7 relations, expected 8"},
		"labor": {Config{Disjoint: true, Sampler: &Labor{BatchDependency: 1}},
			"sample: LABOR cannot be combined with disjoint=True; uniform draws, weight_attr and time_attr can"},
		"labor, where others have times": {
			Config{Temporal: append(make([]*Temporal, 7), temporal[7]), Sampler: &Labor{BatchDependency: 1}},
			"sample: LABOR cannot be combined with time_attr",
		},
		"window": {Config{Temporal: append([]*Temporal{{Times: temporal[0].Times, Window: -1}}, temporal[1:]...)},
			"relation 0: sample: a window of -1"},
		"induced": {Config{Disjoint: true, Subgraph: Induced},
			`subgraph_type="induced" cannot be combined with disjoint=True: it joins`},
	} {
		c.cfg.Fanouts = base
		_, err := New(g.form(0), c.cfg)
		require.ErrorIs(t, err, ErrConfig, name)
		require.ErrorContains(t, err, c.message)
	}
	w := newTypesWorker(t, g.form(0), Config{Fanouts: base, Temporal: temporal}, true, 1)
	out := Subgraph{Nodes: []int64{42}}
	for _, times := range [][]int64{nil, {1}, {1, 2, 3}} {
		require.ErrorIs(t, w.Draw(context.Background(), Key{}, Request{Seeds: []int64{1, 2}, Times: times}, &out), ErrConfig)
	}
	w = newTypesWorker(t, g.form(0), Config{Fanouts: base, Disjoint: true}, true, 1)
	require.ErrorIs(t, w.Draw(context.Background(), Key{}, Request{Seeds: []int64{1}, Times: []int64{1}}, &out), ErrConfig)
	require.Equal(t, Subgraph{Nodes: []int64{42}}, out)
}
