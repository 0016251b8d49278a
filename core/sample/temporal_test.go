package sample

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/offsets"
)

// referenceAllowed is the positions of a list that a seed of time t sees, in order of time.
func referenceAllowed(indptr, times []int64, cfg *Temporal, t, v int64) (positions []int64) {
	for p := indptr[v]; p < indptr[v+1]; p++ {
		if times[p] <= t && (cfg.Window == 0 || t < math.MinInt64+cfg.Window || times[p] > t-cfg.Window) {
			positions = append(positions, p)
		}
	}
	slices.SortStableFunc(positions, func(a, b int64) int {
		switch {
		case times[a] < times[b]:
			return -1
		case times[a] > times[b]:
			return 1
		}
		return 0
	})
	return positions
}

// timedGraph is a test graph with times, a few hundred of them, so that many are equal, and the two ends of all times.
type timedGraph struct {
	*weightedGraph
	times []int64
}

func newTimedGraph(nodes int, seed uint64) *timedGraph {
	g := &timedGraph{weightedGraph: newWeightedGraph(nodes, seed)}
	rng := newReferenceRNG(seed, 3)
	for range g.weights {
		t := rng.below(300) - 100
		switch rng.below(100) {
		case 0:
			t = math.MinInt64
		case 1:
			t = math.MaxInt64
		}
		g.times = append(g.times, t)
	}
	return g
}

func (g *timedGraph) FetchTimes(_ context.Context, d Drawn, out []int64) error {
	for i, v := range d.Targets {
		if d.Ptr[i+1]-d.Ptr[i] != g.indptr[v+1]-g.indptr[v] {
			return fmt.Errorf("%d edges of target %d, want its list", d.Ptr[i+1]-d.Ptr[i], v)
		}
		for e := d.Ptr[i] - d.Ptr[0]; e < d.Ptr[i+1]-d.Ptr[0]; e++ {
			if d.Pos[e] != g.indptr[v]+e-(d.Ptr[i]-d.Ptr[0]) {
				return fmt.Errorf("position %d of target %d", d.Pos[e], v)
			}
			out[e] = g.times[d.Pos[e]]
		}
	}
	return nil
}

// timeForms are the ways in which times can be given: with either order, fetched.
func (g *timedGraph) timeForms(t testing.TB) map[string]*Times {
	narrow := &Times{Ascending: slices.Clone(g.times), Order32: make([]uint32, len(g.times))}
	require.NoError(t, SortTimes(context.Background(), offsets.Of(g.indptr), narrow.Ascending, narrow.Order32))
	wide := &Times{Ascending: slices.Clone(g.times), Order64: make([]int64, len(g.times))}
	require.NoError(t, SortTimes(context.Background(), offsets.Of(g.indptr), wide.Ascending, wide.Order64))
	require.False(t, TimesAscend(offsets.Of(g.indptr), g.times))
	require.True(t, TimesAscend(offsets.Of(g.indptr), wide.Ascending))
	return map[string]*Times{"narrow": narrow, "wide": wide, "source": {Source: g}}
}

// sorted has the times of each list in ascending order, so that times in memory need no order.
func (g *timedGraph) sorted() *timedGraph {
	sorted := &timedGraph{weightedGraph: g.weightedGraph, times: slices.Clone(g.times)}
	for v := range g.nodes() {
		slices.Sort(sorted.times[g.indptr[v]:g.indptr[v+1]])
	}
	return sorted
}

func (g *timedGraph) seedTimes(n int, seed uint64) []int64 {
	rng, times := newReferenceRNG(seed, 4), make([]int64, n)
	for i := range times {
		times[i] = rng.below(320) - 110
	}
	times[0], times[n-1] = math.MinInt64, math.MaxInt64
	return times
}

// temporalConfigs are the ways to draw by time.
func temporalConfigs() map[string]plainConfig {
	draw := func(t Temporal, replace bool, fanouts ...int64) plainConfig {
		return plainConfig{Fanouts: fanouts, Replace: replace, Temporal: &t}
	}
	return map[string]plainConfig{
		"uniform":         draw(Temporal{}, false, 10, 5),
		"uniform 1":       draw(Temporal{}, false, 1, 1, 1),
		"uniform large":   draw(Temporal{}, false, 32, 40),
		"uniform all":     draw(Temporal{}, false, -1, 2),
		"uniform replace": draw(Temporal{}, true, 10, 5),
		"last":            draw(Temporal{Last: true}, false, 10, 5),
		"last all":        draw(Temporal{Last: true}, false, 3, -1),
		"last replace":    draw(Temporal{Last: true}, true, 10, 5),
		"window":          draw(Temporal{Window: 50}, false, 10, 5),
		"window of one":   draw(Temporal{Window: 1}, false, -1, 5),
		"window of all":   draw(Temporal{Window: math.MaxInt64}, false, 5, 5),
		"window last":     draw(Temporal{Window: 50, Last: true}, false, 10, 5),
	}
}

// Every allowed edge of a hub is drawn equally often, and no other, in every tree of a batch.
func TestTemporalDrawsEveryAllowedPositionEquallyOften(t *testing.T) {
	explore.Figures(t)
	const batches, trees = 1500, 4
	for _, tt := range []struct{ deg, allowed, k int }{
		{20, 0, 3}, {20, 1, 1}, {20, 5, 5}, {20, 5, 9}, {20, 12, 1}, {20, 12, 5}, {90, 64, 15}, {200, 65, 15}, {200, 100, 33},
		{200, 199, 198},
	} {
		for _, replace := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v/replace=%v", tt, replace), func(t *testing.T) {
				g := star(tt.deg)
				times := make([]int64, tt.deg) // a permutation of 0 to deg-1
				for i := range times {
					times[i] = int64(i*7+3) % int64(tt.deg)
					if tt.deg%7 == 0 {
						times[i] = int64(i)
					}
				}
				ascending, order := slices.Clone(times), make([]uint32, tt.deg)
				require.NoError(t, SortTimes(context.Background(), offsets.Of(g.Indptr), ascending, order))
				cfg := plainConfig{Fanouts: []int64{int64(tt.k)}, Replace: replace,
					Temporal: &Temporal{Times: &Times{Ascending: ascending, Order32: order}}}
				w := newWorker(t, g, cfg, true, 1)
				counts := make([]int, tt.allowed)
				r := Request{Seeds: make([]int64, trees), Times: make([]int64, trees)}
				for i := range r.Times {
					r.Times[i] = int64(tt.allowed) - 1
				}
				var sub Subgraph
				for batch := range uint64(batches) {
					if err := w.Draw(context.Background(), Key{Batch: batch}, r, &sub); err != nil {
						t.Fatal(err)
					}
					for _, p := range sub.Pos {
						counts[times[p]]++ // panics for the future
					}
				}
				n := batches * trees
				switch {
				case tt.allowed == 0:
					require.Empty(t, sub.Pos)
				case replace:
					require.Less(t, uniformChi(counts), chiLimit(max(tt.allowed-1, 1)))
				case tt.k >= tt.allowed:
					for _, c := range counts {
						require.Equal(t, n, c)
					}
				default:
					require.Less(t, inclusionChi(counts, n, tt.k), chiLimit(tt.allowed-1))
				}
			})
		}
	}
}

// Trees that reach the same node draw its neighbours independently: pairs of draws are equally often everything.
func TestTreesAreIndependent(t *testing.T) {
	const deg, batches = 8, 12000
	w := newWorker(t, star(deg), plainConfig{Fanouts: []int64{1}, Disjoint: true}, true, 1)
	pairs := make([]int, deg*deg)
	var sub Subgraph
	for batch := range uint64(batches) {
		require.NoError(t, w.Draw(context.Background(), Key{Batch: batch}, Request{Seeds: []int64{0, 0}}, &sub))
		pairs[sub.Pos[0]*deg+sub.Pos[1]]++
	}
	require.Less(t, uniformChi(pairs), chiLimit(deg*deg-1))
}

func TestGoldenTrees(t *testing.T) {
	want := map[string]uint64{
		"disjoint":          0x3a48fa3a1f5a16f5,
		"disjoint weighted": 0x738ca6b9eb99cdd5,
		"last":              0xf9a051bfd3d71ea5,
		"last all":          0x92bcd97918abc74d,
		"last replace":      0x373d5083852d04e4,
		"uniform":           0xb853f5455817f8f7,
		"uniform 1":         0x51f2df52a59705db,
		"uniform all":       0x5d238adbc61f5eea,
		"uniform large":     0x29388c3302ed6f7d,
		"uniform replace":   0x74e7fd38559ae969,
		"window":            0x2098c22e36c77f95,
		"window last":       0x8165efae46cf4ae3,
		"window of all":     0x51db5e62b5cb8cbe,
		"window of one":     0x51ac641a15442e96,
	}
	g := newTimedGraph(3000, 7)
	seeds := g.seeds(100, 5)
	configs := temporalConfigs()
	for _, cfg := range configs {
		cfg.Temporal.Times = g.timeForms(t)["narrow"]
	}
	configs["disjoint"] = plainConfig{Fanouts: []int64{15, 10}, Disjoint: true}
	configs["disjoint weighted"] = plainConfig{Fanouts: []int64{15, 10}, Disjoint: true, Weights: g.with("ram32")}
	for name, cfg := range configs {
		r := Request{Seeds: seeds}
		if cfg.Temporal != nil {
			r.Times = g.seedTimes(len(seeds), 6)
		}
		w := newWorker(t, g.forms()["ram32"], cfg, true, 2)
		var sub Subgraph
		require.NoError(t, w.Draw(context.Background(), Key{1, 2, 3}, r, &sub))
		if got := digest(t, sub.Nodes, sub.Tree, sub.Ptr, sub.Row, sub.Pos); got != want[name] {
			t.Errorf("%q: %#x,", name, got)
		}
	}
}
