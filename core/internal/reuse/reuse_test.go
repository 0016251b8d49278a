package reuse

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlice(t *testing.T) {
	s := Slice([]int(nil), 3)
	require.Equal(t, []int{0, 0, 0}, s)
	s[1] = 7
	require.Equal(t, []int{0, 7}, Slice(s, 2))
	require.Same(t, &s[0], &Slice(s[:0], 3)[0])
	require.Len(t, Slice(s, 1000), 1000)
	require.Empty(t, Slice(s, 0))
}
