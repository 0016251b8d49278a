package store

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHalfFloats(t *testing.T) {
	for _, tt := range []struct {
		bits uint16
		want float64
	}{{0x3c00, 1}, {0xc000, -2}, {0x7bff, 65504}, {0x0001, 0x1p-24}, {0x0400, 0x1p-14}, {0x7c00, math.Inf(1)}, {0xfc00,
		math.Inf(-1)}, {0x8000, 0}} {
		require.Equal(t, tt.want, halfFloat(tt.bits)) //nolint:testifylint // exact
	}
	require.True(t, math.IsNaN(halfFloat(0x7e00)))
}
