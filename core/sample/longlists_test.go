package sample

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// longHub is a target with more in-edges than are fetched at a time; from earlySource there is only its first edge,
// from lateSource its last.
const longHub, earlySource, lateSource = 2, 1501, 1500

// longLists is a graph with lists that end before, at and after what is fetched at a time.
func longLists() *testGraph {
	g, rng := &testGraph{indptr: make([]int64, 1)}, newReferenceRNG(3, 5)
	for v := range 2000 {
		deg := int64(v % 4)
		switch v {
		case longHub:
			deg = 2*FetchedEdges + 30000
		case 4:
			deg = FetchedEdges
		case 6:
			deg = FetchedEdges - 1
		}
		for range deg {
			g.wide = append(g.wide, rng.below(1000))
		}
		if v == longHub {
			g.wide[g.indptr[v]], g.wide[len(g.wide)-1] = earlySource, lateSource
		}
		g.indptr = append(g.indptr, int64(len(g.wide)))
	}
	for _, v := range g.wide {
		g.narrow = append(g.narrow, int32(v))
	}
	return g
}

// Lists of any length come whole, in pieces of no more than FetchedEdges edges.
func TestEachFetchedGivesListsInPieces(t *testing.T) {
	long := longLists()
	g := long.relation("adjacency")
	for _, targets := range [][]int64{{}, {0}, {longHub}, {4, 0, 6}, {0, 1, longHub, 3, 4, 5, 6, longHub, 8, 0}} {
		got, ended := make([][]int64, len(targets)), 0
		require.NoError(t, g.eachFetched(context.Background(), targets, func(p listPiece) {
			require.Equal(t, ended, p.target)
			require.LessOrEqual(t, len(p.ids), FetchedEdges)
			require.Equal(t, g.Indptr.Begin(targets[p.target])+int64(len(got[p.target])), p.first)
			if got[p.target] = append(got[p.target], p.ids...); p.last {
				ended++
			}
		}))
		require.Equal(t, len(targets), ended)
		for i, v := range targets {
			begin, end := g.Indptr.Range(v)
			require.True(t, slices.Equal(long.wide[begin:end], got[i]), "target %d of %v", v, targets)
		}
	}
}

// What is found in lists that are fetched in pieces is what is found in memory.
func TestLongListsAreSearchedToTheirEnd(t *testing.T) {
	long := longLists()
	memory, disk := long.relation("ram64"), long.relation("adjacency")
	links := []Link{{earlySource, longHub}, {lateSource, longHub}, {9, 4}, {999, 6}}
	var excluded [2]Subgraph
	for i, form := range []string{"ram64", "adjacency"} {
		w := newWorker(t, long.forms()[form], plainConfig{Fanouts: []int64{All}}, false, 1)
		r := Request{Seeds: []int64{longHub, 4, 5, 6}, Exclude: [][]Link{SortLinks(slices.Clone(links))}}
		require.NoError(t, w.Draw(context.Background(), Key{}, r, &excluded[i]))
	}
	requireEqual(t, excluded[0], excluded[1])
	require.NotContains(t, excluded[1].Nodes, int64(lateSource))

	n := &Negatives{NumSources: 2000, NumTargets: 2000, Strict: new(Strict)}
	var open [2][]proposal
	for i, g := range []*Relation{memory, disk} {
		for j, l := range append(links, Link{1400, longHub}, Link{lateSource, 5}) {
			open[i] = append(open[i], proposal{source: l.Source, target: l.Target, number: int32(j)})
		}
		require.NoError(t, n.mark(context.Background(), g, open[i]))
	}
	require.Equal(t, open[0], open[1])
	require.True(t, open[1][slices.IndexFunc(open[1], func(p proposal) bool {
		return p.source == lateSource && p.target == longHub
	})].taken)

	for _, source := range []int64{-1, earlySource, lateSource} {
		// With nearly all of the weight on the hub it is what is drawn, unless it is taken.
		n.Targets = make([]float64, 2000)
		for v := range n.Targets {
			n.Targets[v] = float64(v + 1)
			if v >= longHub {
				n.Targets[v] += 1e9
			}
		}
		for j := range uint64(5) {
			from, to, err := n.drawLeft(context.Background(), memory, stream(j), source, 0)
			require.NoError(t, err)
			gotFrom, gotTo, err := n.drawLeft(context.Background(), disk, stream(j), source, 0)
			require.NoError(t, err)
			require.Equal(t, Link{from, to}, Link{gotFrom, gotTo})
			require.Equal(t, source < 0, to == longHub)
		}
	}
}
