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

// weightedStar is a star whose in-edges have these weights.
func weightedStar(list []float64) (plainGraph, *Weights) {
	g := star(len(list))
	w := &Weights{Wide: list, Sums: make([]float64, SumsLen(int64(len(list))))}
	Sum(offsets.Of(g.Indptr), list, w.Sums)
	return g, w
}

// sequences gives the probability of every sequence of k draws from a list, one after the other among those that are
// left.
func sequences(list []float64, k int, visit func(seq []int, p float64)) {
	var grow func(seq []int, p float64)
	grow = func(seq []int, p float64) {
		if len(seq) == k {
			visit(seq, p)
			return
		}
		left := 0. // added up anew: what is left of a huge sum must not be a difference
		for i, w := range list {
			if !slices.Contains(seq, i) {
				left += w
			}
		}
	next:
		for i, w := range list {
			for _, j := range seq {
				if i == j {
					continue next
				}
			}
			if w > 0 {
				grow(append(seq, i), p*w/left)
			}
		}
	}
	grow(nil, 1)
}

// requireFrequency fails where count successes in n trials of probability p are beyond 5.5 standard deviations, as
// happens once in 26 million.
func requireFrequency(t *testing.T, count, n int, p float64, what ...any) {
	t.Helper()
	require.LessOrEqual(t, math.Abs(float64(count)-float64(n)*p), 5.5*math.Sqrt(float64(n)*p*(1-p))+1e-9, what...)
}

// ramp is deg weights from 1 to 3, with a few zeros, the last element above 0.
func ramp(deg int) []float64 {
	list := make([]float64, deg)
	for i := range list {
		if i%5 != 3 || i == deg-1 {
			list[i] = 1 + 2*float64(i)/float64(deg)
		}
	}
	return list
}

// The first edges are drawn with the probabilities of the sequential process, each by itself and in pairs, and every
// edge is in the batch as often as the process says.
func TestWeightedProbabilities(t *testing.T) {
	explore.Figures(t)
	const batches = 30000
	heavy := func(deg int) []float64 { // the search gets stuck at once: the race draws all but one
		list := ramp(deg)
		list[deg/2] = 1e12
		return list
	}
	tests := []struct {
		name string
		list []float64
		k    int
	}{
		{"race", ramp(4), 2},
		{"race of all but one", ramp(6), 4},
		{"one of two", []float64{1, 3}, 1},
		{"search in a remainder", ramp(9), 1},
		{"search in a block", ramp(16), 3},
		{"search in blocks", ramp(41), 2},
		{"search, two of many", ramp(150), 2},
		{"one edge of many", ramp(150), 1},
		{"heavy", heavy(40), 3},
		{"tiny beside huge", []float64{1, 1e30, 1, 1, 1, 1, 1, 1}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, weights := weightedStar(tt.list)
			w := newWorker(t, g, plainConfig{Fanouts: []int64{int64(tt.k)}, Weights: weights}, true, 1)
			deg := len(tt.list)
			seen, first, pairs := make([]int, deg), make([]int, deg), make([][2]float64, deg*deg)
			var sub Subgraph
			for batch := range uint64(batches) {
				require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &sub))
				if len(sub.Pos) != tt.k || len(sub.Nodes) != 1+tt.k { // the sources of a star are distinct
					t.Fatalf("drew %v", sub.Pos)
				}
				for _, p := range sub.Pos {
					seen[p]++
				}
				first[sub.Pos[0]]++
				pairs[int(sub.Pos[0])*deg+int(sub.Pos[tt.k-1])][0]++
			}
			in, begin := make([]float64, deg), make([]float64, deg)
			sequences(tt.list, tt.k, func(seq []int, p float64) {
				for _, i := range seq {
					in[i] += p
				}
				begin[seq[0]] += p
				pairs[seq[0]*deg+seq[tt.k-1]][1] += p
			})
			for i := range tt.list {
				requireFrequency(t, seen[i], batches, min(1, in[i]), "edge %d", i)
				requireFrequency(t, first[i], batches, min(1, begin[i]), "edge %d as the first", i)
			}
			if tt.k > 1 && deg < 20 {
				for i, pair := range pairs {
					requireFrequency(t, int(pair[0]), batches, min(1, pair[1]), "first and last %d, %d", i/deg, i%deg)
				}
			}
		})
	}
}

// Where the lists are long, the edges not drawn first follow the same process: what is in k = 10 of d has a probability
// that the race, written down plainly, gives too.
func TestWeightedSearchAgreesWithRace(t *testing.T) {
	explore.Figures(t)
	const deg, k, batches = 300, 10, 20000
	list := ramp(deg)
	for i := range list {
		list[i] *= list[i] * list[i]
	}
	g, weights := weightedStar(list)
	w := newWorker(t, g, plainConfig{Fanouts: []int64{k}, Weights: weights}, true, 1)
	counts, race := make([]int, deg), make([]int, deg)
	var sub Subgraph
	var th thread
	out := make([]int64, k)
	for batch := range uint64(batches) {
		require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &sub))
		require.Equal(t, k, raceOn(&th, stream(absorb(77, batch)), list, 0, out))
		for i := range out {
			counts[sub.Pos[i]]++
			race[out[i]]++
		}
	}
	for i := range list {
		p := float64(counts[i]+race[i]) / (2 * batches)
		require.LessOrEqual(t, math.Abs(float64(counts[i]-race[i])), 5.5*math.Sqrt(2*batches*p*(1-p))+1e-9, "edge %d", i)
	}
}

func TestWeightedReplacement(t *testing.T) {
	explore.Figures(t)
	const batches, k = 20000, 3
	for _, deg := range []int{1, 2, 15, 16, 17, 100} {
		t.Run(fmt.Sprint(deg), func(t *testing.T) {
			list, total := ramp(deg), 0.
			for _, w := range list {
				total += w
			}
			g, weights := weightedStar(list)
			w := newWorker(t, g, plainConfig{Fanouts: []int64{k}, Replace: true, Weights: weights}, true, 1)
			var counts [k][]int
			for i := range counts {
				counts[i] = make([]int, deg)
			}
			var sub Subgraph
			for batch := range uint64(batches) {
				require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &sub))
				require.Len(t, sub.Pos, k)
				for i, p := range sub.Pos {
					counts[i][p]++
				}
			}
			for i := range counts {
				for p, n := range counts[i] {
					requireFrequency(t, n, batches, list[p]/total, "draw %d of edge %d", i, p)
				}
			}
		})
	}
}

func TestWeightsOfZero(t *testing.T) {
	zeros := make([]float64, 50)
	few := make([]float64, 50)
	few[7], few[49] = 1e-300, 2
	for _, replace := range []bool{false, true} {
		for _, k := range []int64{1, 10, 30, 50, 100, All} {
			g, weights := weightedStar(zeros)
			var sub Subgraph
			w := newWorker(t, g, plainConfig{Fanouts: []int64{k}, Replace: replace, Weights: weights}, true, 1)
			require.NoError(t, w.Sample(context.Background(), Key{}, []int64{0, 1}, &sub))
			require.Empty(t, sub.Pos)
			require.Equal(t, []int64{0, 0, 0}, sub.Ptr)

			g, weights = weightedStar(few)
			w = newWorker(t, g, plainConfig{Fanouts: []int64{k}, Replace: replace, Weights: weights}, true, 1)
			for batch := range uint64(50) {
				require.NoError(t, w.Sample(context.Background(), Key{Batch: batch}, []int64{0}, &sub))
				for _, p := range sub.Pos {
					require.Positive(t, few[p])
				}
				if !replace && k != 1 {
					require.ElementsMatch(t, []int64{7, 49}, sub.Pos)
				}
			}
		}
	}
}

// Sums of float32 would stop growing at 2^24 equal weights; ours do not.
func TestManyEqualWeightsStayUniform(t *testing.T) {
	explore.Figures(t)
	const deg, k, parts, draws = 1 << 25, 10, 64, 20000
	list, sums := make([]float32, deg), make([]float64, SumsLen(deg))
	for i := range list {
		list[i] = 0.1
	}
	Sum(offsets.Of([]int64{0, deg}), list, sums)
	counts := make([]int, parts)
	var th thread
	out := make([]int64, k)
	for i := range uint64(draws / k) {
		require.Equal(t, k, drawLong(&th, stream(absorb(3, i)), list, sums, false, out))
		for _, p := range out {
			counts[p/(deg/parts)]++
		}
	}
	require.Less(t, uniformChi(counts), chiLimit(parts-1))
}

func TestWrongSamplers(t *testing.T) {
	g, weights := weightedStar([]float64{1, 2, 3})
	sums := weights.Sums
	tests := []struct {
		message string
		cfg     plainConfig
	}{
		{"sample: 2 weights, expected 3 as indptr ends", plainConfig{Weights: &Weights{Wide: []float64{1, 2}, Sums: sums}}},
		{"sample: 6 weights, expected 3 as indptr ends",
			plainConfig{Weights: &Weights{Wide: []float64{1, 2, 3}, Narrow: []float32{1, 2, 3}, Sums: sums}}},
		{"sample: 1 sums of weights, expected 0",
			plainConfig{Weights: &Weights{Wide: []float64{1, 2, 3}, Sums: []float64{1}}}},
		{"sample: weights in memory and a source of weights, expected one of them",
			plainConfig{Weights: &Weights{Wide: []float64{1}, Source: &weightedGraph{}}}},
		{"sample: batch dependency 0, expected 1 to 2147483647", plainConfig{Labor: &Labor{}}},
		{"sample: walks for 2 hops, expected 1 as there are fanouts", plainConfig{Walks: []Walk{{1, 1, 0}, {1, 1, 0}}}},
		{"sample: 0 walks of length 3 in hop 0, expected at least 1 of each and at most 1048576 steps",
			plainConfig{Walks: []Walk{{0, 3, 0}}}},
		{"sample: 3 walks of length 0 in hop 0, expected at least 1 of each and at most 1048576 steps",
			plainConfig{Walks: []Walk{{3, 0, 0}}}},
		{"sample: 2000 walks of length 2000 in hop 0, expected at least 1 of each and at most 1048576 steps",
			plainConfig{Walks: []Walk{{2000, 2000, 0}}}},
		{"sample: restart 1 in hop 0, expected a probability in [0, 1)", plainConfig{Walks: []Walk{{1, 1, 1}}}},
		{"sample: restart NaN in hop 0, expected a probability in [0, 1)", plainConfig{Walks: []Walk{{1, 1, math.NaN()}}}},
	}
	for _, tt := range tests {
		tt.cfg.Fanouts = []int64{2}
		_, err := newPlain(g, tt.cfg)
		require.ErrorIs(t, err, ErrConfig)
		require.EqualError(t, err, tt.message+": invalid sampler")
	}
}

// TestFind compares the search of a point with a scan of running sums: at every sum, and just below and above it, in
// lists with zeros and of every length of the last block.
func TestFind(t *testing.T) {
	for n := 1; n < 5*sumBlock; n++ {
		list := make([]float64, n)
		for i := range list {
			list[i] = float64(i * 7 % 5) // 0 in every fifth place, the first one, and in the last place of some
		}
		list[n/2]++
		sums, running := make([]float64, n/sumBlock), 0.
		points := []float64{0}
		for i, w := range list {
			if running += w; i%sumBlock == sumBlock-1 {
				sums[i/sumBlock] = running
			}
			points = append(points, math.Nextafter(running, 0), running, math.Nextafter(running, math.Inf(1)))
		}
		for _, u := range points {
			want, sum := -1, 0.
			last := 0
			for i, w := range list {
				if sum += w; want < 0 && sum > u {
					want = i
				}
				if w > 0 {
					last = i
				}
			}
			if want < 0 {
				want = last
			}
			require.Equal(t, want, find(list, sums, u), "%d weights, point %v", n, u)
		}
	}
}
