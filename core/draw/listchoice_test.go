package draw

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpand: no estimate is 0, and none wraps round.
func TestExpand(t *testing.T) {
	counts := []uint32{0, 1, 4, math.MaxUint32 / 3, math.MaxUint32}
	expand(counts, 3)
	require.Equal(t, []uint32{1, 4, 13, math.MaxUint32, math.MaxUint32}, counts)
}
