package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// TestFirstLengths: the second batch waits for a whole superbatch only where plans are in the scratch file and an epoch
// has few superbatches.
func TestFirstLengths(t *testing.T) {
	for _, c := range []struct {
		stored         bool
		superbatch     int64
		batches, grows int64
	}{
		{false, 2344, 1172, 6},
		{true, 1172, 1172, 1},
		{true, 2500, 8 * 2500, 6},
		{true, 2500, 8*2500 - 1, 1},
		{true, 2500, 781_250, 6},
	} {
		got := firstLengths(&sizing.Split{Stored: c.stored, Superbatch: c.superbatch}, c.batches)
		require.Equal(t, firstSuperbatches[:c.grows], got, "%+v", c)
	}
}

// TestSecondBatchWaitsForItsOwnWindow: where plans are in the scratch file, the window after the first batch is planned
// before the next is sampled. Later windows are planned with the next one.
func TestSecondBatchWaitsForItsOwnWindow(t *testing.T) {
	for _, alone := range []bool{false, true} {
		o := options()
		o.Scratch, o.BufferMemory, o.ScratchBytes = t.TempDir(), 8<<20, 64<<20
		r := open(t, ssd.OS, o, func(s *sizing.Split) { s.Stored, s.TracesHeld = alone, 0 })
		p := r.start(0, 0)
		p.take(numBatches)
		p.stop()
		spans := r.cache.Report().Timeline
		of := func(kind string, window int) Span { return spans[kind][window] }
		second, third := of("planning", 1), of("planning", 2)
		require.EqualValues(t, 1, second[0])
		before := func(a, b Span) bool { return a[2] <= b[1] }
		require.Equal(t, alone, before(second, of("sampling", 2)), "%v", spans)
		require.Equal(t, !alone, before(of("sampling", 2), second), "%v", spans)
		require.True(t, before(of("sampling", 3), third), "%v", spans)
	}
}
