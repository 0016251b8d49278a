package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/ssd"
)

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
