package sample

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// graphOf makes a graph of lists of sources.
func graphOf(lists ...[]int32) plainGraph {
	g := plainGraph{NumNodes: int64(len(lists)), Indptr: []int64{0}, Indices32: []int32{}}
	for _, list := range lists {
		g.Indices32 = append(g.Indices32, list...)
		g.Indptr = append(g.Indptr, int64(len(g.Indices32)))
	}
	return g
}

// expectedVisits returns the expected visits of a target's walk to each node, from the powers of the transition matrix.
func expectedVisits(g plainGraph, target int, w Walk) []float64 {
	n := int(g.NumNodes)
	at, visits := make([]float64, n), make([]float64, n)
	at[target] = 1
	for step := range w.Length {
		back := 0.
		if step > 0 {
			back = w.Restart
		}
		next, starts := make([]float64, n), make([]float64, n)
		for v, p := range at {
			starts[target] += back * p
			if g.Indptr[v] == g.Indptr[v+1] {
				starts[target] += (1 - back) * p
			} else {
				starts[v] += (1 - back) * p
			}
		}
		for v, p := range starts {
			list := g.Indices32[g.Indptr[v]:g.Indptr[v+1]]
			for _, u := range list {
				next[u] += p / float64(len(list))
			}
		}
		for v, p := range next {
			visits[v] += p
		}
		at = next
	}
	return visits
}

func TestWalksVisitAsOftenAsExpected(t *testing.T) {
	explore.Figures(t)
	graphs := map[string]plainGraph{
		"pair":     graphOf([]int32{1}, []int32{0}),
		"path":     graphOf([]int32{1}, []int32{0, 2}, []int32{1, 3}, []int32{2}),
		"dead end": graphOf([]int32{1, 2}, []int32{0, 2, 2}, []int32{}),
		"self":     graphOf([]int32{0, 1}, []int32{1}),
		"mixed":    graphOf([]int32{1, 2, 3, 4}, []int32{2, 2, 0}, []int32{5}, []int32{1, 4}, []int32{3, 3, 3, 0}, []int32{}),
	}
	for name, g := range graphs {
		for _, walk := range []Walk{{1, 1, 0}, {1, 5, 0}, {4, 3, .5}, {3, 6, .2}, {2, 4, .99}} {
			t.Run(fmt.Sprint(name, walk), func(t *testing.T) {
				const batches = 5000
				w := newWorker(t, g, plainConfig{Fanouts: []int64{All}, Walks: []Walk{walk}}, true, 1)
				sum, squares := make([]float64, g.NumNodes), make([]float64, g.NumNodes)
				var sub Subgraph
				for batch := range uint64(batches) {
					require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &sub))
					steps := 0.
					for e, row := range sub.Row {
						times := float64(sub.Weight[e])
						sum[sub.Nodes[row]] += times
						squares[sub.Nodes[row]] += times * times
						steps += times
					}
					require.EqualValues(t, walk.Walks*walk.Length, steps)
				}
				for v, want := range expectedVisits(g, 0, walk) {
					want *= float64(walk.Walks)
					mean := sum[v] / batches
					deviation := math.Sqrt(max(0, squares[v]/batches-mean*mean) / batches)
					require.LessOrEqual(t, math.Abs(mean-want), 5.5*deviation+1e-9, "node %d", v)
				}
			})
		}
	}
}

func TestWalksKeepTheMostVisited(t *testing.T) {
	// From 0 to one of 1 to 9 and back: three walks of two steps visit 0 three times.
	lists := [][]int32{{9, 8, 7, 6, 5, 4, 3, 2, 1}}
	for range 9 {
		lists = append(lists, []int32{0})
	}
	lists = append(lists, nil)
	g := graphOf(lists...)
	w := newWorker(t, g, plainConfig{Fanouts: []int64{2}, Walks: []Walk{{3, 2, 0}}}, true, 1)
	var sub Subgraph
	ties := 0
	for batch := range uint64(200) {
		require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0, 10}, &sub))
		require.Equal(t, []int64{0, 2, 2}, sub.Ptr) // node 10 has no in-edge
		require.Equal(t, []uint32{0, 2}, sub.Row)
		require.EqualValues(t, 3, sub.Weight[0])
		if sub.Weight[1] == 1 { // three different ones: the lowest
			ties++
			all := reference(g.Indptr, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0},
				plainConfig{Fanouts: []int64{All}, Walks: []Walk{{3, 2, 0}}}, Key{Batch: batch}, []int64{0})
			for _, v := range all.Nodes[1:] {
				require.LessOrEqual(t, sub.Nodes[2], v)
			}
		}
	}
	require.Greater(t, ties, 50)
	require.Nil(t, sub.Pos)
}

// gather against a map, on visits that repeat as they do in walks.
func TestGatherPartsVisits(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var w walker
	for range 2000 {
		visits := make([]int64, rng.IntN(40))
		for i := range visits {
			visits[i] = rng.Int64N(30)
		}
		slices.Sort(visits)
		times := map[int64]int64{}
		for _, v := range visits {
			times[v]++
		}
		var wantOften, wantOnce []int64
		for v := range int64(30) {
			switch n := times[v]; {
			case n > 1:
				wantOften = append(wantOften, (maxSteps-n)<<nodeBits|v)
			case n == 1:
				wantOnce = append(wantOnce, v)
			}
		}
		often, once := w.gather(visits)
		require.True(t, slices.Equal(wantOften, often), "often: want %v, got %v", wantOften, often)
		require.True(t, slices.Equal(wantOnce, once), "once: want %v, got %v", wantOnce, once)
	}
}
