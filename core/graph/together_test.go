package graph

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// someIDs is an array on disk with an id at each position, below limit.
func someIDs(t *testing.T, n int, limit int64) (a *IDs, ids []int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	for range n {
		ids = append(ids, rng.Int64N(limit))
	}
	width := 4
	if limit > 1<<32 {
		width = 8
	}
	a = handMade(t, ids, width, limit, 64<<10)
	a.counts = new(Counts)
	return a, ids
}

// drawOf draws hops that request the given positions.
func drawOf(ctx context.Context, a *IDs, hops [][]int64) (found [][]int64, err error) {
	for _, pos := range hops {
		out := make([]int64, len(pos))
		if err := a.Gather(ctx, new(Scratch), sample.Drawn{Pos: pos}, out); err != nil {
			return nil, err
		}
		found = append(found, out)
	}
	return found, nil
}

func randomHops(rng *rand.Rand, hops, n int) (all [][]int64) {
	for range hops {
		var pos []int64
		for range rng.IntN(2000) {
			pos = append(pos, rng.Int64N(int64(n)))
		}
		all = append(all, pos)
	}
	return all
}

// TestTogetherReadsWhatDrawsRead lets batches read hop by hop together: each finds what it would have read by itself,
// in fewer requests, and what is read is counted once.
func TestTogetherReadsWhatDrawsRead(t *testing.T) {
	const n, hops, batches = 300_000, 3, 20
	ctx := context.Background()
	narrow, narrowIDs := someIDs(t, n, 1<<32)
	wide, wideIDs := someIDs(t, n, 1<<40)
	for _, atOnce := range []int{1, 100, 5000, 1 << 20, -5000} {
		a, ids := narrow, narrowIDs
		if atOnce < 0 {
			atOnce, a, ids = -atOnce, wide, wideIDs
		}
		rng := rand.New(rand.NewPCG(uint64(atOnce), 1))
		budget := mem.NewBudget(0)
		var together Together
		wanted, draws, total := []*Wanted{}, [][][]int64{}, int64(0)
		for range batches {
			wanted, draws = append(wanted, NewWanted(budget, roomFor(1<<40))), append(draws, randomHops(rng, hops, n))
		}
		before := a.disk.engine.Stats()
		for hop := range hops {
			var asking []*Wanted
			for i, w := range wanted {
				_, err := drawOf(w.With(ctx, false), a, draws[i])
				require.Equal(t, w.Asks(), err != nil)
				if err != nil {
					require.ErrorIs(t, err, sample.ErrDeferred)
					asking = append(asking, w)
				}
			}
			require.NotEmpty(t, asking, "hop %d", hop)
			require.NoError(t, together.Read(ctx, asking, atOnce))
		}
		shared, misses := a.disk.engine.Stats(), a.counts.Misses.Load()
		for i, w := range wanted {
			found, err := drawOf(w.With(ctx, true), a, draws[i])
			require.NoError(t, err)
			size := int64(0)
			for hop, pos := range draws[i] {
				for k, p := range pos {
					require.Equal(t, ids[p], found[hop][k])
				}
				size += RequestBytes(int64(len(pos)), a == wide)
				total += int64(len(pos))
			}
			require.Equal(t, size, w.Bytes())
			w.Free()
		}
		require.Zero(t, budget.Used())
		require.Equal(t, total, a.counts.Misses.Load()-misses)
		require.Equal(t, shared, a.disk.engine.Stats(), "the last draws read nothing")
		for i := range draws {
			_, err := drawOf(ctx, a, draws[i])
			require.NoError(t, err)
		}
		if atOnce >= 5000 {
			apart := a.disk.engine.Stats().Requests - shared.Requests
			require.Less(t, 2*(shared.Requests-before.Requests), apart)
		}
	}
}

// TestTogetherWithoutMemory lets wants run out of memory at any point: the draw then reads by itself.
func TestTogetherWithoutMemory(t *testing.T) {
	const n, hops = 50_000, 3
	a, ids := someIDs(t, n, 1<<30)
	rng := rand.New(rand.NewPCG(3, 3))
	for i, room := range []int64{1, 8_000, 20_000, 40_000, 1, 8_000, 20_000, 40_000} {
		draw, left, w := randomHops(rng, hops, n), roomFor(1<<40), (*Wanted)(nil)
		if i < 4 {
			w = NewWanted(mem.NewBudget(room), left)
		} else {
			left = roomFor(room)
			w = NewWanted(mem.NewBudget(0), left)
		}
		before := left.Load()
		var together Together
		for range hops {
			_, err := drawOf(w.With(context.Background(), false), a, draw)
			require.Equal(t, w.Asks(), err != nil)
			if !w.Asks() {
				break
			}
			require.NoError(t, together.Read(context.Background(), []*Wanted{w}, 1000))
		}
		found, err := drawOf(w.With(context.Background(), true), a, draw)
		require.NoError(t, err)
		for hop, pos := range draw {
			for k, p := range pos {
				require.Equal(t, ids[p], found[hop][k])
			}
		}
		require.LessOrEqual(t, w.Bytes(), room)
		w.Free()
		require.Equal(t, before, left.Load())
	}
}

func roomFor(n int64) *atomic.Int64 {
	room := new(atomic.Int64)
	room.Store(n)
	return room
}

// TestTogetherFails reports an id that is none, and what is wanted is then read by the draw.
func TestTogetherFails(t *testing.T) {
	a := handMade(t, []int64{1, 2, 99}, 8, 10, 64<<10)
	ctx := context.Background()
	good, bad := NewWanted(mem.NewBudget(0), roomFor(100)), NewWanted(mem.NewBudget(0), roomFor(100))
	for w, pos := range map[*Wanted]int64{good: 1, bad: 2} {
		_, err := drawOf(w.With(ctx, false), a, [][]int64{{pos}})
		require.ErrorIs(t, err, sample.ErrDeferred)
	}
	require.ErrorIs(t, new(Together).Read(ctx, []*Wanted{good, bad}, 10), store.ErrCorrupt)
	good.Free()
	bad.Free()
	_, err := drawOf(NewWanted(mem.NewBudget(0), roomFor(0)).With(ctx, true), a, [][]int64{{2}})
	require.ErrorIs(t, err, store.ErrCorrupt)
}
