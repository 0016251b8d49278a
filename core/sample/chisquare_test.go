package sample

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// chiLimit returns the bound that a chi-square of this many degrees of freedom exceeds once in a million (Wilson and
// Hilferty).
func chiLimit(freedom int) float64 {
	m := float64(freedom)
	return m * math.Pow(1-2/(9*m)+4.75*math.Sqrt(2/(9*m)), 3)
}

// requirePairs holds that pairs are drawn in proportion to their weights, and no others: those of each source by
// themselves where sources are given, for as many draws.
func requirePairs(t *testing.T, source, target []int64, weights map[Link]float64, given bool) {
	counts, draws, all := map[Link]float64{}, map[int64]float64{}, map[int64]float64{}
	group := func(source int64) int64 {
		if given {
			return source
		}
		return 0
	}
	for j, s := range source {
		counts[Link{s, target[j]}]++
		draws[group(s)]++
	}
	for pair, weight := range weights {
		all[group(pair.Source)] += weight
	}
	chi, freedom := 0., -1
	for pair, weight := range weights {
		of := group(pair.Source)
		expected := weight / all[of] * draws[of]
		if expected == 0 {
			require.Zero(t, counts[pair], pair)
			continue
		}
		chi += (counts[pair] - expected) * (counts[pair] - expected) / expected
		freedom++
	}
	for pair := range counts {
		require.Contains(t, weights, pair, "a pair that must not be drawn")
	}
	require.Less(t, chi, chiLimit(max(freedom, 1)))
}

// inclusionChi is the chi-square, of len(counts)-1 degrees of freedom, of how often each position was in n subsets of
// k.
func inclusionChi(counts []int, n, k int) float64 {
	d := float64(len(counts))
	p := float64(k) / d
	chi := 0.
	for _, c := range counts {
		diff := float64(c) - float64(n)*p
		chi += diff * diff
	}
	return chi / (float64(n) * p * (1 - p)) * (d - 1) / d
}

// uniformChi is the chi-square of counts that should be equal, of len(counts)-1 degrees of freedom.
func uniformChi(counts []int) float64 {
	total := 0
	for _, c := range counts {
		total += c
	}
	want, chi := float64(total)/float64(len(counts)), 0.
	for _, c := range counts {
		chi += (float64(c) - want) * (float64(c) - want) / want
	}
	return chi
}

// star is a graph in which node 0 has deg in-edges, from nodes 1 to deg.
func star(deg int) plainGraph {
	g := plainGraph{NumNodes: int64(deg + 1), Indptr: make([]int64, deg+2), Indices32: make([]int32, deg)}
	for i := range deg {
		g.Indptr[i+1], g.Indices32[i] = int64(deg), int32(i+1)
	}
	g.Indptr[deg+1] = int64(deg)
	return g
}

func TestEveryPositionIsDrawnEquallyOften(t *testing.T) {
	explore.Figures(t)
	const batches = 6000
	tests := []struct{ deg, k int }{
		{2, 1}, {3, 1}, {3, 2}, {11, 10}, {12, 5}, {63, 1}, {64, 1}, {64, 15}, {64, 63}, // drawMask
		{65, 1}, {65, 15}, {100, 32}, {1000, 10}, // drawScan
		{65, 64}, {100, 33}, {200, 199}, {1000, 40}, // drawSet
	}
	for _, tt := range tests {
		for _, replace := range []bool{false, true} {
			t.Run(fmt.Sprintf("deg=%d/k=%d/replace=%v", tt.deg, tt.k, replace), func(t *testing.T) {
				w := newWorker(t, star(tt.deg), plainConfig{Fanouts: []int64{int64(tt.k)}, Replace: replace}, true, 1)
				counts, places := make([]int, tt.deg), make([][]int, tt.k)
				for i := range places {
					places[i] = make([]int, tt.deg)
				}
				var sub Subgraph
				for batch := range uint64(batches) {
					if err := w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &sub); err != nil || len(sub.Pos) != tt.k {
						t.Fatalf("%d positions, %v", len(sub.Pos), err)
					}
					for i, p := range sub.Pos {
						counts[p]++
						places[i][p]++
					}
					if !replace && len(sub.Nodes) != 1+tt.k { // the sources of a star are distinct
						t.Fatalf("a position was drawn twice: %v", sub.Pos)
					}
				}
				if !replace {
					require.Less(t, inclusionChi(counts, batches, tt.k), chiLimit(tt.deg-1))
					return
				}
				require.Less(t, uniformChi(counts), chiLimit(tt.deg-1))
				for _, at := range []int{0, tt.k - 1} {
					require.Less(t, uniformChi(places[at]), chiLimit(tt.deg-1))
				}
			})
		}
	}
}

// The test above can fail: Floyd's method with the bound j for j+1, which never draws the last position at k = 1, does.
func TestInclusionChiFindsAWrongBound(t *testing.T) {
	const deg, k, batches = 12, 5, 20000
	counts := make([]int, deg)
	for batch := range uint64(batches) {
		rng, have := newReferenceRNG(batch), map[int64]bool{}
		for j := int64(deg - k); j < deg; j++ {
			v := rng.below(j)
			if have[v] {
				v = j
			}
			have[v] = true
			counts[v]++
		}
	}
	require.Greater(t, inclusionChi(counts, batches, k), chiLimit(deg-1))
}

func TestEverySubsetIsDrawnEquallyOften(t *testing.T) {
	counts := map[[2]int64]int{}
	out := make([]int64, 2)
	for node := range uint64(50000) {
		draw(stream(absorb(hopKey(Key{}, 0), node)), span{start: 100, deg: 6}, false, false, nil, out)
		counts[[2]int64{min(out[0], out[1]), max(out[0], out[1])}]++
	}
	require.Len(t, counts, 15)
	var all []int
	for _, c := range counts {
		all = append(all, c)
	}
	require.Less(t, uniformChi(all), chiLimit(14))
}

// Draws under keys that differ in one part are independent: their joint distribution is uniform.
func TestKeysThatDifferInOnePartAreIndependent(t *testing.T) {
	const deg = 8
	type key struct {
		Key
		hop  int
		node uint64
	}
	parts := map[string]func(k *key){
		"seed":  func(k *key) { k.Seed++ },
		"epoch": func(k *key) { k.Epoch++ },
		"batch": func(k *key) { k.Batch++ },
		"hop":   func(k *key) { k.hop++ },
		"node":  func(k *key) { k.node++ },
	}
	draw1 := func(k key) int {
		var out [1]int64
		draw(stream(absorb(hopKey(k.Key, k.hop), k.node)), span{deg: deg}, false, false, nil, out[:])
		return int(out[0])
	}
	for name, change := range parts {
		t.Run(name, func(t *testing.T) {
			joint := make([]int, deg*deg)
			for i := range 20000 {
				// All parts run through small numbers, as they do in use.
				a := key{Key{uint64(i % 10), uint64(i / 10 % 10), uint64(i / 100 % 10)}, i / 1000 % 2, uint64(i / 2000)}
				b := a
				change(&b)
				joint[draw1(a)*deg+draw1(b)]++
			}
			require.Less(t, uniformChi(joint), chiLimit(deg*deg-1))
		})
	}
}

func TestShuffleIsUniform(t *testing.T) {
	counts := map[[4]int64]int{}
	for epoch := range uint64(24000) {
		ids := [4]int64{0, 1, 2, 3}
		require.NoError(t, Shuffle(context.Background(), ids[:], 9, epoch))
		counts[ids]++
	}
	require.Len(t, counts, 24)
	var all []int
	for _, c := range counts {
		all = append(all, c)
	}
	require.Less(t, uniformChi(all), chiLimit(23))
}
