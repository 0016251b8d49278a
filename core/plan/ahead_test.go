package plan

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// TestPlansForgetRowsAhead: after a plan only cached rows are known, each in the slot that holds it, and no row twice.
func TestPlansForgetRowsAhead(t *testing.T) {
	for seed := range uint64(60) {
		rng := explore.Rand(t, seed, 33)
		numRows := 1 + rng.IntN(1000)
		trace := makeTrace(rng, 2+rng.IntN(20), 1+rng.IntN(100), numRows, float64(1+rng.IntN(4)))
		c := testConfig(int64(numRows), int64(rng.IntN(numRows+20)), Transfers()[seed%uint64(len(Transfers()))])
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		size := 1 + rng.IntN(len(trace))
		for first := 0; first < len(trace); first += size {
			end := min(first+size, len(trace))
			ahead := min(end+1+rng.IntN(size), len(trace))
			s, err := p.Plan(context.Background(), int64(first), InMemory(trace[first:end]), InMemory(trace[end:ahead]))
			require.NoError(t, err)
			s.Release()
			require.Nil(t, p.cached.words)
			seen := map[uint32]bool{}
			for slot, row := range p.cached.held {
				require.False(t, seen[row], "seed %d: slot %d: row %d", seed, slot, row)
				seen[row] = row != 0
			}
			for _, word := range p.cached.ahead {
				require.Zero(t, word, "seed %d", seed)
			}
		}
		p.Close()
	}
}

// countedRows is a batch that counts its loads.
type countedRows struct {
	Batch
	loads *int
}

func (c countedRows) Load(ctx context.Context) (Batch, func(), error) {
	*c.loads++
	return c.Batch.Load(ctx)
}

// TestRowsAreLoadedOnceInEachPass: a plan loads the rows of all batches for next uses, and those of the superbatch for
// the residency. It loads all once more to know them where they are few of the rows of the graph.
func TestRowsAreLoadedOnceInEachPass(t *testing.T) {
	rng := explore.Rand(t, 1, 34)
	trace := makeTrace(rng, 12, 200, 1000, 2)
	for i, name := range append(Transfers(), Transfers()...) {
		numRows, more := int64(1000), 0
		if i >= len(Transfers()) {
			numRows, more = 30_000, 6
		}
		p, err := New(mem.NewBudget(0), testConfig(numRows, 100, name))
		require.NoError(t, err)
		var current, ahead int
		var rows [2][]Rows
		for i, b := range trace {
			rows[i/6] = append(rows[i/6], countedRows{b, []*int{&current, &ahead}[i/6]})
		}
		s, err := p.Plan(context.Background(), 0, rows[0], rows[1])
		require.NoError(t, err)
		require.Equal(t, []int{12 + more, 6 + more}, []int{current, ahead}, name)
		s.Release()
		p.Close()
	}
}

// TestRowsOfPacksAreNotSetAsideAgain: a plan whose batches ahead were ahead before as well sets aside no row for them
// that a pack has.
func TestRowsOfPacksAreNotSetAsideAgain(t *testing.T) {
	type place struct {
		batch int64
		pos   int32
	}
	rng := explore.Rand(t, 1, 35)
	trace := makeTrace(rng, 12, 200, 2000, 1)
	for _, name := range []string{"forward", "page-once", "page-once+forward", "pack+forward"} {
		c := testConfig(2000, 100, name)
		c.PackFile = 10_000 * 620
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		held := map[place]int64{}
		for first := int64(0); first < 12; first += 3 {
			s, err := p.Plan(context.Background(), first, InMemory(trace[first:first+3]), InMemory(trace[first+3:]))
			require.NoError(t, err)
			put := func(d Dest) {
				at := place{first + int64(d.Batch), d.Pos}
				before, twice := held[at]
				require.False(t, twice, "%s: %v by the plans of batches %d and %d", name, at, before, first)
				held[at] = first
			}
			for b := range s.Len() {
				var step Step
				require.NoError(t, s.Step(context.Background(), b, &step))
				for _, f := range step.Forward {
					put(f.Dest)
				}
				for _, e := range step.Extra {
					put(e.Dest)
				}
			}
			s.Release()
		}
		require.NotEmpty(t, held, name)
		p.Close()
	}
}
