package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// executor runs plans as the documentation of Superplan says, with rows that are their own numbers. It checks what it
// is told.
type executor struct {
	t     *testing.T
	depth int
	room  int64                    // rows in packs at a time; more is a defect
	lose  func() bool              // whether a pack cannot be made
	slots []int64                  // row in each slot; -1 nothing
	packs map[int64]map[int32]pair // by batch of the stream
	held  int64                    // rows in them
	lost  map[int64]bool           // packs of the plan at hand that could not be made

	announced map[int64]int64 // rows of packs by batch, of all plans
	previous  int64           // first batch of the plan before
	early     int             // plans whose prologue may run early

	reads, fills, extras, delivered, evicted int
	perBatch                                 []int // rows read by each batch itself, extras apart
}

// pair is a row in a pack, and the batch before which it was added.
type pair struct {
	row   uint32
	added int64
}

func newExecutor(t *testing.T, capacity int64, depth int) *executor {
	e := &executor{t: t, depth: depth, room: 1 << 60, lose: func() bool { return false },
		packs: map[int64]map[int32]pair{}, announced: map[int64]int64{}}
	e.slots = make([]int64, capacity)
	for i := range e.slots {
		e.slots[i] = -1
	}
	return e
}

func (e *executor) put(s *wholePlan, now int64, sizes map[int32]int32, d Dest, row uint32, batch func(int64) Batch) {
	at := s.First + int64(d.Batch)
	if row != batch(at)[d.Pos] || at <= now {
		e.t.Fatalf("row %d goes from batch %d to position %d of batch %d", row, now, d.Pos, at)
	}
	sizes[d.Batch]++
	if e.lost[at] {
		return
	}
	if e.packs[at] == nil {
		e.packs[at] = map[int32]pair{}
	}
	if _, twice := e.packs[at][d.Pos]; twice {
		e.t.Fatalf("row %d is set aside twice for batch %d", row, at)
	}
	e.packs[at][d.Pos] = pair{row, now}
	if e.held++; e.held > e.room {
		e.t.Fatalf("%d rows in packs, room for %d", e.held, e.room)
	}
}

// run executes the steps of a plan, or those below stop.
func (e *executor) run(s *wholePlan, batch func(int64) Batch, stop int) {
	e.lost = map[int64]bool{}
	e.checkEarly(s)
	for i, p := range s.Packs {
		require.True(e.t, i == 0 || s.Packs[i-1].Dest < p.Dest)
		e.lost[s.First+int64(p.Dest)] = e.lose()
	}
	sizes := map[int32]int32{}
	for _, f := range s.Prologue.Forward {
		require.GreaterOrEqual(e.t, f.From, int32(0))
		require.GreaterOrEqual(e.t, e.slots[f.From], int64(0))
		e.put(s, s.First-1, sizes, f.Dest, uint32(e.slots[f.From]), batch)
	}
	require.True(e.t, slices.IsSortedFunc(s.Prologue.Fill, func(a, b Fill) int { return int(a.Row) - int(b.Row) }))
	require.True(e.t, slices.IsSortedFunc(s.Prologue.Pack, func(a, b Extra) int { return int(a.Row) - int(b.Row) }))
	for _, f := range s.Prologue.Fill {
		e.slots[f.Slot] = int64(f.Row)
		e.fills++
	}
	for _, x := range s.Prologue.Pack {
		e.put(s, s.First-1, sizes, x.Dest, x.Row, batch)
		e.extras++
	}
	for i := range s.Steps[:stop] {
		e.step(s, int64(i), sizes, batch)
	}
	if stop == len(s.Steps) {
		for _, p := range s.Packs {
			require.Equal(e.t, p.Rows, sizes[p.Dest], "packs are as large as announced")
			delete(sizes, p.Dest)
		}
		require.Empty(e.t, sizes, "every pack is announced")
	}
}

// checkEarly holds a prologue that runs early to what that takes: no slots, and room beside the packs of the superbatch
// before.
func (e *executor) checkEarly(s *wholePlan) {
	used := int64(0)
	for at, rows := range e.announced {
		if at >= e.previous {
			used += rows
		}
	}
	for _, p := range s.Packs {
		e.announced[s.First+int64(p.Dest)] += int64(p.Rows)
		if int(p.Dest) < len(s.Steps) {
			used += int64(p.Rows)
		}
	}
	e.previous = s.First
	if s.plan.Early {
		e.early++
		require.Empty(e.t, s.Prologue.Fill)
		require.Empty(e.t, s.Prologue.Forward)
		require.NotEmpty(e.t, s.Prologue.Pack)
		require.LessOrEqual(e.t, used, e.room)
	}
}

func (e *executor) step(s *wholePlan, i int64, sizes map[int32]int32, batch func(int64) Batch) {
	now, step := s.First+i, &s.Steps[i]
	rows := batch(now)
	tensor := make([]int64, len(rows))
	for pos := range tensor {
		tensor[pos] = -1
	}
	for pos, p := range e.packs[now] {
		if p.added >= s.First && now-p.added <= int64(e.depth) { // packs of the prologue and of earlier plans are complete
			e.t.Fatalf("a row for batch %d was set aside by batch %d", now, p.added)
		}
		tensor[pos] = int64(p.row)
		e.delivered++
	}
	e.held -= int64(len(e.packs[now]))
	delete(e.packs, now)
	require.Len(e.t, step.Slots, len(rows))
	own := 0
	for pos, slot := range step.Slots {
		switch {
		case slot >= 0:
			tensor[pos] = e.slots[slot]
		case tensor[pos] < 0:
			tensor[pos] = int64(rows[pos])
			own++
		}
	}
	e.reads += own
	e.perBatch = append(e.perBatch, own)
	for pos, row := range rows {
		if tensor[pos] != int64(row) {
			e.t.Fatalf("batch %d has row %d at position %d, not %d", now, tensor[pos], pos, row)
		}
	}
	for _, x := range step.Extra {
		e.put(s, now, sizes, x.Dest, x.Row, batch)
		e.extras++
	}
	runs := map[int32]int{}
	for i, f := range step.Forward {
		if i == 0 || step.Forward[i-1].Batch != f.Batch {
			runs[f.Batch]++
		}
		require.LessOrEqual(e.t, runs[f.Batch], 2, "rows of a pack follow each other, of slots and of the batch")
		row := int64(-1)
		if f.From >= 0 {
			row = e.slots[f.From]
		} else {
			row = tensor[^f.From]
		}
		e.put(s, now, sizes, f.Dest, uint32(row), batch)
	}
	last, slots := int32(-1), map[int32]bool{}
	for _, m := range step.In {
		if m.Pos <= last || step.Slots[m.Pos] != cache.Miss || slots[m.Slot] {
			e.t.Fatalf("batch %d: %v after position %d", now, m, last)
		}
		last, slots[m.Slot] = m.Pos, true
		if e.slots[m.Slot] >= 0 {
			e.evicted++
		}
		e.slots[m.Slot] = tensor[m.Pos]
	}
}

// resident yields the cached rows to Reset.
func (e *executor) resident(yield func(slot int32, row uint32)) {
	for slot, row := range e.slots {
		if row >= 0 {
			yield(int32(slot), uint32(row))
		}
	}
}

// checkAgainst compares the cache with the planner's state between plans.
func (e *executor) checkAgainst(p *Planner) {
	r := p.cached
	for slot, row := range e.slots {
		if row < 0 {
			continue
		}
		require.Equal(e.t, uint32(row)+1, r.held[slot], "slot %d", slot)
	}
	known := 0
	for _, row := range r.held {
		if row != 0 {
			known++
		}
	}
	require.Nil(e.t, r.words)
	require.Equal(e.t, known, r.queue.n, "all that is cached is idle between plans")
	held := 0
	for _, row := range e.slots {
		if row >= 0 {
			held++
		}
	}
	require.Equal(e.t, held, known, "only what is cached is known between plans")
	require.EqualValues(e.t, r.capacity-int64(held), r.freeSlots)
}

// trace makes batches of distinct rows with a power law, or evenly where skew is 1.
func makeTrace(rng *rand.Rand, batches, width, numRows int, skew float64) []Batch {
	trace := make([]Batch, batches)
	for i := range trace {
		seen := map[uint32]bool{}
		for range rng.IntN(width + 1) {
			u := rng.Float64()
			x := u
			for s := 1.0; s < skew; s++ {
				x *= u
			}
			row := uint32(x * float64(numRows))
			if !seen[row] {
				seen[row] = true
				trace[i] = append(trace[i], row)
			}
		}
	}
	return trace
}

func testDevice() ssd.Device {
	return ssd.Device{RequestSeconds: 11e-6, PageSeconds: 4e-6, ReadBytesPerSecond: 1.5e9, WriteBytesPerSecond: 1e9}
}

func testConfig(numRows, capacity int64, name string) Config {
	return Config{
		NumRows: numRows, Capacity: capacity, CarryOver: true, Transfer: name,
		Tables: []ssd.Layout{{RowBytes: 512, RowsPerPage: 8, NumRows: numRows},
			{RowBytes: 100, RowsPerPage: 40, NumRows: numRows}},
		RowBytes: 612, Device: testDevice(), PackMemory: 20 * 620, PackFile: 30 * 620, Depth: 2, SlotBytes: 64 << 10,
	}
}

func TestPlansReplay(t *testing.T) {
	early := 0
	for seed := range uint64(explore.Rounds(150)) {
		for _, name := range explore.Part(t, fmt.Sprint(seed), Transfers()) {
			rng := explore.Rand(t, seed, 1)
			numRows := 1 + rng.IntN(200)
			trace := makeTrace(rng, 1+rng.IntN(40), 1+rng.IntN(60), numRows, float64(1+rng.IntN(4)))
			c := testConfig(int64(numRows), int64(rng.IntN(numRows+20)), name)
			c.CarryOver = rng.IntN(5) > 0
			c.Depth = rng.IntN(4)
			c.PackMemory, c.PackFile = int64(rng.IntN(100))*620, int64(rng.IntN(100))*620
			if c.Early = rng.IntN(2) == 0; c.Early {
				c.PackFile *= int64(1 + rng.IntN(20))
			}
			failing := rng.IntN(2) == 0
			budget := mem.NewBudget(0)
			p, err := New(budget, c)
			require.NoError(t, err)
			e := newExecutor(t, p.config.Capacity, c.Depth)
			e.room = c.PackMemory/620 + c.PackFile/620
			if failing {
				e.lose = func() bool { return rng.IntN(4) == 0 }
			}
			batch := func(i int64) Batch { return trace[i] }
			size := 1 + rng.IntN(12)
			for first := 0; first < len(trace); {
				n := min(size, len(trace)-first)
				ahead := min(rng.IntN(2)*size, len(trace)-first-n)
				s, err := planned(context.Background(), p, int64(first), trace[first:first+n], trace[first+n:first+n+ahead])
				require.NoError(t, err, "seed %d, %s", seed, name)
				if !c.CarryOver {
					for i := range e.slots {
						e.slots[i] = -1
					}
				}
				if rng.IntN(10) == 0 {
					stop := rng.IntN(n)
					e.run(s, batch, stop)
					p.Reset(e.resident)
					e.dropPacks()
					first += stop + 1 // the batch that failed is not asked for again
				} else {
					e.run(s, batch, n)
					first += n
				}
				e.checkAgainst(p)
				s.Release()
			}
			p.Close()
			require.Zero(t, budget.Used(), "seed %d, %s", seed, name)
			early += e.early
		}
	}
	require.True(t, early > 0 || !explore.All())
}

// dropPacks drops all packs, as a reset does.
func (e *executor) dropPacks() {
	clear(e.packs)
	clear(e.announced)
	e.held = 0
}
