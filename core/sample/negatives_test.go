package sample

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// Scan implements Edges.
func (g *testGraph) Scan(_ context.Context, visit func(first int64, sources []int64) error) error {
	for first := 0; first < len(g.wide); first += 7 {
		if err := visit(int64(first), g.wide[first:min(first+7, len(g.wide))]); err != nil {
			return err
		}
	}
	return nil
}

// linked is a graph of these edges.
func linked(nodes int, edges ...Link) *testGraph {
	g := &testGraph{indptr: []int64{0}}
	for v := range int64(nodes) {
		for _, e := range edges {
			if e.Target == v {
				g.wide, g.narrow = append(g.wide, e.Source), append(g.narrow, int32(e.Source))
			}
		}
		g.indptr = append(g.indptr, int64(len(g.wide)))
	}
	return g
}

// dense is a graph with an edge between nearly all pairs of nodes, some of them twice.
func dense(nodes int, keep int64) *testGraph {
	rng := newReferenceRNG(4, 4)
	var edges []Link
	for s := range int64(nodes) {
		for t := range int64(nodes) {
			for range 1 + rng.below(2) {
				if rng.below(10) < keep {
					edges = append(edges, Link{s, t})
				}
			}
		}
	}
	return linked(nodes, edges...)
}

func (g *testGraph) strict(t *testing.T, n *Negatives, links Links, inGraph bool) {
	t.Helper()
	budget := mem.NewBudget(0)
	s, err := NewStrict(context.Background(), budget, n, offsets.Of(g.indptr), g, links, inGraph)
	require.NoError(t, err)
	require.Equal(t, budget.Used(), s.Bytes())
	n.Strict = s
	t.Cleanup(func() {
		s.Close()
		require.Zero(t, budget.Used())
	})
}

func (g *testGraph) relation(form string) *Relation {
	r := g.forms()[form].relation()
	return &r
}

// someWeights are weights of nodes, zeros at both ends and in the middle.
func someWeights(nodes int, seed uint64) []float64 {
	rng, w := newReferenceRNG(seed, 5), make([]float64, nodes)
	for v := range w {
		if v > 0 && v%5 != 3 && v < nodes-1 {
			w[v] = 0.5 + float64(rng.below(100))/20
		}
	}
	return w
}

func sums(t *testing.T, weights []float64) []float64 {
	if weights == nil {
		return nil
	}
	s := slices.Clone(weights)
	require.NoError(t, RunningSums(s))
	return s
}

// Every pair that is allowed is drawn as often as the weights of its ends say, and no other: sparse and dense graphs,
// given sources and drawn ones, strict or not.
func TestNegativesAreDrawnByWeight(t *testing.T) {
	explore.Figures(t)
	const nodes, draws = 12, 60000
	star := func() *testGraph { // one source is linked with nearly everything
		var edges []Link
		for v := range int64(nodes - 2) {
			edges = append(edges, Link{3, v}, Link{3, v}, Link{v, 4})
		}
		return linked(nodes, edges...)
	}()
	for name, g := range map[string]*testGraph{"sparse": dense(nodes, 1), "dense": dense(nodes, 5), "star": star,
		"empty": linked(nodes)} {
		for _, weighted := range []bool{false, true} {
			for _, given := range []bool{false, true} {
				for _, strict := range []bool{false, true} {
					t.Run(name, func(t *testing.T) {
						var from, to []float64
						if weighted {
							from, to = someWeights(nodes, 1), someWeights(nodes, 2)
						}
						links := Links{Sources: []int64{5, 3, 6}, Targets: []int64{5, 7, 8}}
						n := &Negatives{NumSources: nodes, NumTargets: nodes, Sources: sums(t, from), Targets: sums(t, to), Given: given}
						if strict {
							g.strict(t, n, links, false)
						}
						source, target := make([]int64, draws), make([]int64, draws)
						for j := range source {
							source[j] = links.Sources[j%3]
						}
						require.NoError(t, n.Draw(context.Background(), g.relation("ram32"), Key{1, 2, 3}, source, target))

						weight := func(w []float64, v int64) float64 {
							if w == nil {
								return 1
							}
							return w[v]
						}
						want := map[Link]float64{}
						for s := range int64(nodes) {
							for v := range int64(nodes) {
								taken := s == v || slices.Contains(g.wide[g.indptr[v]:g.indptr[v+1]], s) ||
									slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return links.Sources[i] == s && links.Targets[i] == v })
								p := weight(to, v)
								if strict && taken || given && !slices.Contains(links.Sources, s) {
									continue
								}
								if !given {
									p *= weight(from, s)
								}
								want[Link{s, v}] = p
							}
						}
						requirePairs(t, source, target, want, given)
					})
				}
			}
		}
	}
}

// A negative depends neither on where the graph is nor on the negatives beside it.
func TestNegativesAreTheSameFromDisk(t *testing.T) {
	g := newTestGraph(400, explore.Seed(t, 5))
	n := &Negatives{NumSources: g.nodes(), NumTargets: g.nodes(), Targets: sums(t, someWeights(int(g.nodes()), 3))}
	g.strict(t, n, Links{Sources: g.seeds(50, 1), Targets: g.seeds(50, 2)}, false)
	draw := func(form string, count int) [2][]int64 {
		source, target := make([]int64, count), make([]int64, count)
		require.NoError(t, n.Draw(context.Background(), g.relation(form), Key{1, 2, 3}, source, target))
		return [2][]int64{source, target}
	}
	want := draw("ram32", 5000)
	require.Equal(t, want, draw("ram64", 5000))
	require.Equal(t, want, draw("adjacency", 5000))
	few := draw("adjacency", 100)
	require.Equal(t, want[0][:100], few[0])
	require.Equal(t, want[1][:100], few[1])
	for j, s := range want[0] {
		require.NotContains(t, g.wide[g.indptr[want[1][j]]:g.indptr[want[1][j]+1]], s)
	}
}

// Negatives take their numbers from the stream that the package documents.
func TestNegativesStream(t *testing.T) {
	n := &Negatives{NumSources: 1000, NumTargets: 1000}
	source, target := make([]int64, 20), make([]int64, 20)
	require.NoError(t, n.Draw(context.Background(), nil, Key{7, 8, 9}, source, target))
	for j := range source {
		rng := newReferenceRNG(domainNegative, 7, 8, 9, uint64(j))
		require.Equal(t, rng.below(1000), source[j])
		require.Equal(t, rng.below(1000), target[j])
	}
}

func TestImpossibleNegatives(t *testing.T) {
	complete := func(nodes int) *testGraph {
		var edges []Link
		for s := range int64(nodes) {
			for v := range int64(nodes) {
				if s != v {
					edges = append(edges, Link{s, v})
				}
			}
		}
		return linked(nodes, edges...)
	}
	only := func(nodes, v int) []float64 {
		w := make([]float64, nodes)
		w[v] = 1
		return sums(t, w)
	}
	links := func(pairs ...Link) (l Links) {
		for _, p := range pairs {
			l.Sources, l.Targets = append(l.Sources, p.Source), append(l.Targets, p.Target)
		}
		return l
	}
	for _, tt := range []struct {
		name string
		g    *testGraph
		n    Negatives
		with Links
		free bool
	}{
		{"complete", complete(5), Negatives{}, links(Link{0, 1}), false},
		{"complete, for each source", complete(5), Negatives{Given: true}, links(Link{0, 1}), false},
		{"one node", linked(1), Negatives{}, links(Link{0, 0}), false},
		{"a full row", linked(3, Link{0, 1}, Link{0, 2}), Negatives{Given: true}, links(Link{0, 1}), false},
		{"a full row that is no link's", linked(3, Link{0, 1}, Link{0, 2}), Negatives{Given: true}, links(Link{1, 0}), true},
		{"a full row among others", linked(3, Link{0, 1}, Link{0, 2}), Negatives{}, links(Link{0, 1}), true},
		{"filled by the links", linked(3, Link{0, 1}), Negatives{Given: true}, links(Link{0, 2}), false},
		{"only one target has weight", linked(3, Link{0, 1}), Negatives{Given: true, Targets: only(3, 1)}, links(Link{0, 2}),
			false},
		{"only one pair has weight", linked(3, Link{0, 1}), Negatives{Sources: only(3, 0), Targets: only(3, 1)},
			links(Link{0, 2}), false},
		{"that pair is free", linked(3, Link{0, 1}), Negatives{Sources: only(3, 1), Targets: only(3, 0)}, links(Link{0, 2}),
			true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			budget := mem.NewBudget(0)
			tt.n.NumSources, tt.n.NumTargets = tt.g.nodes(), tt.g.nodes()
			s, err := NewStrict(context.Background(), budget, &tt.n, offsets.Of(tt.g.indptr), tt.g, tt.with, false)
			if !tt.free {
				require.ErrorIs(t, err, ErrNegative)
				require.Zero(t, budget.Used())
				return
			}
			require.NoError(t, err)
			s.Close()
		})
	}
}

func TestNegativesFaults(t *testing.T) {
	for _, bad := range [][]float64{{1, -1}, {1, math.NaN()}, {math.Inf(1)}, {0, 0}, {math.MaxFloat64, math.MaxFloat64}} {
		require.ErrorIs(t, RunningSums(bad), ErrConfig)
	}
	g := newTestGraph(100, 2)
	n := &Negatives{NumSources: g.nodes(), NumTargets: g.nodes()}
	for limit := int64(0); limit < 4000; limit += 500 { // too little memory at any step leaves nothing behind
		budget := mem.NewBudget(max(limit, 1))
		_, err := NewStrict(context.Background(), budget,
			&Negatives{NumSources: g.nodes(), NumTargets: g.nodes(), Given: true, Targets: sums(t, someWeights(100, 1))},
			offsets.Of(g.indptr), g, Links{Sources: g.seeds(90, 1), Targets: g.seeds(90, 2)}, false)
		if err != nil {
			require.ErrorIs(t, err, mem.ErrBudget)
			require.Zero(t, budget.Used())
		}
	}
	g = linked(100, Link{1, 2}, Link{3, 4}) // none of it is in memory
	g.strict(t, n, Links{}, true)
	require.Nil(t, n.Strict.dense)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	source, target := make([]int64, 10), make([]int64, 10)
	for _, form := range []string{"ram32", "ram64"} {
		require.ErrorIs(t, n.Draw(ctx, g.relation(form), Key{}, source, target), context.Canceled)
	}
	broken := errors.New("broken")
	edges := &Relation{Indptr: offsets.Of(g.indptr), Adjacency: failing{broken}}
	require.ErrorIs(t, n.Draw(context.Background(), edges, Key{}, source, target), broken)
	require.ErrorIs(t, (&Negatives{NumSources: 3, NumTargets: 3}).Draw(ctx, nil, Key{}, source, target), context.Canceled)
}

type failing struct{ err error }

func (f failing) Fetch(context.Context, Drawn, []int64) error { return f.err }
