package window

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
