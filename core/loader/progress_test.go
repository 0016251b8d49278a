package loader

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/ssd"
)

// TestProgress: opening a loader names what it does, and a window that the consumer waits for counts its batches and
// the rows that it reads.
func TestProgress(t *testing.T) {
	type part struct{ done, total int64 }
	var mu sync.Mutex
	seen := map[string][]part{}
	o := belady()
	o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "scan", t.TempDir(), 8<<20, 64<<20
	o.Progress = func(stage string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		seen[stage] = append(seen[stage], part{done, total})
	}
	l := open(t, draw.OpenStore(someDataset().store(t, ssd.OS)), o)
	storePlans(t, l, 0)
	require.Equal(t, part{}, seen[""][len(seen[""])-1])
	require.Contains(t, seen, "reading offsets")
	require.Contains(t, seen, "measuring batches")
	require.Contains(t, seen, "opening the cache")
	clear(seen)
	epochOf(t, l, 0)
	require.NoError(t, l.Close())
	for _, stage := range []string{"sampling batches", "planning batches", "reading rows ahead"} {
		require.Contains(t, seen, stage)
		for _, p := range seen[stage] {
			require.LessOrEqual(t, p.done, p.total, stage)
			require.Less(t, len(stage), 32, "fg_progress holds it")
		}
	}
	whole := seen["sampling batches"]
	require.Contains(t, whole, part{1, 1}, "the first batch waits for no other")
	for _, p := range seen["reading rows ahead"] {
		require.EqualValues(t, l.draw.Split.PlanRows, p.total)
	}
}
