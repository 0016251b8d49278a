package loader

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/ssd"
)

func TestTimelineKeepsTheLastSpans(t *testing.T) {
	line := timeline{opened: time.Now()}
	for i := range int64(keptSpans + 3) {
		line.add(spanReading, i, line.opened.Add(-time.Second))
	}
	all := line.all()
	require.Len(t, all, int(numActivities))
	require.Empty(t, all["waiting"])
	found := all["reading"]
	require.Len(t, found, keptSpans)
	for i, s := range found {
		require.EqualValues(t, i+3, s[0])
		require.InDelta(t, -1, s[1], 1e-9)
		require.Greater(t, s[2], s[1])
	}
}

// TestTimelineOfAPlannedLoader: everything that a planned loader does is in its timeline, under the batches it was done
// for, and windows say what moved.
func TestTimelineOfAPlannedLoader(t *testing.T) {
	o := belady()
	o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
	l := open(t, draw.OpenStore(someDataset().store(t, ssd.OS)), o)
	storePlans(t, l, 0)
	for epoch := range int64(2) {
		epochOf(t, l, epoch)
	}
	p := l.Plan()
	batches := map[float64]bool{}
	for name, found := range p.Timeline {
		for _, s := range found {
			require.True(t, 0 <= s[1] && s[1] <= s[2], "%s %v", name, s)
			require.True(t, 0 <= s[0] && s[0] < 4*someBatchs, "%s %v", name, s)
			if name == "reading" {
				batches[s[0]] = true
			}
		}
	}
	for _, name := range []string{"sampling", "planning", "scanning", "reading"} {
		require.NotEmpty(t, p.Timeline[name], name)
	}
	require.Len(t, batches, 2*someBatchs)
	var read, written int64
	for _, w := range p.Windows {
		read, written = read+w.MeasuredRead, written+w.MeasuredWritten
		require.Positive(t, w.MissedRows)
		require.GreaterOrEqual(t, w.MissedRows, w.ColdRows)
	}
	st := l.Stats()
	require.Positive(t, written)
	require.LessOrEqual(t, written, st.ScratchWritten)
	require.Positive(t, read)

	lru := belady()
	lru.Cache = "lru"
	other := open(t, draw.OpenStore(someDataset().store(t, ssd.OS)), lru)
	epochOf(t, other, 0)
	require.Empty(t, other.Plan().Timeline)
}
