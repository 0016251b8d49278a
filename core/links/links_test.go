package links

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

// Numbering by sorting and by a table over all nodes is the same.
func TestEndsAreNumberedAlike(t *testing.T) {
	var few, many Places
	var fewer, more sample.Request
	few.Ends = []int64{9, 3, 3, 7, 0, 9}
	many.Ends = slices.Clone(few.Ends)
	few.unique(&fewer, 10)
	many.unique(&more, 1<<40)
	require.Equal(t, []int64{0, 3, 7, 9}, fewer.Seeds)
	require.Equal(t, fewer.Seeds, more.Seeds)
	require.Equal(t, []int64{3, 1, 1, 2, 0, 3}, few.Ends)
	require.Equal(t, few.Ends, many.Ends)
}

// between is edges from 4 nodes to 5 nodes of another type, which come before them.
func between() Relation {
	return Relation{
		Source: 1, Target: 0, NumSources: 4, NumTargets: 5, FirstSource: 5, FirstTarget: 0, NumNodes: 9, NumEdges: 3,
		NumRelations: 2, Name: "(a, to, b)", OfSource: ` of type "a"`, OfTarget: ` of type "b"`,
	}
}

func TestChecks(t *testing.T) {
	one := []int64{1}
	for text, o := range map[string]Options{
		"1 sources and 0 targets":                            {Sources: one},
		"names no link":                                      {Sources: []int64{}, Targets: []int64{}},
		"negatives for each link must be 0 to 1048576":       {Sources: one, Targets: one, Negatives: -1},
		"a whole number of negatives for each link, got 1.5": {Sources: one, Targets: one, Negatives: 1.5, Triplets: true},
		"a whole number of negatives for each link, got 0":   {Sources: one, Targets: one, Triplets: true},
		"unknown exclusion 3":                                {Sources: one, Targets: one, Exclude: 3},
		"src_weight must have an entry for each of 4 nodes":  {Sources: one, Targets: one, SourceWeights: []float64{1}},
		`for each of 5 nodes of type "b", got 1`:             {Sources: one, Targets: one, TargetWeights: []float64{1}},
		`[0, 0] is 4, expected an id in [0, 4) of type "a"`:  {Sources: []int64{4}, Targets: one},
		`[1, 1] is -1, expected an id in [0, 5) of type "b"`: {Sources: []int64{1, 1}, Targets: []int64{1, -1}},
		"every edge is a link, but (a, to, b) has none":      {Relation: 1},
	} {
		of := between()
		if o.Relation == 1 {
			of.NumEdges = 0
		}
		require.ErrorContains(t, errors.Join(o.Check(&of), o.CheckEnds(&of)), text)
	}
	plain := Relation{}
	require.EqualError(t, new(Options).Check(&plain), "every edge is a link, but the graph has none")
	of, good := between(), Options{Sources: one, Targets: one, Negatives: 2.5}
	require.NoError(t, errors.Join(good.Check(&of), good.CheckEnds(&of)))
	bad := Options{Sources: []int64{4}, Targets: one}
	require.ErrorIs(t, bad.CheckEnds(&of), sample.ErrSeed)
}

// few is a graph of three edges between two types, with times of nodes where these are given.
type few struct {
	times  map[int][]int64
	sorted bool // the number of each edge is its position
	err    error
}

func (g few) HasTimes(typ int) bool { return g.times[typ] != nil }

func (g few) NodeTimes(_ context.Context, typ int, times []int64) error {
	copy(times, g.times[typ])
	return g.err
}

func (g few) Edges(context.Context) (Edges, error) { return g, g.err }

func (g few) Indptr() *offsets.Table { return offsets.Of([]int64{0, 1, 1, 3, 3, 3}) }

func (g few) Scan(_ context.Context, visit func(int64, []int64) error) error {
	return visit(0, []int64{3, 0, 2})
}

func (g few) Numbers(context.Context) (sample.Edges, error) {
	if g.sorted {
		return nil, g.err
	}
	return numbers{2, 1, 0}, g.err
}

// numbers is the number of each edge, by position.
type numbers []int64

func (n numbers) Scan(_ context.Context, visit func(int64, []int64) error) error { return visit(0, n) }

func newLinks(t *testing.T, o *Options, disjoint bool, g Graph) *Links {
	t.Helper()
	budget := mem.NewBudget(0)
	k, err := Open(context.Background(), budget, o, between(), disjoint, g)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Equal(t, budget.Used(), k.Bytes()-16*int64(len(o.Sources)))
		k.Close()
		k.Close()
		require.Zero(t, budget.Used())
	})
	return k
}

// Without links every edge is one, in the user's order.
func TestEveryEdgeIsALink(t *testing.T) {
	for sorted, want := range map[bool][2][]int64{
		false: {{2, 0, 3}, {2, 2, 0}}, true: {{3, 0, 2}, {0, 2, 2}},
	} {
		g := few{sorted: sorted}
		k := newLinks(t, &Options{}, false, g)
		require.Equal(t, EveryEdgeBytes(3, !sorted), k.Bytes())
		require.EqualValues(t, 3, k.Count())
		edges := &sample.Relation{Source: 1, Target: 0, Indptr: g.Indptr(), Indices64: []int64{3, 0, 2}}
		for _, links := range [][]int64{{0, 1, 2}, {2}, {1, 0, 1}} {
			var scratch []int64
			sources, targets := make([]int64, len(links)), make([]int64, len(links))
			require.NoError(t, k.every.ends(context.Background(), edges, links, &scratch, sources, targets))
			for i, link := range links {
				require.Equal(t, []int64{want[0][link], want[1][link]}, []int64{sources[i], targets[i]})
			}
		}
		other := k.With([]int64{1}, []int64{4})
		require.EqualValues(t, 1, other.Count())
		require.False(t, other.Reads())
	}
	require.EqualValues(t, 4<<30, EveryEdgeBytes(1<<30, true))
	require.EqualValues(t, 8<<32, EveryEdgeBytes(1<<32, true))
}

func TestWhatCannotBeRead(t *testing.T) {
	failure := errors.New("disk")
	for name, o := range map[string]Options{
		"edges": {}, "times": {Sources: []int64{1}, Targets: []int64{1}, Negatives: 1},
		"strict": {Sources: []int64{1}, Targets: []int64{1}, Negatives: 1, Strict: true},
	} {
		budget := mem.NewBudget(0)
		g := few{err: failure}
		if name == "times" {
			g.times = map[int][]int64{0: make([]int64, 5)}
		}
		_, err := Open(context.Background(), budget, &o, between(), false, g)
		require.ErrorIs(t, err, failure, name)
		require.Zero(t, budget.Used(), name)
	}
	budget := mem.NewBudget(0)
	o := Options{Sources: []int64{1}, Targets: []int64{1}, Negatives: 1, TargetWeights: []float64{0, 0, 0, 0, 0}}
	_, err := Open(context.Background(), budget, &o, between(), false, few{})
	require.ErrorIs(t, err, sample.ErrConfig)
	require.ErrorContains(t, err, "dst_weight: ")
	require.Zero(t, budget.Used())
}

// A request of links without negatives, by hand: seeds of both types ascend, ends count within their type.
func TestRequest(t *testing.T) {
	o := &Options{Sources: []int64{3, 1, 3, 0}, Targets: []int64{4, 2, 2, 4}, Exclude: ExcludeBoth, Reverse: 1}
	var r sample.Request
	var p Places
	key := sample.Key{Seed: 1}
	require.NoError(t, newLinks(t, o, false, few{}).Request(context.Background(), nil, key, []int64{0, 2, 1}, &r, &p))
	require.Equal(t, []int64{2, 4, 5 + 1, 5 + 3}, r.Seeds)
	require.Equal(t, []int64{1, 1, 0, 1, 0, 0}, p.Ends) // sources, then targets
	link := func(source, target int64) sample.Link { return sample.Link{Source: source, Target: target} }
	excluded := [][]sample.Link{{link(1, 2), link(3, 2), link(3, 4)}, {link(2, 1), link(2, 3), link(4, 3)}}
	require.Equal(t, excluded, r.Exclude)

	r = sample.Request{Times: []int64{10, 20, 30}}
	require.NoError(t, newLinks(t, o, true, few{}).Request(context.Background(), nil, key, []int64{0, 2, 1}, &r, &p))
	require.Equal(t, []int64{5 + 3, 5 + 3, 5 + 1, 4, 2, 2}, r.Seeds)
	require.Equal(t, []int64{10, 20, 30, 10, 20, 30}, r.Times)
	require.Equal(t, []int64{0, 1, 2, 0, 1, 2}, p.Ends)
}

// Negatives of triplets have the sources of their links, are no edges where that is asked for, and are not later than
// these.
func TestNegativesOfTriplets(t *testing.T) {
	g := few{times: map[int][]int64{0: {1, 9, 2, 9, 2}}}
	o := &Options{Sources: []int64{3, 0}, Targets: []int64{4, 4}, Negatives: 3, Triplets: true, Strict: true}
	k := newLinks(t, o, false, g)
	require.True(t, k.Strict())
	edges := &sample.Relation{Source: 1, Target: 0, Indptr: g.Indptr(), Indices64: []int64{3, 0, 2}}
	require.NoError(t, k.Earliest(context.Background(), edges, 2))
	require.ErrorIs(t, k.Earliest(context.Background(), edges, 0), sample.ErrNegative)
	seen := map[sample.Link]bool{}
	for batch := range uint64(20) {
		r, p := sample.Request{Times: []int64{2, 5}}, Places{}
		require.NoError(t, k.Request(context.Background(), edges, sample.Key{Batch: batch}, []int64{0, 1}, &r, &p))
		tensors := k.Tensors(&p, 2)
		require.Equal(t, []int64{2, 3}, tensors[2].Shape)
		for j, place := range tensors[2].Places {
			seen[sample.Link{Source: []int64{3, 0}[j/3], Target: r.Seeds[place]}] = true
		}
	}
	// Of source 3 the edge to 0 and the link to 4 are taken, of source 0 the edge to 2 and the link to 4.
	require.Equal(t, map[sample.Link]bool{{Source: 3, Target: 2}: true, {Source: 0, Target: 0}: true}, seen)
}

func TestCountsAndNames(t *testing.T) {
	var none *Options
	require.Zero(t, none.NumEnds(7))
	require.EqualValues(t, 7, none.NumTimes(7))
	pair, triple, of := &Options{Negatives: 1.5}, &Options{Negatives: 2, Triplets: true}, between()
	require.EqualValues(t, 2*(3+5), pair.NumEnds(3))
	require.EqualValues(t, 3+5, pair.NumTimes(3))
	require.EqualValues(t, 2*3+6, triple.NumEnds(3))
	for end, want := range []int64{0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 2} {
		require.Equal(t, want, pair.LinkOf(int64(end), 3))
	}
	require.Equal(t, []Name{{OfRelation, "p"}}, pair.TimeNames(&of, "p", "s"))
	require.Equal(t, []Name{{OfSources, "s"}, {OfTargets, "s"}}, triple.TimeNames(&of, "p", "s"))
	require.Equal(t, []Name{{OfSources, "s"}}, triple.TimeNames(new(Relation), "p", "s"))
	require.LessOrEqual(t, len(pair.Names()), MaxTensors)
}
