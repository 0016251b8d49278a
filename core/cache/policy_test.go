package cache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// replay is a cache as its user keeps it: it knows steps, and nothing of
// policies. It checks what every step must obey.
type replay struct {
	t        *testing.T
	contents map[int32]uint32 // by slot
	capacity int64
}

// apply checks a step and returns the batch's hits and the rows that entered.
func (r *replay) apply(rows []uint32, step *Step) (hits, entered []uint32) {
	hits, entered = []uint32{}, []uint32{}
	require.Len(r.t, step.Slots, len(rows))
	for i, slot := range step.Slots {
		if slot == Miss {
			continue
		}
		held, filled := r.contents[slot]
		require.True(r.t, filled && held == rows[i], "row %d is not in slot %d", rows[i], slot)
		hits = append(hits, rows[i])
	}
	used, last := map[int32]bool{}, int32(-1)
	for _, m := range step.In {
		require.Greater(r.t, m.Pos, last, "positions rise")
		require.EqualValues(r.t, Miss, step.Slots[m.Pos], "what enters was not there")
		require.False(r.t, used[m.Slot], "slot %d is filled twice", m.Slot)
		require.True(r.t, m.Slot >= 0 && int64(m.Slot) < r.capacity, "slot %d", m.Slot)
		last, used[m.Slot] = m.Pos, true
		entered = append(entered, rows[m.Pos])
	}
	for _, m := range step.In {
		r.contents[m.Slot] = rows[m.Pos]
	}
	return hits, entered
}

// randomBatches are skewed, so that rows repeat, with a few batches that are empty.
func randomBatches(rng *rand.Rand, numRows, count, longest int) [][]uint32 {
	batches := make([][]uint32, count)
	for b := range batches {
		seen := map[uint32]bool{}
		for range rng.IntN(longest + 1) {
			f := rng.Float64()
			row := uint32(f * f * f * float64(numRows))
			if !seen[row] {
				seen[row] = true
				batches[b] = append(batches[b], row)
			}
		}
	}
	return batches
}

func without(a, b []uint32) []uint32 {
	return slices.DeleteFunc(append([]uint32{}, a...), func(row uint32) bool { return slices.Contains(b, row) })
}

func common(a, b []uint32) []uint32 {
	return slices.DeleteFunc(append([]uint32{}, a...), func(row uint32) bool { return !slices.Contains(b, row) })
}

// TestPoliciesAreTheirReferences compares what hits and what enters, for every
// batch, with the papers' algorithms; with capacities from one row, far below a
// batch, to more than there are rows.
func TestPoliciesAreTheirReferences(t *testing.T) {
	for _, name := range []string{"lru", "clock", "sieve", "s3fifo"} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(400) {
				rng := explore.Rand(t, seed, 1)
				numRows := 1 + rng.IntN(60)
				capacity := 1 + rng.IntN(min(numRows, 30))
				batches := randomBatches(rng, numRows, 60, 1+rng.IntN(40))
				policy, err := New(name, mem.NewBudget(0), int64(numRows), int64(capacity))
				require.NoError(t, err)
				ref := newReference(name, capacity)
				user := replay{t: t, contents: map[int32]uint32{}, capacity: int64(capacity)}
				var step Step
				for b, rows := range batches {
					before := slices.Clone(ref.cached())
					for _, row := range rows {
						ref.access(row)
					}
					policy.Step(rows, &step)
					hits, entered := user.apply(rows, &step)
					where := fmt.Sprintf("seed %d, batch %d, capacity %d", seed, b, capacity)
					require.Equal(t, common(rows, before), hits, where)
					require.ElementsMatch(t, without(ref.cached(), before), entered, where)
				}
				policy.Close()
			}
		})
	}
}

func TestMatchLoadsNextWithoutPrevious(t *testing.T) {
	for seed := range uint64(50) {
		rng := explore.Rand(t, seed, 2)
		batches := randomBatches(rng, 80, 40, 30)
		capacity := 30
		if seed%2 == 1 {
			capacity = 1 + rng.IntN(30)
		}
		policy, err := New("match", mem.NewBudget(0), 80, int64(capacity))
		require.NoError(t, err)
		user := replay{t: t, contents: map[int32]uint32{}, capacity: int64(capacity)}
		var step Step
		var held []uint32
		for _, rows := range batches {
			policy.Step(rows, &step)
			hits, entered := user.apply(rows, &step)
			require.Equal(t, common(rows, held), hits)
			missing := without(rows, held)
			require.Equal(t, missing[:min(len(missing), capacity-len(hits))], entered)
			held = append(hits, entered...)
			if capacity == 30 {
				require.ElementsMatch(t, rows, held, "all of the previous batch")
			}
		}
		policy.Close()
	}
}

// TestBatchOfOneRowIsAnAccess: without batches to speak of, a policy is the one
// that its paper describes, hit for hit.
func TestBatchOfOneRowIsAnAccess(t *testing.T) {
	for _, name := range []string{"lru", "clock", "sieve", "s3fifo"} {
		rng := explore.Rand(t, 5, 5)
		policy, err := New(name, mem.NewBudget(0), 300, 40)
		require.NoError(t, err)
		ref := newReference(name, 40)
		var step Step
		hits := 0
		for range 4000 {
			f := rng.Float64()
			row := uint32(f * f * 300)
			hit := slices.Contains(ref.cached(), row)
			ref.access(row)
			policy.Step([]uint32{row}, &step)
			require.Equal(t, hit, step.Slots[0] != Miss)
			if hit {
				hits++
			}
		}
		require.Greater(t, hits, 500, name)
		policy.Close()
	}
}

func TestCapacitiesAtTheEnds(t *testing.T) {
	rng := explore.Rand(t, 1, 1)
	batches := randomBatches(rng, 50, 30, 40)
	unique := map[uint32]bool{}
	for _, row := range slices.Concat(batches...) {
		unique[row] = true
	}
	for _, name := range OnlineNames() {
		for _, capacity := range []int64{0, 1, int64(len(unique)), 50, 1000} {
			budget := mem.NewBudget(0)
			policy, err := New(name, budget, 50, capacity)
			require.NoError(t, err)
			require.Equal(t, PolicyBytes(name, 50, capacity), budget.Used(), name)
			user := replay{t: t, contents: map[int32]uint32{}, capacity: min(capacity, 50)}
			var step Step
			misses := 0
			for _, rows := range batches {
				policy.Step(rows, &step)
				hits, _ := user.apply(rows, &step)
				misses += len(rows) - len(hits)
			}
			switch {
			case capacity == 0:
				require.Equal(t, len(slices.Concat(batches...)), misses)
				require.Zero(t, budget.Used())
			case capacity >= int64(len(unique)) && name != "match":
				require.Equal(t, len(unique), misses, name)
			}
			policy.Close()
			require.Zero(t, budget.Used())
		}
	}
}

func TestStepsRepeatAndAllocateNothing(t *testing.T) {
	rng := explore.Rand(t, 7, 7)
	batches := randomBatches(rng, 400, 50, 100)
	top := Hotness(make([]float32, 400)).Top(30)
	for _, name := range append(OnlineNames(), "static") {
		var all [2][]Step
		for run := range all {
			policy, err := New(name, mem.NewBudget(0), 400, 30)
			if name == "static" {
				policy, err = NewStatic(mem.NewBudget(0), 400, top)
			}
			require.NoError(t, err)
			var step Step
			for _, rows := range batches {
				policy.Step(rows, &step)
				all[run] = append(all[run], Step{Slots: slices.Clone(step.Slots), In: slices.Clone(step.In)})
			}
			step.In = slices.Grow(step.In[:0], 100)
			require.Zero(t, testing.AllocsPerRun(5, func() {
				for _, rows := range batches {
					policy.Step(rows, &step)
				}
			}), name)
			policy.Close()
		}
		require.Equal(t, all[0], all[1], name)
	}
}

func TestStaticHoldsTheTop(t *testing.T) {
	h := Hotness{3, 0, 5, 3, 9, 3}
	budget := mem.NewBudget(0)
	s, err := NewStatic(budget, 6, h.Top(3))
	require.NoError(t, err)
	require.Equal(t, PolicyBytes("static", 6, 3), budget.Used())
	require.EqualValues(t, 3, s.Len())
	require.Equal(t, map[int32]uint32{0: 0, 1: 2, 2: 4}, maps.Collect(s.Rows()), "of equal scores the lowest row")
	step := Step{In: []Move{{1, 1}}}
	s.Step([]uint32{4, 5, 0, 1}, &step)
	require.Equal(t, []int32{2, Miss, 0, Miss}, step.Slots)
	require.Empty(t, step.In)
	s.Close()
	require.Zero(t, budget.Used())

	s, err = NewStatic(budget, 6, h.Top(0))
	require.NoError(t, err)
	s.Step([]uint32{4, 5}, &step)
	require.Equal(t, []int32{Miss, Miss}, step.Slots)
	require.Zero(t, budget.Used())
}

// TestStaticServesManyAtATime fails under the race detector if a step writes.
func TestStaticServesManyAtATime(t *testing.T) {
	s, err := NewStatic(mem.NewBudget(0), 100, Hotness(make([]float32, 100)).Top(50))
	require.NoError(t, err)
	defer s.Close()
	var done sync.WaitGroup
	var steps [4]Step
	for i := range steps {
		done.Add(1)
		go func() {
			defer done.Done()
			for range 100 {
				s.Step([]uint32{99, uint32(i), 50, 49}, &steps[i])
			}
		}()
	}
	done.Wait()
	for i := range steps {
		require.Equal(t, []int32{Miss, int32(i), Miss, 49}, steps[i].Slots)
	}
}

func TestNewRefuses(t *testing.T) {
	budget := mem.NewBudget(100)
	_, err := New("lur", budget, 10, 5)
	require.ErrorIs(t, err, ErrPolicy)
	require.ErrorContains(t, err, `lru, clock, sieve, s3fifo, match, got "lur"`)
	_, err = New("lru", budget, 10, -1)
	require.ErrorIs(t, err, ErrCapacity)
	_, err = New("lru", budget, MaxRows+1, 1)
	require.ErrorIs(t, err, ErrCapacity)
	_, err = New("lru", budget, 100, 5)
	require.ErrorIs(t, err, mem.ErrBudget)
	_, err = NewStatic(budget, MaxRows+1, Hotness{}.Top(1))
	require.ErrorIs(t, err, ErrCapacity)
	_, err = NewStatic(budget, 100, Hotness{1}.Top(1))
	require.ErrorIs(t, err, mem.ErrBudget)
	_, err = NewRows(budget, -1, []int{4})
	require.ErrorIs(t, err, ErrCapacity)
	_, err = NewRows(budget, 10, []int{4, 20})
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Zero(t, budget.Used())
}

func TestRowsAreApart(t *testing.T) {
	budget := mem.NewBudget(0)
	widths := []int{8, 3}
	c, err := NewRows(budget, 5, widths)
	require.NoError(t, err)
	require.Equal(t, RowsBytes(5, widths), budget.Used())
	for slot := range int64(5) {
		copy(c.Row(0, slot), []byte{byte(slot), 1, 1, 1, 1, 1, 1, 1, 99})
		copy(c.Row(1, slot), []byte{byte(slot), 2, 2, 99})
	}
	require.Equal(t, []byte{1, 2, 2, 2, 2, 2}, c.Table(1)[3:9])
	require.Equal(t, []byte{4, 1, 1, 1, 1, 1, 1, 1}, c.Table(0)[32:])
	c.Close()
	require.Zero(t, budget.Used())
}

func TestCapacityIsWhatTheBytesAllow(t *testing.T) {
	for _, name := range append(OnlineNames(), "static") {
		for _, widths := range [][]int{{512}, {7, 9}} {
			total := func(k int64) int64 { return PolicyBytes(name, 100, k) + RowsBytes(k, widths) }
			for _, nBytes := range []int64{0, 399, 400, 450, 1000, 2000, 50000, 1 << 40} {
				k := Capacity(name, nBytes, 100, widths)
				require.LessOrEqual(t, k, int64(100))
				if k > 0 {
					require.LessOrEqual(t, total(k), nBytes)
				}
				if k < 100 {
					require.Greater(t, total(k+1), nBytes)
				}
			}
		}
		require.Zero(t, Capacity(name, 1000, 100, nil))
		require.Zero(t, Capacity(name, 1<<50, MaxRows+1, []int{1}))
	}
}
