package history

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

func newHistory(t testing.TB, c Config, row int64) *History {
	t.Helper()
	h, err := New(mem.NewBudget(0), c)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	if row > 0 {
		require.NoError(t, h.SetRow(row))
	}
	return h
}

// TestAdmissionCounts: k = floor(p*n + 0.5) whatever the norms are, the smallest of them, ties to the lower position.
func TestAdmissionCounts(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negative := float32(math.Copysign(0, -1))
	for name, c := range map[string]struct {
		fraction float64
		norms    []float32
		rows     []int32
		refused  int64
	}{
		"smallest":              {0.5, []float32{3, 1, 4, 2}, []int32{1, 3}, 0},
		"ties":                  {0.5, []float32{1, 1, 0, 1}, []int32{0, 2}, 0},
		"all equal":             {0.5, []float32{7, 7, 7, 7, 7, 7}, []int32{0, 1, 2}, 0},
		"half a row is a row":   {0.5, []float32{2, 1, 3}, []int32{0, 1}, 0},
		"less than half is not": {0.1, []float32{2, 1, 3, 4}, nil, 0},
		"zeros":                 {0.5, []float32{0, 0, 0, 0}, []int32{0, 1}, 0},
		"both zeros are one":    {0.25, []float32{0, negative, 0, negative}, []int32{0}, 0},
		"everything":            {1, []float32{3, 1, math.MaxFloat32}, []int32{0, 1, 2}, 0},
		"not finite":            {1, []float32{nan, 1, inf, -inf, 2}, []int32{1, 4}, 3},
		"not finite takes room": {0.4, []float32{nan, 1, inf, 3, 2}, []int32{1, 4}, 2},
		"only not finite":       {0.9, []float32{nan, inf}, nil, 2},
		"smallest of floats":    {0.5, []float32{1e-45, 0, 1e-45, 2e-45}, []int32{0, 1}, 0},
		"one":                   {0.5, []float32{5}, []int32{0}, 0},
		"none":                  {0.5, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, Config{NumNodes: 100, Layers: 1, Bytes: 800, Stale: 9, GradFraction: c.fraction,
				Policy: Gradient}, 8)
			var nodes []int64
			for range c.norms {
				nodes = append(nodes, int64(10*len(nodes)))
			}
			out := make([]Admitted, 1)
			require.NoError(t, h.Update(0, []Observed{{Nodes: nodes, Norms: c.norms}}, out))
			require.Equal(t, c.rows, out[0].Rows)
			require.Equal(t, c.refused, h.Stats().RefusedNotFinite)
			for row, node := range nodes {
				require.Equal(t, slices.Contains(c.rows, int32(row)), looked(h, 1, 1, node) != Miss)
			}
		})
	}
}

// TestSmallestEqualsSort: the selection against a sort.
func TestSmallestEqualsSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		keys := make([]uint32, 1+rng.IntN(50))
		for k := range keys {
			keys[k] = []uint32{rng.Uint32(), rng.Uint32N(4), never - rng.Uint32N(2), rng.Uint32N(3) << 24}[rng.IntN(4)]
		}
		sorted := slices.Sorted(slices.Values(keys))
		k := 1 + rng.IntN(len(keys))
		kth, ties := smallest(keys, k)
		require.Equal(t, sorted[k-1], kth)
		below, _ := slices.BinarySearch(sorted, kth)
		require.Equal(t, k-below, ties)
	}
}

// TestGradientsEvict: what is computed or read with a gradient above the threshold misses next time.
func TestGradientsEvict(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		fraction float64
		norms    []float32 // of computed rows
		hits     []float32 // of nodes 0, 1, ... which are cached
		stay     []bool
	}{
		"threshold":           {0.5, []float32{1, 9}, []float32{0, 1, 1.5, 9}, []bool{true, true, false, false}},
		"everything may stay": {1, []float32{1, 9}, []float32{5, 10, 1e30}, []bool{true, true, true}},
		"not finite":          {1, []float32{1}, []float32{nan, 1}, []bool{false, true}},
		"nothing computed":    {0.5, nil, []float32{5, 10}, []bool{true, true}},
		"k is 0":              {0.1, []float32{1}, []float32{0, 5}, []bool{false, false}},
		"threshold is no number, as of n rows k-1 are finite": {0.9, []float32{1, nan}, []float32{0, 5}, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, Config{NumNodes: 100, Layers: 1, Bytes: 800, Stale: 9, GradFraction: c.fraction,
				Policy: Gradient}, 8)
			o := Observed{}
			for node := range int64(20) { // enough that each of the hits enters
				o.Nodes, o.Norms = append(o.Nodes, node), append(o.Norms, float32(node))
			}
			out := make([]Admitted, 1)
			h.config.GradFraction = 1
			require.NoError(t, h.Update(0, []Observed{o}, out))
			h.config.GradFraction = c.fraction
			o = Observed{Norms: c.norms, HitNorms: c.hits}
			for k := range c.norms {
				o.Nodes = append(o.Nodes, int64(50+k))
			}
			evicted := int64(0)
			for k := range c.hits {
				require.NotEqual(t, int32(Miss), looked(h, 1, 1, int64(k)))
				o.HitNodes = append(o.HitNodes, int64(k))
				if !c.stay[k] {
					evicted++
				}
			}
			require.NoError(t, h.Update(1, []Observed{o}, out))
			for k, stays := range c.stay {
				require.Equal(t, stays, looked(h, 2, 1, int64(k)) != Miss, "hit %d", k)
			}
			require.Equal(t, evicted, h.Stats().Evicted)
		})
	}
}

// TestAllNeverEvicts: a slot for each row, written in place, until there is none.
func TestAllNeverEvicts(t *testing.T) {
	h := newHistory(t, Config{NumNodes: 10, Layers: 2, Bytes: 8 * 6, Stale: 1, GradFraction: 0.1, Policy: All}, 8)
	out := make([]Admitted, 2)
	observe := func(nodes ...int64) Observed {
		o := Observed{Nodes: nodes}
		for range nodes {
			o.Norms = append(o.Norms, 5)
		}
		return o
	}
	require.NoError(t, h.Update(0, []Observed{observe(1, 2), observe(1)}, out))
	require.Equal(t, []Admitted{{[]int32{0, 1}, []int32{1, 2}}, {[]int32{0}, []int32{0}}}, out)
	bad := observe(2, 1, 1)
	bad.Norms[0] = float32(math.NaN())
	bad.HitNodes, bad.HitNorms = []int64{7}, []float32{1e30}
	require.NoError(t, h.Update(1000, []Observed{bad, {HitNodes: []int64{1}, HitNorms: []float32{float32(math.Inf(1))}}},
		out))
	require.Equal(t, []int32{1}, out[0].Rows)
	require.Equal(t, []int32{1}, out[0].Slots)
	require.EqualValues(t, 0, h.Admission(1, 2), "not written, not evicted")
	require.EqualValues(t, 1000, h.Admission(1, 1))
	require.NotEqual(t, int32(Miss), looked(h, 1e12, 2, 1))
	require.NoError(t, h.Update(1001, []Observed{observe(3, 4, 5, 6, 1), {}}, out))
	require.Equal(t, []int32{0, 1, 2, 4}, out[0].Rows, "three slots are left, and 1 has one")
	h.Pin(1003, []int32{looked(h, 1003, 1, 1)})
	require.NoError(t, h.Update(1002, []Observed{observe(1, 2), {}}, out))
	require.Equal(t, []int32{1}, out[0].Rows, "a batch relies on 1")
	s := h.Stats()
	require.EqualValues(t, 1, s.RefusedFull)
	require.EqualValues(t, 1, s.RefusedPinned)
	require.EqualValues(t, 3, s.Replaced)
	require.Zero(t, s.Evicted+s.Overwritten+s.Expired)
	require.EqualValues(t, 6, s.Layers[0].Live+s.Layers[1].Live)
}
