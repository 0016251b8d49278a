package plan

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"rows":              func(c *Config) { c.NumRows = -1 },
		"too many rows":     func(c *Config) { c.NumRows = 1<<32 - 1 },
		"capacity":          func(c *Config) { c.Capacity = -1 },
		"too large a cache": func(c *Config) { c.Capacity = 1 << 31 },
		"transfer":          func(c *Config) { c.Transfer = "fastest" },
		"packs":             func(c *Config) { c.PackFile = -1 },
		"depth":             func(c *Config) { c.Depth = -1 },
		"table":             func(c *Config) { c.Tables = []ssd.Layout{{RowBytes: 512, NumRows: 99}} },
		"slot":              func(c *Config) { c.SlotBytes = 4000 },
	} {
		c := testConfig(100, 10, auto)
		change(&c)
		budget := mem.NewBudget(0)
		_, err := New(budget, c)
		require.ErrorIs(t, err, ErrConfig, name)
		require.Zero(t, budget.Used())
	}
	c := testConfig(100, 10, "fastest")
	_, err := New(mem.NewBudget(0), c)
	require.ErrorContains(t, err,
		"transfer must be one of auto, random, forward, page-once, page-once+forward, scan, scan+forward, pack, "+
			`pack+forward, pack+forward+ahead, got "fastest"`)

	budget := mem.NewBudget(100)
	_, err = New(budget, testConfig(1000, 10, auto))
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Zero(t, budget.Used())
	budget = mem.NewBudget(residencyBytes(100, 50) - 1)
	_, err = New(budget, testConfig(100, 50, auto))
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Zero(t, budget.Used())
}

func TestBatchesThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ current, ahead []Batch }{
		"twice":              {[]Batch{{1, 2}, {3, 4, 3}}, nil},
		"twice ahead":        {[]Batch{{1, 2}}, []Batch{{5, 5}}},
		"out of range":       {[]Batch{{1, 100}}, nil},
		"out of range ahead": {[]Batch{{1}}, []Batch{{1 << 31}}},
	} {
		budget := mem.NewBudget(0)
		p, err := New(budget, testConfig(100, 10, auto))
		require.NoError(t, err)
		_, err = planned(context.Background(), p, 0, test.current, test.ahead)
		require.ErrorIs(t, err, ErrBatch, name)
		_, err = planned(context.Background(), p, 0, []Batch{{1}}, nil)
		require.ErrorIs(t, err, ErrReset, name)
		p.Reset(func(func(int32, uint32)) {})
		s, err := planned(context.Background(), p, 0, []Batch{{1, 2}, {2}}, nil)
		require.NoError(t, err, name)
		require.Equal(t, []int32{cache.Miss, cache.Miss}, s.Steps[0].Slots)
		require.Equal(t, []int32{1}, s.Steps[1].Slots)
		s.Release()
		p.Close()
		p.Close()
		require.Zero(t, budget.Used())
	}
}

func TestNothingToPlan(t *testing.T) {
	for _, name := range Transfers() {
		p, err := New(mem.NewBudget(0), testConfig(10, 4, name))
		require.NoError(t, err)
		for _, current := range [][]Batch{nil, {}, {{}}, {{}, {}, {1}, {}}} {
			s, err := planned(context.Background(), p, 0, current, []Batch{{}, {2}})
			require.NoError(t, err, name)
			require.Len(t, s.Steps, len(current))
			s.Release()
		}
		p.Close()
	}
	p, err := New(mem.NewBudget(0), Config{Transfer: "random"})
	require.NoError(t, err)
	_, err = planned(context.Background(), p, 0, []Batch{{}}, nil)
	require.NoError(t, err)
	p.Close()
}

// stopAfter is a context that ends at the n-th question.
type stopAfter struct {
	context.Context
	n *int
}

func (c stopAfter) Err() error {
	if *c.n--; *c.n < 0 {
		return context.Canceled
	}
	return nil
}

func TestCancelledPlansLeaveNothing(t *testing.T) {
	rng := explore.Rand(t, 9, 9)
	trace := makeTrace(rng, 20, 50, 200, 2)
	completed := false
	for n := 0; !completed; n++ {
		budget := mem.NewBudget(0)
		p, err := New(budget, testConfig(200, 30, "pack+forward"))
		require.NoError(t, err)
		e := newExecutor(t, 30, 2)
		batch := func(i int64) Batch { return trace[i] }
		s, err := planned(context.Background(), p, 0, trace[:5], trace[5:10])
		require.NoError(t, err)
		e.run(s, batch, 5)
		s.Release()
		held, left := budget.Used(), n
		s, err = planned(stopAfter{context.Background(), &left}, p, 5, trace[5:10], trace[10:15])
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			require.LessOrEqual(t, budget.Used()-held, int64(50*bufferBytes), "only buffers may stay")
			_, err = planned(context.Background(), p, 5, trace[5:10], nil)
			require.ErrorIs(t, err, ErrReset)
			p.Reset(e.resident)
			e.dropPacks()
			s, err = planned(context.Background(), p, 5, trace[5:10], trace[10:15])
			require.NoError(t, err)
		} else {
			completed = true
		}
		e.run(s, batch, 5)
		e.checkAgainst(p)
		s.Release()
		p.Close()
		require.Zero(t, budget.Used())
	}
}

func TestPlansAreAFunctionOfTheBatches(t *testing.T) {
	rng := explore.Rand(t, 10, 10)
	trace := makeTrace(rng, 40, 100, 500, 2)
	for _, name := range Transfers() {
		var all [2][]wholePlan
		for i := range all {
			p, err := New(mem.NewBudget(0), testConfig(500, 60, name))
			require.NoError(t, err)
			for first := 0; first < 40; first += 8 {
				s, err := planned(context.Background(), p, int64(first), trace[first:first+8], trace[first+8:min(first+16, 40)])
				require.NoError(t, err)
				s.plan = nil // where it lies differs
				all[i] = append(all[i], *s)
			}
			p.Close()
		}
		require.True(t, reflect.DeepEqual(all[0], all[1]), name)
	}
}

// What is cached when does not depend on how cold rows come: only on which of them the prologue had put there.
func TestEveryTransferServesTheSameColdRows(t *testing.T) {
	for seed := range uint64(20) {
		rng := explore.Rand(t, seed, 11)
		trace := makeTrace(rng, 40, 100, 500, float64(1+seed%3))
		total, first := map[string]int{}, 0
		for _, name := range Transfers() {
			c := testConfig(500, 100, name)
			c.PackMemory, c.PackFile = 1<<20, 1<<20
			p, err := New(mem.NewBudget(0), c)
			require.NoError(t, err)
			e := newExecutor(t, 100, c.Depth)
			for at := 0; at < 40; at += 10 {
				s, err := planned(context.Background(), p, int64(at), trace[at:at+10], trace[at+10:min(at+20, 40)])
				require.NoError(t, err)
				e.run(s, func(i int64) Batch { return trace[i] }, 10)
				s.Release()
			}
			p.Close()
			total[name] = e.reads + e.fills + e.delivered
			if first == 0 {
				first = total[name]
			}
			require.Equal(t, first, total[name], "seed %d, %s: as many cold rows", seed, name)
			if name == "forward" {
				require.Less(t, e.reads, first, "some come back from packs")
			}
		}
	}
}

func TestWhatIsCachedStaysOnTies(t *testing.T) {
	// Rows 1 and 2 are cached; 3 and 4 come, all are needed next in the same batch: nothing moves.
	trace := []Batch{{1, 2}, {3, 4}, {4, 3, 2, 1}}
	p, err := New(mem.NewBudget(0), Config{NumRows: 5, Capacity: 2, CarryOver: true, Transfer: "random"})
	require.NoError(t, err)
	defer p.Close()
	s, err := planned(context.Background(), p, 0, trace, nil)
	require.NoError(t, err)
	defer s.Release()
	require.Empty(t, s.Steps[1].In)
	require.Equal(t, []int32{-1, -1, 1, 0}, s.Steps[2].Slots)

	// Rows without a known use: the one that has had none for longest goes first, and nothing goes for a row that has
	// none either.
	s2, err := planned(context.Background(), p, 3, []Batch{{1}, {0}, {3}, {3}, {4}, {4}}, nil)
	require.NoError(t, err)
	defer s2.Release()
	require.Empty(t, s2.Steps[1].In)
	require.Equal(t, []cache.Move{{Pos: 0, Slot: 1}}, s2.Steps[2].In,
		"row 2 has waited since the last plan, row 1 was used since")
	require.Equal(t, []cache.Move{{Pos: 0, Slot: 0}}, s2.Steps[4].In)
}

// Plans stay within what they say they need, on the worst of inputs and on usual ones; with less for packs they do
// without packs.
func TestPlansFitTheirMemory(t *testing.T) {
	rng := explore.Rand(t, 12, 12)
	const numRows = 1 << 18
	for _, capacity := range []int64{0, 1000, 50_000} {
		for _, width := range []int{50, 3000, 50_000} {
			for _, name := range []string{"random", "auto", "pack+forward", scanAhead, "page-once+forward"} {
				c := testConfig(numRows, capacity, name)
				c.PackMemory, c.PackFile = 1<<30, 1<<30
				state := StateBytes(numRows, capacity)
				batches := max(60_000/width, 2)
				trace := wide(rng, batches, width, numRows)
				size := max(1, batches/3)
				accesses := int64(2 * size * width)
				budget := mem.NewBudget(state + SuperbatchBytes(accesses) + KnownBytes(numRows, accesses, capacity))
				p, err := New(budget, c)
				require.NoError(t, err)
				require.Equal(t, state, budget.Used())
				for first := 0; first < batches; first += size {
					end := min(first+size, batches)
					s, err := planned(context.Background(), p, int64(first), trace[first:end], trace[end:min(end+size, batches)])
					require.NoError(t, err, "capacity %d, batches of %d, %s", capacity, width, name)
					s.Release()
				}
				p.Close()
				require.Zero(t, budget.Used())
			}
		}
	}
}

func TestWithoutMemoryForItATransferIsNotPlanned(t *testing.T) {
	rng := explore.Rand(t, 13, 13)
	trace := wide(rng, 40, 500, 1<<12)
	refused := 0
	for extra := int64(0); extra < 120; extra++ {
		for _, name := range []string{"pack+forward", scanAhead, "page-once+forward", "auto"} {
			c := testConfig(1<<12, 800, name)
			c.PackMemory, c.PackFile = 1<<30, 1<<30
			budget := mem.NewBudget(StateBytes(1<<12, 800) + KnownBytes(1<<12, 40*500, 800) + extra*8_000)
			p, err := New(budget, c)
			require.NoError(t, err)
			s, err := planned(context.Background(), p, 0, trace[:40], nil)
			if err != nil {
				require.ErrorIs(t, err, mem.ErrBudget)
			} else {
				if s.Choice.Chosen == "random" {
					require.Contains(t, s.Choice.Why, "there is no memory to plan")
					refused++
				}
				e := newExecutor(t, 800, c.Depth)
				e.run(s, func(i int64) Batch { return trace[i] }, 40)
				e.checkAgainst(p)
				s.Release()
			}
			p.Close()
			require.Zero(t, budget.Used())
		}
	}
	require.Positive(t, refused)
}

func TestResetOfWhatCannotBe(t *testing.T) {
	for _, resident := range []func(yield func(int32, uint32)){
		func(yield func(int32, uint32)) { yield(0, 1); yield(0, 2) },
		func(yield func(int32, uint32)) { yield(0, 1); yield(1, 1) },
		func(yield func(int32, uint32)) { yield(4, 1) },
	} {
		p, err := New(mem.NewBudget(0), testConfig(10, 4, "random"))
		require.NoError(t, err)
		require.Panics(t, func() { p.Reset(resident) })
		p.Close()
	}
}

func TestSimulateRefuses(t *testing.T) {
	trace := []Batch{{1, 2}}
	for _, test := range []struct {
		s    Simulation
		want error
	}{
		{Simulation{NumRows: 3, Capacity: -1, Policy: "belady"}, cache.ErrCapacity},
		{Simulation{NumRows: 3, Capacity: 1, Policy: "lruu"}, cache.ErrPolicy},
		{Simulation{NumRows: 3, Capacity: 1, Policy: "belady", Superbatch: -1}, ErrConfig},
		{Simulation{NumRows: 2, Capacity: 1, Policy: "lru"}, ErrBatch},
		{Simulation{NumRows: 3, Capacity: 1, Hotness: cache.Hotness{1, 2}}, cache.ErrHotness},
	} {
		_, err := Simulate(context.Background(), mem.NewBudget(0), trace, test.s, func(int, Counts) {})
		require.ErrorIs(t, err, test.want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, policy := range []string{"belady", "none", "lru"} {
		_, err := Simulate(ctx, mem.NewBudget(0), trace, Simulation{NumRows: 3, Capacity: 1, Policy: policy},
			func(int, Counts) {})
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestSimulateCounts(t *testing.T) {
	trace := []Batch{{0, 1}, {1, 2}, {0, 2}, {3}}
	batches := func(s Simulation) (fill int64, counts []Counts) {
		s.NumRows = 4
		fill, err := Simulate(context.Background(), mem.NewBudget(0), trace, s, func(i int, c Counts) {
			require.Len(t, counts, i)
			counts = append(counts, c)
		})
		require.NoError(t, err)
		return fill, counts
	}
	fill, counts := batches(Simulation{Policy: "none", Capacity: 3})
	require.Zero(t, fill)
	require.Equal(t, []Counts{{2, 0, 0}, {2, 0, 0}, {2, 0, 0}, {1, 0, 0}}, counts)
	fill, counts = batches(Simulation{Capacity: 2, Hotness: cache.Hotness{5, 0, 5, 1}})
	require.EqualValues(t, 2, fill)
	require.Equal(t, []Counts{{1, 1, 0}, {1, 1, 0}, {0, 2, 0}, {1, 0, 0}}, counts)
	fill, counts = batches(Simulation{Policy: "belady", Capacity: 2, CarryOver: true})
	require.Zero(t, fill)
	require.Equal(t, []Counts{{2, 0, 0}, {1, 1, 1}, {0, 2, 0}, {1, 0, 0}}, counts)
	_, counts = batches(Simulation{Policy: "belady", Capacity: 2, Superbatch: 1})
	require.Equal(t, []Counts{{2, 0, 0}, {2, 0, 0}, {2, 0, 0}, {1, 0, 0}}, counts, "nothing is carried over")
}

// plannedCache describes a planned cache.
func plannedCache(numRows, capacity int64) Simulation {
	return Simulation{Policy: "belady", NumRows: numRows, Capacity: capacity, CarryOver: true}
}

func TestReorder(t *testing.T) {
	kept, moved := 0, 0
	for seed := range uint64(60) {
		rng := explore.Rand(t, seed, 14)
		numRows, groups := 600, 1+rng.IntN(4)
		trace := make([]Batch, rng.IntN(30))
		for i := range trace { // batches of a group share rows
			group := rng.IntN(groups)
			for _, row := range rng.Perm(numRows / groups)[:rng.IntN(numRows/groups/2+1)] {
				trace[i] = append(trace[i], uint32(group*(numRows/groups)+row))
			}
		}
		capacity := int64(rng.IntN(200))
		budget := mem.NewBudget(0)
		order, err := Reorder(context.Background(), budget, trace, plannedCache(int64(numRows), capacity))
		require.NoError(t, err)
		require.Zero(t, budget.Used())
		again, err := Reorder(context.Background(), budget, trace, plannedCache(int64(numRows), capacity))
		require.NoError(t, err)
		require.Equal(t, order, again)
		sorted := slices.Sorted(slices.Values(order))
		identity := make([]int32, len(trace))
		reordered := make([]Batch, len(trace))
		for i := range identity {
			identity[i] = int32(i)
			reordered[i] = trace[order[i]]
		}
		require.Equal(t, identity, append([]int32{}, sorted...), "a permutation")
		if slices.Equal(identity, order) {
			kept++
			continue
		}
		moved++
		require.Less(t, heapMIN(reordered, int(capacity)), heapMIN(trace, int(capacity)), "seed %d", seed)
		require.Zero(t, order[0], "the first batch stays the first")
	}
	require.Positive(t, kept)
	require.Positive(t, moved)
}

func TestReorderWithoutOverlap(t *testing.T) {
	trace := []Batch{{0, 1}, {2}, {}, {3, 4, 5}, {6}}
	order, err := Reorder(context.Background(), mem.NewBudget(0), trace, plannedCache(7, 3))
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 3, 4}, order)
	_, err = Reorder(context.Background(), mem.NewBudget(0), trace, plannedCache(5, 3))
	require.ErrorIs(t, err, ErrBatch)
	_, err = Reorder(context.Background(), mem.NewBudget(100), trace, plannedCache(7, 3))
	require.ErrorIs(t, err, mem.ErrBudget)
}

func TestMatchDegreeIsEstimated(t *testing.T) {
	rng := explore.Rand(t, 15, 15)
	for range 20 {
		sizeA, sizeB := 2000+rng.IntN(3000), 2000+rng.IntN(3000)
		shared := rng.IntN(min(sizeA, sizeB))
		perm := rng.Perm(20000)
		var a, b Batch
		for i := range sizeA {
			a = append(a, uint32(perm[i]))
		}
		for i := range sizeB {
			b = append(b, uint32(perm[sizeA-shared+i]))
		}
		var x, y sketch
		x.of(a)
		y.of(b)
		want := float64(shared) / float64(min(sizeA, sizeB))
		require.InDelta(t, want, matchDegree(&x, &y, sizeA, sizeB), 0.15)
	}
}

func TestMaxset(t *testing.T) {
	for _, n := range []int{1, 64, 65, 5000, 300_000} {
		rng := explore.Rand(t, uint64(n), 16)
		s := newMaxset(n)
		members := map[uint32]bool{}
		for range 2000 {
			i := uint32(rng.IntN(n))
			if rng.IntN(3) > 0 {
				s.set(i)
				members[i] = true
			} else {
				s.clear(i)
				delete(members, i)
			}
			want := none
			for m := range members {
				if want == none || m > want {
					want = m
				}
			}
			require.Equal(t, want, s.max())
		}
	}
}

func TestBatchOf(t *testing.T) {
	for seed := range uint64(100) {
		rng := explore.Rand(t, seed, 17)
		var batches []Batch
		for range rng.IntN(60) {
			n := rng.IntN(4)
			if rng.IntN(5) == 0 {
				n = rng.IntN(3000)
			}
			batches = append(batches, make(Batch, n))
		}
		split := rng.IntN(len(batches) + 1)
		h, err := newHorizon(InMemory(batches[:split]), InMemory(batches[split:]))
		require.NoError(t, err)
		a := uint32(0)
		for b, rows := range batches {
			for i := range rows {
				require.Equal(t, Dest{int32(b), int32(i)}, h.dest(a))
				a++
			}
		}
	}
}
