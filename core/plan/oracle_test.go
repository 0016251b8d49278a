package plan

import (
	"container/heap"
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// The oracles below share no code with the package.

// exhaustive is the fewest reads over all policies: dynamic programming over all subsets of rows as the state of the
// cache. After each batch the cache may be any subset of the former state and the batch.
func exhaustive(trace []Batch, numRows, capacity int) int {
	const far = 1 << 30
	reads := make([]int, 1<<numRows)
	for i := range reads {
		reads[i] = far
	}
	reads[0] = 0
	for _, batch := range trace {
		mask := 0
		for _, row := range batch {
			mask |= 1 << row
		}
		after := make([]int, 1<<numRows)
		for i := range after {
			after[i] = far
		}
		for state, n := range reads {
			if n == far {
				continue
			}
			cost := n + ones(mask&^state)
			union := state | mask
			for sub := union; ; sub = (sub - 1) & union {
				if ones(sub) <= capacity {
					after[sub] = min(after[sub], cost)
				}
				if sub == 0 {
					break
				}
			}
		}
		reads = after
	}
	return slices.Min(reads)
}

func ones(x int) (n int) {
	for ; x != 0; x &= x - 1 {
		n++
	}
	return n
}

// uses is a heap of cached rows, the farthest next use first.
type uses []struct {
	row  uint32
	next int
}

func (u uses) Len() int           { return len(u) }
func (u uses) Less(i, j int) bool { return u[i].next > u[j].next }
func (u uses) Swap(i, j int)      { u[i], u[j] = u[j], u[i] }
func (u *uses) Push(x any)        { *u = append(*u, x.(uses)[0]) }
func (u *uses) Pop() any {
	old := *u
	last := old[len(old)-1]
	*u = old[:len(old)-1]
	return last
}

// heapMIN is Belady's MIN at batch granularity by maps and a heap with stale entries.
func heapMIN(trace []Batch, capacity int) (reads int) {
	positions := map[uint32][]int{}
	for i, b := range trace {
		for _, row := range b {
			positions[row] = append(positions[row], i)
		}
	}
	cached := map[uint32]int{} // next use
	var queue uses
	for i, b := range trace {
		for _, row := range b {
			if _, ok := cached[row]; !ok {
				reads++
			}
			next := 1 << 30
			for _, at := range positions[row] {
				if at > i {
					next = at
					break
				}
			}
			cached[row] = next
			heap.Push(&queue, uses{{row, next}})
		}
		for len(cached) > capacity {
			top := heap.Pop(&queue).(struct {
				row  uint32
				next int
			})
			if next, ok := cached[top.row]; ok && next == top.next {
				delete(cached, top.row)
			}
		}
	}
	return reads
}

// lruReads is LRU at batch granularity, written down naively.
func lruReads(trace []Batch, capacity int) (reads int) {
	var order []uint32 // oldest first
	for _, b := range trace {
		for _, row := range b {
			if at := slices.Index(order, row); at >= 0 {
				order = slices.Delete(order, at, at+1)
			} else {
				reads++
			}
			order = append(order, row)
		}
		order = order[max(0, len(order)-capacity):]
	}
	return reads
}

// staticReads is a cache of fixed rows, its fill counted.
func staticReads(trace []Batch, rows []uint32) int {
	reads := len(rows)
	for _, b := range trace {
		for _, row := range b {
			if !slices.Contains(rows, row) {
				reads++
			}
		}
	}
	return reads
}

// matchReads reuses the rows of the batch before, as many as fit, in every way the best.
func matchReads(trace []Batch, capacity int) (reads int) {
	for i, b := range trace {
		shared := 0
		for _, row := range b {
			if i > 0 && slices.Contains(trace[i-1], row) {
				shared++
			}
		}
		reads += len(b) - min(shared, capacity)
	}
	return reads
}

func simulated(t *testing.T, trace []Batch, s Simulation) (total Counts, fill int64) {
	t.Helper()
	budget := mem.NewBudget(0)
	fill, err := Simulate(context.Background(), budget, trace, s, func(_ int, c Counts) {
		total.Reads, total.Hits, total.Swaps = total.Reads+c.Reads, total.Hits+c.Hits, total.Swaps+c.Swaps
	})
	require.NoError(t, err)
	require.Zero(t, budget.Used())
	return total, fill
}

func minimum(t *testing.T, trace []Batch, numRows, capacity int) int {
	c, _ := simulated(t, trace,
		Simulation{NumRows: int64(numRows), Capacity: int64(capacity), Policy: "belady", CarryOver: true})
	return int(c.Reads)
}

func TestReadsEqualTheExhaustiveOptimum(t *testing.T) {
	for seed := range uint64(400) {
		rng := explore.Rand(t, seed, 2)
		numRows := 2 + rng.IntN(6)
		trace := makeTrace(rng, 1+rng.IntN(9), 1+rng.IntN(6), numRows, float64(1+rng.IntN(2)))
		capacity := rng.IntN(numRows + 1)
		want := exhaustive(trace, numRows, capacity)
		require.Equal(t, want, minimum(t, trace, numRows, capacity), "seed %d: %v, %d rows", seed, trace, capacity)
		require.Equal(t, want, heapMIN(trace, capacity), "the oracles agree")
	}
}

func TestReadsEqualAnIndependentMIN(t *testing.T) {
	explore.Figures(t)
	for seed := range uint64(40) {
		rng := explore.Rand(t, seed, 3)
		numRows := 100 + rng.IntN(3000)
		trace := makeTrace(rng, 20+rng.IntN(60), 10+rng.IntN(400), numRows, float64(1+rng.IntN(4)))
		capacity := rng.IntN(numRows)
		require.Equal(t, heapMIN(trace, capacity), minimum(t, trace, numRows, capacity), "seed %d", seed)
	}
}

func TestNobodyReadsLess(t *testing.T) {
	explore.Figures(t)
	for seed := range uint64(60) {
		rng := explore.Rand(t, seed, 4)
		numRows := 20 + rng.IntN(200)
		trace := makeTrace(rng, 2+rng.IntN(30), 5+rng.IntN(60), numRows, float64(1+rng.IntN(4)))
		counts := make(cache.Hotness, numRows)
		for _, b := range trace {
			for _, row := range b {
				counts[row]++
			}
		}
		before := 1 << 30
		for capacity := 0; capacity <= numRows; capacity += 1 + rng.IntN(20) {
			reads := minimum(t, trace, numRows, capacity)
			require.LessOrEqual(t, reads, lruReads(trace, capacity))
			require.LessOrEqual(t, reads, matchReads(trace, capacity))
			static := slices.Collect(counts.Top(int64(capacity)))
			require.LessOrEqual(t, reads, staticReads(trace, static))
			rng.Shuffle(len(static), func(i, j int) { static[i], static[j] = static[j], static[i] })
			require.LessOrEqual(t, reads, staticReads(trace, static[:rng.IntN(len(static)+1)]))
			for _, name := range cache.OnlineNames() {
				c, _ := simulated(t, trace, Simulation{NumRows: int64(numRows), Capacity: int64(capacity), Policy: name})
				require.LessOrEqual(t, int64(reads), c.Reads, "%s, capacity %d", name, capacity)
			}
			require.LessOrEqual(t, reads, before, "more room, no more reads")
			before = reads
		}
		distinct := 0
		for _, n := range counts {
			if n > 0 {
				distinct++
			}
		}
		require.Equal(t, distinct, minimum(t, trace, numRows, distinct), "with room for all, each row is read once")
		total := 0
		for _, b := range trace {
			total += len(b)
		}
		require.Equal(t, total, minimum(t, trace, numRows, 0), "without room, every access reads")
	}
}

func TestCarryOverReadsNoMoreThanRebuilding(t *testing.T) {
	explore.Figures(t)
	rebuiltMore := 0
	for seed := range uint64(80) {
		rng := explore.Rand(t, seed, 5)
		numRows := 20 + rng.IntN(300)
		trace := makeTrace(rng, 5+rng.IntN(40), 5+rng.IntN(60), numRows, float64(1+rng.IntN(4)))
		capacity := rng.IntN(numRows)
		whole := minimum(t, trace, numRows, capacity)
		for superbatch := 1; superbatch <= len(trace)+1; superbatch += 1 + rng.IntN(6) {
			s := Simulation{NumRows: int64(numRows), Capacity: int64(capacity), Policy: "belady",
				Superbatch: superbatch, CarryOver: true}
			blind, _ := simulated(t, trace, s)
			s.Lookahead = true
			carried, _ := simulated(t, trace, s)
			s.CarryOver = false
			rebuilt, _ := simulated(t, trace, s)
			require.LessOrEqual(t, carried.Reads, rebuilt.Reads, "seed %d, superbatches of %d", seed, superbatch)
			require.LessOrEqual(t, blind.Reads, rebuilt.Reads, "seed %d, superbatches of %d", seed, superbatch)
			require.GreaterOrEqual(t, carried.Reads, int64(whole))
			if superbatch >= len(trace) {
				require.EqualValues(t, whole, carried.Reads)
			}
			if rebuilt.Reads > carried.Reads {
				rebuiltMore++
			}
		}
	}
	require.Positive(t, rebuiltMore)
}
