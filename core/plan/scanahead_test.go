package plan

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

const scanAhead = "pack+forward+ahead"

// distinct returns the rows of batches.
func distinct(batches []Batch) map[uint32]bool {
	rows := map[uint32]bool{}
	for _, b := range batches {
		for _, row := range b {
			rows[row] = true
		}
	}
	return rows
}

// TestAScanReadsTheRowsAhead: beside the rows of the superbatch, the prologue reads the rows of the batches ahead that
// no batch of the superbatch needs and that were not cached before, each for its first access; or none of them, where
// they are more than twice the superbatch's own. Their window then reads no row of its own.
func TestAScanReadsTheRowsAhead(t *testing.T) {
	scans, windows := 0, 0
	for seed := range uint64(60) {
		rng := explore.Rand(t, seed, 31)
		numRows := 200 + rng.IntN(2000)
		trace := makeTrace(rng, 48, 10+rng.IntN(80), numRows, float64(1+rng.IntN(3)))
		c := testConfig(int64(numRows), int64(rng.IntN(numRows/2)), scanAhead)
		c.PackMemory, c.PackFile, c.Depth = 0, 1<<30, int(seed%3)
		if seed%4 == 0 {
			c.Device.PageSeconds = 0 // not priced
		}
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		e := newExecutor(t, p.config.Capacity, c.Depth)
		read := false // by the scan before
		for first := 0; first < len(trace); first += 8 {
			end := first + 8
			current, ahead := trace[first:end], trace[end:min(end+8, len(trace))]
			known := distinct(current)
			e.resident(func(_ int32, row uint32) { known[row] = true })
			type access struct {
				batch, pos int32
			}
			want, got := map[uint32]access{}, map[uint32]access{}
			for b, rows := range ahead {
				for pos, row := range rows {
					if _, before := want[row]; !before && !known[row] {
						want[row] = access{int32(8 + b), int32(pos)}
					}
				}
			}
			s, err := planned(context.Background(), p, int64(first), current, ahead)
			require.NoError(t, err)
			own := len(s.Prologue.Fill)
			for _, r := range s.Prologue.Pack {
				if r.Batch < 8 {
					own++
				} else {
					got[r.Row] = access{r.Batch, r.Pos}
				}
			}
			if read {
				require.Zero(t, own, "seed %d, batch %d: the scan before has read these rows", seed, first)
			}
			if read = len(want) > 0 && own >= len(want)/2; !read {
				clear(want)
			}
			require.Equal(t, want, got, "seed %d, batch %d: %d rows of its own", seed, first, own)
			if windows++; read {
				scans++
			}
			e.run(s, func(i int64) Batch { return trace[i] }, len(s.Steps))
			s.Release()
		}
		p.Close()
	}
	require.Greater(t, scans, windows/3)
}

// TestEveryOtherWindowIsScanned: where each window needs rows of all pages, one scan serves two of them, as is
// predicted, chosen, and counted in what both move. The stream ends with a window that a scan has served.
func TestEveryOtherWindowIsScanned(t *testing.T) {
	const numRows, windows = 1 << 15, 8
	rng := rand.New(rand.NewPCG(9, 9)) // constant: where two cost nearly the same, chance decides
	trace := wide(rng, 16*windows, 1000, numRows)
	moved := map[string]int64{}
	for _, name := range []string{"pack+forward", auto} {
		c := testConfig(numRows, 1000, name)
		c.PackMemory, c.PackFile = 0, 1<<30
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		e := newExecutor(t, p.config.Capacity, c.Depth)
		batch := func(i int64) Batch { return trace[i] }
		for first := 0; first < len(trace); first += 16 {
			end := first + 16
			atHand := func(b int64, pos int32) bool { _, ok := e.packs[b][pos]; return ok }
			s, err := planned(context.Background(), p, int64(first), trace[first:end], trace[end:min(end+16, len(trace))])
			require.NoError(t, err)
			_, bytes := deviceCount(c, s, atHand, batch)
			moved[name] += bytes
			e.run(s, batch, len(s.Steps))
			s.Release()
		}
		p.Close()
		require.Zero(t, e.held)
	}
	require.Less(t, moved[auto], moved["pack+forward"]*6/10)
}

// TestRowsAheadFindRoom: rows of the batches ahead are left to their window where packs have no room for them, and the
// superbatch's own come first.
func TestRowsAheadFindRoom(t *testing.T) {
	const numRows = 1 << 12
	rng := rand.New(rand.NewPCG(4, 4)) // constant: where two cost nearly the same, chance decides
	trace := wide(rng, 16, 100, numRows)
	ahead := map[int64]int{}
	for _, room := range []int64{500, 1000, 1200, 10_000} {
		c := testConfig(numRows, 0, scanAhead)
		c.PackMemory, c.PackFile = 0, room*c.recordBytes()
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		e := newExecutor(t, 0, c.Depth)
		e.room = room
		for first := 0; first < 16; first += 8 {
			s, err := planned(context.Background(), p, int64(first), trace[first:first+8], trace[first+8:16])
			require.NoError(t, err)
			for _, r := range s.Prologue.Pack {
				if r.Batch >= 8 {
					ahead[room]++
				}
			}
			e.run(s, func(i int64) Batch { return trace[i] }, 8)
			s.Release()
		}
		p.Close()
	}
	require.Zero(t, ahead[500])
	require.Positive(t, ahead[1000])
	require.Less(t, ahead[1000], ahead[1200])
	require.Less(t, ahead[1200], ahead[10_000])
}
