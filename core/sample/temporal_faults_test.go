package sample

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/offsets"
)

func TestTemporalRefuses(t *testing.T) {
	g := newTimedGraph(100, 1)
	graph, times := g.forms()["ram32"], g.timeForms(t)["narrow"]
	for name, cfg := range map[string]plainConfig{
		"no times":    {Temporal: &Temporal{}},
		"window":      {Temporal: &Temporal{Times: times, Window: -1}},
		"too few":     {Temporal: &Temporal{Times: &Times{Ascending: g.times[1:]}}},
		"few orders":  {Temporal: &Temporal{Times: &Times{Ascending: g.times, Order32: times.Order32[1:]}}},
		"two orders":  {Temporal: &Temporal{Times: &Times{Ascending: g.times, Order32: times.Order32, Order64: g.times}}},
		"two sources": {Temporal: &Temporal{Times: &Times{Ascending: g.times, Source: g}}},
		"two kinds":   {Temporal: &Temporal{Times: &Times{Nodes: byNode(g.times[:100], 0), Source: g}}},
		"few nodes":   {Temporal: &Temporal{Times: &Times{Nodes: byNode(g.times[:99], 0)}}},
		"no form":     {Temporal: &Temporal{Times: &Times{Nodes: &TimesByNode{}}}},
		"two forms": {Temporal: &Temporal{Times: &Times{
			Nodes: &TimesByNode{Wide: g.times[:100], Source: fetchedNodeTimes{}},
		}}},
		"weights":      {Temporal: &Temporal{Times: times}, Weights: g.with("ram32")},
		"labor":        {Temporal: &Temporal{Times: times}, Labor: &Labor{BatchDependency: 1}},
		"trees, labor": {Disjoint: true, Labor: &Labor{BatchDependency: 1}},
		"trees, walks": {Disjoint: true, Walks: []Walk{{1, 1, 0}}},
	} {
		cfg.Fanouts = []int64{5}
		_, err := newPlain(graph, cfg)
		require.ErrorIs(t, err, ErrConfig, name)
	}
	var sub Subgraph
	w := newWorker(t, graph, plainConfig{Fanouts: []int64{5}, Temporal: &Temporal{Times: times}}, true, 1)
	require.ErrorIs(t, w.Sample(context.Background(), Key{}, []int64{1}, &sub), ErrConfig)
	require.ErrorIs(t, w.Draw(context.Background(), Key{}, Request{Seeds: []int64{1}, Times: []int64{1, 2}}, &sub),
		ErrConfig)
	require.ErrorIs(t, w.Draw(context.Background(), Key{}, Request{Seeds: []int64{100}, Times: []int64{1}}, &sub), ErrSeed)
	require.NoError(t, w.Draw(context.Background(), Key{}, Request{Seeds: []int64{1}, Times: []int64{1}}, &sub))
	w = newWorker(t, graph, plainConfig{Fanouts: []int64{5}, Disjoint: true}, true, 1)
	require.ErrorIs(t, w.Draw(context.Background(), Key{}, Request{Seeds: []int64{1}, Times: []int64{1}}, &sub), ErrConfig)
}

// A worker of trees holds what WorkerBytes says.
func TestTreesStayWithinWorkerBytes(t *testing.T) {
	g := newTimedGraph(2000, 7)
	seeds := g.seeds(60, 1)
	r := Request{Seeds: seeds, Times: g.seedTimes(len(seeds), 1)}
	forms, types := g.timeForms(t), plainTypes(g.testGraph)
	types.withNodeTimes(3)
	for form, name := range []string{"narrow nodes", "wide nodes", "source of nodes"} {
		forms[name] = &Times{Nodes: byNode(types.nodeTimes[0], form)}
	}
	for form, times := range forms {
		for place, graph := range g.forms() {
			for name, cfg := range temporalConfigs() {
				if name == "uniform large" && times.Source == nil && times.Nodes == nil {
					continue // large fanouts of uniform draws have sets that WorkerBytes leaves out
				}
				cfg.Temporal.Times = times
				s, err := newPlain(graph, cfg)
				require.NoError(t, err)
				budget := mem.NewBudget(0)
				w, err := s.NewWorker(budget, true, 1)
				require.NoError(t, err)
				var sub Subgraph
				require.NoError(t, w.Draw(context.Background(), Key{}, r, &sub))
				demand := plainDemand(int64(len(sub.Nodes)), sub.Room)
				w.Close()
				w, err = s.NewWorker(budget, true, 1)
				require.NoError(t, err)
				require.NoError(t, w.Reserve(demand))
				require.NoError(t, w.Draw(context.Background(), Key{}, r, &sub))
				require.LessOrEqual(t, budget.Used(), s.WorkerBytes(demand, true), "%s %s %s", name, form, place)
				w.Close()
				require.Zero(t, budget.Used())
			}
		}
	}
}

func TestSortTimesStopsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g := newTimedGraph(10, 1)
	require.ErrorIs(t, SortTimes(ctx, offsets.Of(g.indptr), g.times, make([]uint32, len(g.times))), context.Canceled)
}

type failingTimes struct{ *timedGraph }

func (failingTimes) FetchTimes(context.Context, Drawn, []int64) error {
	return context.DeadlineExceeded
}

// What a source of times returns comes through, and the Worker remains usable.
func TestFetchTimesErrorsComeThrough(t *testing.T) {
	g := newTimedGraph(200, 2)
	cfg := plainConfig{Fanouts: []int64{5, 5}, Temporal: &Temporal{Times: &Times{Source: failingTimes{g}}}}
	w := newWorker(t, g.forms()["ram32"], cfg, true, 1)
	r := Request{Seeds: g.seeds(20, 1), Times: g.seedTimes(20, 1)}
	sub := Subgraph{Room: 7}
	require.ErrorIs(t, w.Draw(context.Background(), Key{}, r, &sub), context.DeadlineExceeded)
	require.Equal(t, Subgraph{Room: 7}, sub)
	cfg.Temporal.Times.Source = g
	require.NoError(t, w.Draw(context.Background(), Key{}, r, &sub))
	requireEqual(t, referenceTrees(g.indptr, g.wide, g.times, cfg, Key{}, r), sub)
}

func (failingTimes) FetchNodeTimes(context.Context, []int64, []int64) error {
	return context.DeadlineExceeded
}

// What a source of times of nodes returns comes through, and so does what fetching the lists returns.
func TestFetchNodeTimesErrorsComeThrough(t *testing.T) {
	g := newTimedGraph(200, 2)
	types := plainTypes(g.testGraph)
	times := types.withNodeTimes(3)[0]
	of := new(TimesByNode)
	cfg := plainConfig{Fanouts: []int64{5, 5}, Temporal: &Temporal{Times: &Times{Nodes: of}}}
	r := Request{Seeds: g.seeds(20, 1), Times: g.seedTimes(20, 1)}
	for form, graph := range g.forms() {
		of.Source = failingTimes{g}
		w := newWorker(t, graph, cfg, true, 1)
		sub := Subgraph{Room: 7}
		require.ErrorIs(t, w.Draw(context.Background(), Key{}, r, &sub), context.DeadlineExceeded, form)
		require.Equal(t, Subgraph{Room: 7}, sub)
		of.Source = fetchedNodeTimes(types.nodeTimes[0])
		require.NoError(t, w.Draw(context.Background(), Key{}, r, &sub))
		requireEqual(t, referenceTrees(g.indptr, g.wide, times, cfg, Key{}, r), sub)
	}
}
