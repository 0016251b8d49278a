package cache

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// weightList is weights in memory, by position.
type weightList []float64

func (w weightList) Fetch(_ context.Context, first int64, out []float64) error {
	copy(out, w[first:first+int64(len(out))])
	return nil
}

// chancesOf a list, by itself at the end of others.
func chancesOf(t *testing.T, list []float64, k int64, replace bool) (p []float64) {
	all := append(weightList{3, 0, 1}, list...)
	w := window{weights: all, end: int64(len(all))}
	require.NoError(t, w.begin(context.Background(), 3, int64(len(all)), k, replace))
	for _, x := range list {
		p = append(p, w.chance.of(x))
	}
	return p
}

// TestChance compares with many races of exponential clocks.
func TestChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	const races = 20_000
	for _, c := range []struct {
		name   string
		n      int
		weight func(i int) float64
	}{
		{"uniform", 12, func(int) float64 { return rng.Float64() }},
		{"skewed", 40, func(int) float64 { return math.Exp(3 * rng.NormFloat64()) }},
		{"some zero", 30, func(i int) float64 { return float64(i % 3) }},
		{"one large", 10, func(i int) float64 { return 1 + 1e6*float64(i/9) }},
	} {
		list := make([]float64, c.n)
		for i := range list {
			list[i] = c.weight(i)
		}
		for _, k := range []int64{1, 3, 8} {
			drawn := make([]float64, c.n)
			type clock struct {
				rings float64
				i     int
			}
			for range races {
				var clocks []clock
				for i, w := range list {
					if w > 0 {
						clocks = append(clocks, clock{rng.ExpFloat64() / w, i})
					}
				}
				slices.SortFunc(clocks, func(a, b clock) int { return cmp.Compare(a.rings, b.rings) })
				for _, first := range clocks[:k] {
					drawn[first.i] += 1. / races
				}
			}
			sum, worst := 0., 0.
			for i, p := range chancesOf(t, list, k, false) {
				require.InDelta(t, drawn[i], p, 0.045, "%s, %d draws, weight %v", c.name, k, list[i])
				sum, worst = sum+p, max(worst, math.Abs(p-drawn[i]))
			}
			t.Logf("%s, %d draws: off by %.3f at most", c.name, k, worst)
			require.InEpsilon(t, float64(k), sum, 0.01, "%s, %d draws", c.name, k)
		}
	}
}

func TestChanceIsExact(t *testing.T) {
	long := make([]float64, 3*windowWeights+5) // more than a window
	for i := range long {
		long[i] = 1 + float64(i%2)
	}
	for _, p := range chancesOf(t, slices.Repeat([]float64{0.3}, 20), 5, false) {
		require.InEpsilon(t, 0.25, p, 1e-3)
	}
	require.Equal(t, []float64{1, 0, 1}, chancesOf(t, []float64{2, 0, 1e-300}, 2, false), "as many as there are")
	require.Equal(t, []float64{1, 0, 1}, chancesOf(t, []float64{2, 0, 1e-300}, -1, false))
	require.Equal(t, []float64{0, 0}, chancesOf(t, []float64{0, 0}, 3, false))
	require.Equal(t, []float64{0, 0}, chancesOf(t, []float64{0, 0}, 3, true))
	require.Equal(t, []float64{1}, chancesOf(t, []float64{7}, 2, true))
	require.InEpsilon(t, 1-math.Pow(0.75, 3), chancesOf(t, []float64{2, 6}, 3, true)[0], 1e-12)
	sum := 0.
	for _, p := range chancesOf(t, long, 100, false) {
		sum += p
	}
	require.InEpsilon(t, 100, sum, 2e-3)
	for _, p := range chancesOf(t, []float64{1e290, 1e-300, 5e-324, 1, 1e-20, 1e20}, 3, false) { // all magnitudes
		require.GreaterOrEqual(t, p, 0.)
		require.LessOrEqual(t, p, 1.)
	}
	require.InEpsilon(t, 0.5, chancesOf(t, []float64{5e-324, 5e-324}, 1, false)[0], 1e-2)
}

type noWeights struct{ error }

func (w noWeights) Fetch(context.Context, int64, []float64) error { return w.error }

func TestWeightsThatCannotBeRead(t *testing.T) {
	g := newGraph(3, [][2]int64{{0, 1}, {1, 2}}, 2)
	broken := errors.New("broken")
	budget := mem.NewBudget(0)
	_, err := expected(context.Background(), budget, g,
		drawn{BatchSize: 1, Fanouts: []int64{1}, Weights: noWeights{broken}})
	require.ErrorIs(t, err, broken)
	require.Zero(t, budget.Used())
}
