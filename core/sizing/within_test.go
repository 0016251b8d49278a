package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithin: a window with less room in the scratch file than it was divided for has fewer batches, whose records take
// half of the room, and the rest is for packs.
func TestWithin(t *testing.T) {
	s := Split{Stored: true, Superbatch: 100, Records: 100 * 1000, Scratch: 500_000}
	for _, c := range []struct{ room, superbatch, packs int64 }{
		{1 << 40, 100, 400_000}, {500_000, 100, 400_000}, {300_000, 100, 200_000},
		{100_000, 50, 50_000}, {20_000, 10, 10_000}, {5000, worthBatches, 0}, {0, worthBatches, 0},
	} {
		superbatch, packs := s.Within(c.room)
		require.Equal(t, c.superbatch, superbatch, "%d", c.room)
		require.Equal(t, c.packs, packs, "%d", c.room)
	}
	s.Superbatch, s.Records = 5, 5000
	superbatch, _ := s.Within(0)
	require.EqualValues(t, 5, superbatch)
	s.Stored = false
	superbatch, packs := s.Within(0)
	require.EqualValues(t, 5, superbatch)
	require.Equal(t, s.PackFile(), packs)
}
