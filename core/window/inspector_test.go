package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/sizing"
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
