package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/mem"
)

// TestPresenceIsWhatIsThere holds that batches that need only some of the planned rows find each row where the adapted
// step says, whatever was left out before.
func TestPresenceIsWhatIsThere(t *testing.T) {
	const capacity, numRows = 6, 30
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		presence, err := NewPresence(mem.NewBudget(0), capacity)
		require.NoError(t, err)
		planned, really := make([]uint32, capacity), make([]int64, capacity) // the row of each slot; -1: none
		for slot := range planned {
			planned[slot], really[slot] = uint32(slot), int64(slot)
			if rng.IntN(3) == 0 {
				really[slot] = -1
			}
		}
		presence.Begin(func(yield func(int32, uint32)) {
			for slot, row := range really {
				if row >= 0 {
					yield(int32(slot), uint32(row))
				}
			}
		})
		var own Adapted
		found := 0
		for range 40 {
			rows, step := randomStep(rng, planned, numRows)
			needed := make([]bool, len(rows))
			for pos := range needed {
				needed[pos] = rng.IntN(3) > 0
			}
			presence.Adapt(&step, func(pos int32) bool { return needed[pos] }, &own)
			for pos, slot := range own.Step.Slots {
				if slot >= 0 && needed[pos] {
					require.EqualValues(t, rows[pos], really[slot])
					found++
				}
				if was := step.Slots[pos]; slot < 0 && was >= 0 {
					require.NotEqual(t, int64(rows[pos]), really[was], "a row that is there is found")
				}
			}
			for _, slot := range own.Vacate {
				really[slot] = -1
			}
			for _, m := range own.Step.In {
				require.True(t, needed[m.Pos] && own.Step.Slots[m.Pos] < 0)
				really[m.Slot] = int64(rows[m.Pos])
			}
		}
		require.Positive(t, found)
		presence.Close()
	}
}

// randomStep is a batch of different rows and what a plan does with it: rows that are cached are found, and some others
// take the place of rows that the batch has found or not.
func randomStep(rng *rand.Rand, cached []uint32, numRows int) (rows []uint32, step Step) {
	at := map[uint32]int32{}
	for slot, row := range cached {
		at[row] = int32(slot)
	}
	free := rng.Perm(len(cached))[:rng.IntN(3)]
	for pos, row := range rng.Perm(numRows)[:8] {
		rows = append(rows, uint32(row))
		slot, is := at[uint32(row)]
		if !is {
			slot = cache.Miss
			if len(free) > 0 {
				step.In = append(step.In, cache.Move{Pos: int32(pos), Slot: int32(free[0])})
				free = free[1:]
			}
		}
		step.Slots = append(step.Slots, slot)
	}
	for _, m := range step.In {
		cached[m.Slot] = rows[m.Pos]
	}
	return rows, step
}
