package main

import (
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/store"
)

func batch64(ids ...int64) store.Source {
	return store.Source{Mem: unsafe.Pointer(unsafe.SliceData(ids)), DType: manifest.DType_INT64,
		Shape: []int64{int64(len(ids))}}
}

func batch32(ids ...int32) store.Source {
	return store.Source{Mem: unsafe.Pointer(unsafe.SliceData(ids)), DType: manifest.DType_INT32,
		Shape: []int64{int64(len(ids))}}
}

func TestATraceIsCopiedAsItIs(t *testing.T) {
	budget := mem.NewBudget(0)
	got, err := readTrace(t.Context(), []store.Source{batch64(3, 0, 9), batch32(), batch32(9, 3), batch64(3)}, 10, budget)
	require.NoError(t, err)
	assert.Equal(t, []plan.Batch{{3, 0, 9}, {}, {9, 3}, {3}}, got.batches)
	got.free()
	assert.Zero(t, budget.Used())
}

func TestATraceThatIsNoneIsRefused(t *testing.T) {
	strided, flat := batch64(1, 2, 3, 4), batch64(1)
	strided.Shape, strided.Strides = []int64{2}, []int64{16}
	flat.Shape = []int64{1, 1}
	real := batch64(1)
	real.DType = manifest.DType_FLOAT64
	for want, c := range map[string]struct {
		batches []store.Source
		err     error
	}{
		"trace[1][2] is 10, expected an id in [0, 10)": {[]store.Source{batch64(1, 2), batch64(1, 2, 10)}, errArgument},
		"trace[0][0] is -1":                            {[]store.Source{batch32(-1)}, errArgument},
		"trace[2] has the id 7 twice": {[]store.Source{batch64(7), batch64(1, 7), batch32(7, 1, 7)},
			errArgument},
		"trace[0] has shape [1 1]": {[]store.Source{flat}, errArgument},
		"without gaps":             {[]store.Source{strided}, errArgument},
		"trace[1] holds FLOAT64":   {[]store.Source{batch64(1), real}, errDType},
	} {
		budget := mem.NewBudget(0)
		_, err := readTrace(t.Context(), c.batches, 10, budget)
		require.ErrorIs(t, err, c.err)
		require.ErrorContains(t, err, want)
		assert.Zero(t, budget.Used(), "nothing is left after an error")
	}
}

func TestReadingATraceStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	budget := mem.NewBudget(0)
	_, err := readTrace(ctx, []store.Source{batch64(1)}, 10, budget)
	require.ErrorIs(t, err, context.Canceled)
	_, err = readTrace(t.Context(), []store.Source{batch64(1)}, 1<<20, mem.NewBudget(1<<10))
	require.ErrorIs(t, err, mem.ErrBudget)
	assert.Zero(t, budget.Used())
}

// simulated runs a policy on a trace and returns what came out, after checking that each access was a hit or a read.
func simulated(t *testing.T, s simulation, batches ...store.Source) simulation {
	t.Helper()
	n := len(batches)
	s.sources, s.reads, s.hits, s.swaps, s.fill = batches, make([]int64, n), make([]int64, n), make([]int64, n), new(int64)
	require.NoError(t, s.run(t.Context()))
	for i := range batches {
		assert.Equal(t, batches[i].Shape[0], s.reads[i]+s.hits[i])
	}
	return s
}

func TestSimulationOfEveryPolicy(t *testing.T) {
	batches := []store.Source{batch64(1, 2), batch64(1, 3), batch64(2, 4), batch64(1, 2)}
	for _, c := range []struct {
		plan.Simulation
		hits, swaps []int64 // nil: any
		fill        int64
	}{
		{plan.Simulation{Policy: "belady", Capacity: 2}, []int64{0, 1, 1, 2}, []int64{0, 0, 0, 0}, 0},
		{plan.Simulation{Policy: "belady", Capacity: 1}, []int64{0, 1, 0, 1}, nil, 0},
		{plan.Simulation{Policy: "belady", Capacity: 2, Superbatch: 1}, []int64{0, 0, 0, 0}, nil, 0},
		{plan.Simulation{Policy: "belady", Capacity: 6, Superbatch: 2, CarryOver: true}, []int64{0, 1, 1, 2}, nil, 0},
		{plan.Simulation{Policy: "lru", Capacity: 2}, []int64{0, 1, 0, 1}, []int64{0, 1, 2, 1}, 0},
		{plan.Simulation{Policy: "match", Capacity: 2}, []int64{0, 1, 0, 1}, []int64{0, 1, 2, 1}, 0},
		{plan.Simulation{Policy: "none", Capacity: 2}, []int64{0, 0, 0, 0}, []int64{0, 0, 0, 0}, 0},
		{plan.Simulation{Policy: "oracle", Capacity: 2}, []int64{2, 1, 1, 2}, []int64{0, 0, 0, 0}, 2},
		{plan.Simulation{Policy: "vector", Hotness: []float32{0, 0, 0, 0, 9, 8}, Capacity: 1}, []int64{0, 0, 1, 0},
			[]int64{0, 0, 0, 0}, 1},
		{plan.Simulation{Policy: "lru", Hotness: []float32{0, 0, 0, 0, 9, 8}, Capacity: 0}, []int64{0, 0, 0, 0}, nil, 0},
		{plan.Simulation{Policy: "random", Capacity: 6}, []int64{2, 2, 2, 2}, []int64{0, 0, 0, 0}, 6},
	} {
		c.NumRows = 6
		got := simulated(t, simulation{Simulation: c.Simulation}, batches...)
		if c.hits != nil {
			assert.Equal(t, c.hits, got.hits, c.Policy)
		}
		if c.swaps != nil {
			assert.Equal(t, c.swaps, got.swaps, c.Policy)
		}
		assert.Equal(t, c.fill, *got.fill, c.Policy)
	}
}

func TestSimulationsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		plan.Simulation
		err error
	}{
		{plan.Simulation{Policy: "belady", NumRows: 0}, errArgument},
		{plan.Simulation{Policy: "belady", NumRows: 1 << 40}, errArgument},
		{plan.Simulation{Policy: "lru", NumRows: 5, Capacity: -1}, cache.ErrCapacity},
		{plan.Simulation{Policy: "belady", NumRows: 5, Superbatch: -1}, plan.ErrConfig},
		{plan.Simulation{Policy: "lruu", NumRows: 5}, cache.ErrPolicy},
		{plan.Simulation{Policy: "degree", NumRows: 5}, cache.ErrPolicy},
		{plan.Simulation{Policy: "vector", NumRows: 5, Hotness: []float32{1}}, cache.ErrHotness},
		{plan.Simulation{Policy: "vector", NumRows: 1, Hotness: []float32{-1}}, cache.ErrHotness},
	} {
		s := simulation{Simulation: c.Simulation, fill: new(int64)}
		err := s.run(t.Context())
		require.ErrorIs(t, err, c.err, c.Policy)
		assert.EqualValues(t, failureOf(invalid("")).code, failureOf(err).code)
	}
}
