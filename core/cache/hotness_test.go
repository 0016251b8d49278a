package cache

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// topBySorting is the definition: the k first by falling score, then rising row.
func topBySorting(h Hotness, k int) []uint32 {
	rows := make([]uint32, len(h))
	for i := range rows {
		rows[i] = uint32(i)
	}
	slices.SortStableFunc(rows, func(a, b uint32) int {
		switch {
		case h[a] > h[b]:
			return -1
		case h[a] < h[b]:
			return 1
		}
		return 0
	})
	rows = append([]uint32(nil), rows[:min(k, len(rows))]...)
	slices.Sort(rows)
	return rows
}

// vectorOf copies scores into memory of a budget.
func vectorOf(t *testing.T, budget *mem.Budget, h Hotness) *Vector {
	v, err := NewVector(budget, int64(len(h)))
	require.NoError(t, err)
	copy(v.Hotness, h)
	return v
}

func TestTopIsTheRanking(t *testing.T) {
	rng := explore.Rand(t, 3, 4)
	few, many := make(Hotness, 1000), make(Hotness, 1000)
	for i := range few {
		few[i] = float32(rng.IntN(4)) // many ties
		many[i] = rng.Float32() * 1e6
	}
	signed := Hotness{0, float32(math.Copysign(0, -1)), 1e-40, 0, float32(math.Copysign(0, -1))}
	budget := mem.NewBudget(0)
	for name, h := range map[string]Hotness{"few": few, "many": many, "equal": make(Hotness, 50), "signed": signed,
		"none": nil} {
		for _, k := range []int{-1, 0, 1, 2, 3, 249, 500, 999, 1000, 2000} {
			expected := topBySorting(h, max(k, 0))
			require.Equal(t, expected, slices.Collect(h.Top(int64(k))), "%s, k = %d", name, k)
			s := vectorOf(t, budget, h).Static(int64(k))
			var rows []uint32
			for slot, row := range s.Rows() {
				require.EqualValues(t, len(rows), slot)
				rows = append(rows, row)
			}
			require.Equal(t, expected, rows, "%s, k = %d", name, k)
			require.EqualValues(t, len(rows), s.Len())
			require.Equal(t, PolicyBytes("static", int64(len(h)), int64(k)), budget.Used())
			s.Close()
			require.Zero(t, budget.Used())
		}
	}
	for row := range many.Top(500) {
		require.Less(t, row, uint32(1000))
		break // the sequence may be left early
	}
}

func TestRenumberMovesScoresToRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, n := range []int{0, 1, 2, 3, 10, 500} {
		h, rowOf, want := make(Hotness, n), make([]uint32, n), make(Hotness, n)
		for node, row := range rng.Perm(n) {
			h[node], rowOf[node] = float32(rng.IntN(9)), uint32(row)
			want[row] = h[node]
		}
		h.Renumber(rowOf)
		require.Equal(t, want, h)
	}
}

func TestBreakTiesKeepsTheOrderOfTheRest(t *testing.T) {
	rng := explore.Rand(t, 6, 2)
	for _, epochs := range []float32{1, 3} {
		h, by := make(Hotness, 400), make(Hotness, 400)
		for i := range h {
			h[i], by[i] = float32(rng.IntN(5))/epochs, rng.Float32()*1000
		}
		broken := slices.Clone(h)
		broken.BreakTies(by, 1/epochs)
		for i := range h {
			for j := range h {
				if h[i] > h[j] || h[i] == h[j] && by[i] > by[j]+0.01 {
					require.Greater(t, broken[i], broken[j])
				}
			}
		}
		broken.BreakTies(make(Hotness, 400), 1)
		require.NotContains(t, broken, float32(math.NaN()))
	}
}

func TestDegreesAreCounts(t *testing.T) {
	g := newGraph(5, [][2]int64{{0, 1}, {0, 2}, {0, 2}, {3, 1}, {1, 4}}, 2)
	budget := mem.NewBudget(0)
	degree := func(counts []uint32) error {
		return g.Scan(context.Background(), func(_ int64, sources []int64) error {
			Count(counts, sources)
			return nil
		})
	}
	v, err := Counted(budget, 5, degree)
	require.NoError(t, err)
	require.Equal(t, Hotness{3, 1, 0, 1, 0}, v.Hotness)
	v.Close()
	v.Close()
	failed := errors.New("failed")
	_, err = Counted(budget, 5, func([]uint32) error { return failed })
	require.ErrorIs(t, err, failed)
	_, err = Counted(mem.NewBudget(19), 5, degree)
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Zero(t, budget.Used())
}

func TestCountsStopAtTheLargest(t *testing.T) {
	counts := []uint32{math.MaxUint32, math.MaxUint32 - 1}
	Count(counts, []uint32{0, 1})
	Count(counts, []int64{0, 1})
	require.Equal(t, []uint32{math.MaxUint32, math.MaxUint32}, counts)
}

func TestPreSCIsARecount(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	batches := randomBatches(rng, 300, 40, 250)
	want := make([]uint32, 300)
	for _, rows := range batches {
		for _, row := range rows {
			want[row]++
		}
	}
	budget := mem.NewBudget(0)
	for _, epochs := range []int{1, 2, 5} {
		c, err := NewCounter(budget, 300)
		require.NoError(t, err)
		for _, rows := range batches {
			c.Add(rows)
		}
		require.Equal(t, want, c.Counts())
		v := c.Hotness(epochs)
		for row, n := range want {
			require.Equal(t, float32(n)/float32(epochs), v.Hotness[row])
		}
		c.Close()
		require.Equal(t, int64(1200), budget.Used(), "the vector has the memory")
		v.Close()
		require.Zero(t, budget.Used())
	}
	c, err := NewCounter(budget, 300)
	require.NoError(t, err)
	c.Close()
	c.Close()
	require.Zero(t, budget.Used())
}

func TestRandomDependsOnSeedAndRow(t *testing.T) {
	budget := mem.NewBudget(0)
	score := func(numRows int64, seed uint64) Hotness {
		v, err := Random(budget, numRows, seed)
		require.NoError(t, err)
		defer v.Close()
		return slices.Clone(v.Hotness)
	}
	a, b := score(20000, 1), score(20000, 2)
	require.Equal(t, a, score(20000, 1))
	require.Equal(t, a[:100], score(100, 1))
	// Of independent tops of a half, a half is common: 5000, deviation 50.
	shared := common(slices.Collect(a.Top(10000)), slices.Collect(b.Top(10000)))
	require.InDelta(t, 5000, len(shared), 300)
	var tenths [10]int
	for _, s := range a {
		tenths[int(s*10)]++ // below 1, or this panics
	}
	for _, n := range tenths {
		require.InDelta(t, 2000, n, 250)
	}
}

func TestCheckSaysWhatAndWhere(t *testing.T) {
	require.NoError(t, Check([]float32{0, 1, math.MaxFloat32, float32(math.Copysign(0, -1))}, 4))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for message, scores := range map[string][]float32{
		"hotness of node 2 is NaN":             {0, 1, nan, 0},
		"hotness of node 0 is +Inf":            {inf, 1, 0, nan},
		"hotness of node 1 is -Inf":            {0, -inf, 0, 0},
		"hotness of node 3 is -0.5":            {0, 1, 2, -0.5},
		"3 scores, expected one for each of 4": {0, 1, 2},
		"0 scores":                             {},
		"5 scores":                             {1, 2, 3, 4, 5},
	} {
		err := Check(scores, 4)
		require.ErrorIs(t, err, ErrHotness)
		require.ErrorContains(t, err, message)
	}
}

// broken is an adjacency whose scan fails half-way.
type broken struct {
	graph
	err error
}

func (b *broken) Scan(ctx context.Context, visit func(int64, []int64) error) error {
	if err := visit(0, b.sources[:1]); err != nil {
		return err
	}
	return b.err
}

func TestMetricsReturnTheErrorsOfTheGraph(t *testing.T) {
	g := &broken{graph: *newGraph(3, [][2]int64{{0, 1}, {1, 2}}, 1), err: errors.New("unreadable")}
	budget := mem.NewBudget(0)
	sampling := drawn{BatchSize: 1, Fanouts: []int64{1, 2}}
	_, err := expected(context.Background(), budget, g, sampling)
	require.ErrorIs(t, err, g.err)
	require.Zero(t, budget.Used())

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = expected(ctx, budget, &g.graph, sampling)
	require.ErrorIs(t, err, context.Canceled)
	for limit := range ExpectedBytes(3) {
		small := mem.NewBudget(limit + 1)
		v, err := expected(context.Background(), small, &g.graph, sampling)
		if limit+1 < ExpectedBytes(3) {
			require.ErrorIs(t, err, mem.ErrBudget)
			require.Zero(t, small.Used())
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, 12, small.Used())
		v.Close()
	}
	for _, make := range []func(*mem.Budget) error{
		func(b *mem.Budget) error { _, err := NewCounter(b, 3); return err },
		func(b *mem.Budget) error { _, err := Random(b, 3, 1); return err },
	} {
		require.ErrorIs(t, make(mem.NewBudget(11)), mem.ErrBudget)
	}
	_, err = Random(budget, MaxRows+1, 1)
	require.ErrorIs(t, err, ErrCapacity)
}
