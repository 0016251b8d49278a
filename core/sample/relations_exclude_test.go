package sample

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/offsets"
)

// In trees a node is expanded in every tree that reaches it, in any hop, also along relations that the first hop does
// not draw along: a batch equals the batch of the graph without the excluded edges.
func TestExcludedEdgesOfTreesWithTypes(t *testing.T) {
	g := citations(explore.Seed(t, 7))
	seeds := [][]int64{{97, 1, 2, 97, 1100}, {4, 5, 699}, {3}, nil, {3, 4}}
	times := heteroTimes(g)
	var targets, leftTimes [][]int64 // not of seeds alone
	for _, r := range g.relations {
		var all []int64
		for v := range r.nodes() {
			if v%3 == 0 || slices.Contains(seeds[r.target], v) {
				all = append(all, v)
			}
		}
		targets = append(targets, all)
	}
	left, exclude, pos := g.excluding(targets, 2, 20) // of relation 2 nothing is
	for i, of := range pos {
		var kept []int64
		if times[i] != nil {
			kept = []int64{}
			for _, p := range of {
				kept = append(kept, times[i][p])
			}
		}
		leftTimes = append(leftTimes, kept)
	}
	first := newTypesWorker(t, g.form(0), Config{Fanouts: fanouts([]int64{1}, nil)}, true, 1).sampler.first
	var flat, at []int64
	for typ, of := range seeds {
		for i, v := range of {
			flat, at = append(flat, first[typ]+v), append(at, int64(60*i-30))
		}
	}
	key := Key{1, 2, 3}
	for _, how := range []*Temporal{nil, {}, {Last: true}, {Window: 90}} {
		for _, hops := range [][]int64{{5, 3}, {2, -1, 2}} {
			cfg := Config{Fanouts: fanouts(hops, map[int][]int64{0: append([]int64{0}, hops[1:]...)}), Disjoint: true,
				Replace: how == nil}
			request, ofLeft, ofAll := Request{Seeds: flat}, [][]int64(nil), [][]int64(nil)
			if how != nil {
				request.Times, ofLeft, ofAll = at, leftTimes, times
				cfg.Temporal = g.temporal(t, times, 0, *how)
			}
			want := left.reference(cfg, key, seeds, ofLeft, request.Times)
			whole := g.reference(cfg, key, seeds, ofAll, request.Times)
			for form := range 3 {
				if how != nil {
					cfg.Temporal = g.temporal(t, times, form, *how)
				}
				w := newTypesWorker(t, g.form(form), cfg, false, 1+form)
				for _, excluded := range []bool{true, false, true} { // the exclusion ends with its request
					r, expected := request, whole
					if excluded {
						r.Exclude, expected = exclude, want
					}
					var out Subgraph
					require.NoError(t, w.Draw(context.Background(), key, r, &out))
					got := w.sampler.cut(out)
					require.Equal(t, slices.Concat(expected.Trees...), slices.Clone(out.Tree))
					for typ, nodes := range expected.Nodes {
						require.True(t, slices.Equal(nodes, got.Nodes[typ]), "type %d", typ)
					}
					for i, e := range expected.Relations {
						positions := slices.Clone(e.Pos)
						for k, p := range positions {
							if excluded {
								positions[k] = pos[i][p]
							}
						}
						require.True(t, slices.Equal(positions, got.Relations[i].Pos), "relation %d", i)
						require.True(t, slices.Equal(e.Row, got.Relations[i].Row), "relation %d", i)
						require.True(t, slices.Equal(e.Ptr, got.Relations[i].Ptr), "relation %d", i)
					}
				}
			}
		}
	}
}

// Of a relation that draws by weight excluded edges weigh nothing.
func TestExcludedEdgesOfWeightedRelations(t *testing.T) {
	g := newWeightedGraph(300, explore.Seed(t, 9))
	seeds := slices.Compact(slices.Sorted(slices.Values(g.seeds(70, 9))))
	links := g.someLinks(seeds, 9)
	light := &weightedGraph{testGraph: g.testGraph, weights: slices.Clone(g.weights)}
	for v := range g.nodes() {
		for p := g.indptr[v]; p < g.indptr[v+1]; p++ {
			if slices.Contains(links, Link{g.wide[p], v}) {
				light.weights[p] = 0
			}
		}
	}
	hetero := Graph{NumNodes: []int64{g.nodes()},
		Relations: []Relation{{Indptr: offsets.Of(g.indptr), Indices32: g.narrow},
			{Indptr: offsets.Of(g.indptr), Indices64: g.wide}}, Named: true}
	draw := func(of *weightedGraph, r Request) (out Subgraph) {
		cfg := Config{Fanouts: [][]int64{{5}, {3}}, Weights: []*Weights{nil, of.with("ram64")}}
		s, err := New(hetero, cfg)
		require.NoError(t, err)
		require.Equal(t, hetero.Relations[1], *s.Relation(1))
		require.NoError(t, newTypesWorker(t, hetero, cfg, true, 2).Draw(context.Background(), Key{1, 2, 3}, r, &out))
		return out
	}
	want := draw(light, Request{Seeds: seeds})
	got := draw(g, Request{Seeds: seeds, Exclude: [][]Link{nil, links}})
	want.Room, want.Rooms = got.Room, got.Rooms
	requireEqual(t, want, got)
}

func TestWhatCannotBeExcludedOfRelations(t *testing.T) {
	g := citations(7)
	of := func(relation int, links ...Link) [][]Link {
		out := make([][]Link, 8)
		out[relation] = links
		return out
	}
	even := Config{Fanouts: fanouts([]int64{2}, nil)}
	labor := Config{Fanouts: fanouts([]int64{2}, nil), Sampler: &Labor{BatchDependency: 1}}
	for name, tt := range map[string]struct {
		cfg  Config
		r    Request
		says string
	}{
		"too few":    {even, Request{Exclude: [][]Link{{{1, 2}}}}, "of 1 relations, expected 8"},
		"not sorted": {even, Request{Exclude: of(3, Link{2, 2}, Link{1, 2})}, "relation 3"},
		"layers":     {labor, Request{Exclude: of(1, Link{1, 2})}, "LABOR"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTypesWorker(t, g.form(0), tt.cfg, true, 1)
			tt.r.Seeds = []int64{1, 2}
			out := Subgraph{Nodes: []int64{42}}
			err := w.Draw(context.Background(), Key{}, tt.r, &out)
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, Subgraph{Nodes: []int64{42}}, out)
			require.NoError(t, w.Draw(context.Background(), Key{}, Request{Seeds: []int64{1}}, &out))
		})
	}
}

// Negatives between two types: each end is a node of its own type, and the same number at both ends is a pair as any
// other.
func TestNegativesBetweenTypes(t *testing.T) {
	const sources, targets, draws = 5, 9, 40000
	rng := newReferenceRNG(8, 1)
	var some, most []Link
	for s := range int64(sources) {
		for v := range int64(targets) {
			if s != v && rng.below(10) < 2 {
				some = append(some, Link{s, v})
			}
			if s != v && (s == 2 || rng.below(10) < 8) {
				most = append(most, Link{s, v}, Link{s, v})
			}
		}
	}
	links := Links{Sources: []int64{4, 2}, Targets: []int64{8, 7}}
	for name, edges := range map[string][]Link{"sparse": some, "dense": most, "empty": nil} {
		for _, weighted := range []bool{false, true} {
			for _, given := range []bool{false, true} {
				for _, strict := range []bool{false, true} {
					t.Run(name, func(t *testing.T) {
						g := linked(targets, edges...)
						from, to := slices.Repeat([]float64{1}, sources), slices.Repeat([]float64{1}, targets)
						n := &Negatives{NumSources: sources, NumTargets: targets, Given: given, Apart: true}
						if weighted {
							from, to = []float64{1, 0, 2, 0.5, 3}, []float64{0, 1, 2, 1, 3, 0.25, 1, 0, 2}
							n.Sources, n.Targets = sums(t, from), sums(t, to)
						}
						if strict {
							g.strict(t, n, links, false)
						}
						source, target := make([]int64, draws), make([]int64, draws)
						for j := range source {
							source[j] = links.Sources[j%2]
						}
						require.NoError(t, n.Draw(context.Background(), g.relation("ram32"), Key{1, 2, 3}, source, target))
						want := map[Link]float64{}
						for s := range int64(sources) {
							for v := range int64(targets) {
								pair := Link{s, v}
								taken := slices.Contains(edges, pair) || pair == Link{4, 8} || pair == Link{2, 7}
								p := to[v]
								if strict && taken || given && !slices.Contains(links.Sources, s) {
									continue
								}
								if !given {
									p *= from[s]
								}
								want[pair] = p
							}
						}
						requirePairs(t, source, target, want, given)
					})
				}
			}
		}
	}
}
