package sample

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// edgesOf yields the sources of edges at once.
type edgesOf []int64

func (e edgesOf) Scan(_ context.Context, visit func(first int64, sources []int64) error) error {
	return visit(0, e)
}

// Where every edge is a link, the sources of links need no list: those with negatives from the complement are
// the same.
func TestComplementOfEveryEdge(t *testing.T) {
	indptr := []int64{0, 2, 3, 6, 7, 7} // node 4 has no edge, and half of the weight
	sources, targets := []int64{0, 3, 0, 0, 1, 3, 0}, []int64{0, 0, 1, 2, 2, 2, 3}
	for _, apart := range []bool{false, true} {
		rows := func(links Links) []int64 {
			n := &Negatives{NumSources: 5, NumTargets: 5, Given: true, Apart: apart, Targets: []float64{1, 3, 4, 7, 14}}
			s, err := NewStrict(context.Background(), mem.NewBudget(0), n, offsets.Of(indptr), edgesOf(sources), links, true)
			require.NoError(t, err)
			defer s.Close()
			return append([]int64(nil), s.dense.nodes...)
		}
		given := rows(Links{Sources: sources[1:], Targets: targets[1:]})
		require.NotEmpty(t, given)
		require.Equal(t, given, rows(Links{}), "apart: %v", apart)
	}
}
