package draw

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReverses(t *testing.T) {
	s := &Schema{First: []int64{0, 1, 2, 3}}
	for _, r := range []struct {
		source, target int
		name           string
	}{{0, 1, "x"}, {1, 0, "rev_x"}, {1, 0, "y"}, {0, 0, "z"}, {0, 0, "rev_z"}, {1, 1, "w"}, {1, 2, "v"}, {2, 1, "u"},
		{0, 2, "t"}} {
		s.Relations = append(s.Relations, Relation{Source: r.source, Target: r.target, Relation: r.name})
	}
	require.Equal(t, []int{1, 0, 0, 4, 3, 5, 7, 6, -1}, s.reverses())
}
