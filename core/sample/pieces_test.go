package sample

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// square is the lists, the weights and the times of a graph on disk: what stands at a position is its square. It keeps
// the most edges that it was asked for at a time.
type square struct{ most int }

func (s *square) Fetch(_ context.Context, d Drawn, out []int64) error {
	s.most = max(s.most, len(d.Pos), int(d.Ptr[len(d.Ptr)-1]-d.Ptr[0]))
	for i, p := range d.Pos {
		out[i] = p * p
	}
	return nil
}

func (s *square) FetchTimes(ctx context.Context, d Drawn, out []int64) error {
	return s.Fetch(ctx, d, out)
}

func (s *square) FetchWeights(_ context.Context, d Drawn, out []float64) error {
	s.most = max(s.most, len(d.Pos), int(d.Ptr[len(d.Ptr)-1]-d.Ptr[0]))
	for i, p := range d.Pos {
		out[i] = float64(p * p)
	}
	return nil
}

// However long a list is, it is fetched FetchedEdges edges at a time.
func TestLongListsAreFetchedInPieces(t *testing.T) {
	for _, n := range []int{0, 1, FetchedEdges, FetchedEdges + 1, 3*FetchedEdges + 7} {
		pos, wantIDs, wantWeights := make([]int64, n), make([]int64, n), make([]float64, n)
		for i := range pos {
			p := int64(i + 5)
			pos[i], wantIDs[i], wantWeights[i] = p, p*p, float64(p*p)
		}
		d := Drawn{Targets: []int64{3}, Ptr: []int64{0, int64(n)}, Pos: pos}
		s := new(square)
		ids, weights, times := make([]int64, n), make([]float64, n), make([]int64, n)
		require.NoError(t, (&Relation{Adjacency: s}).fetch(context.Background(), d, ids))
		require.NoError(t, (&Weights{Source: s}).fetch(context.Background(), d, weights))
		require.NoError(t, (&Times{Source: s}).fetch(context.Background(), d, times))
		require.LessOrEqual(t, s.most, FetchedEdges)
		require.Equal(t, wantIDs, ids)
		require.Equal(t, wantIDs, times)
		require.Equal(t, wantWeights, weights)
	}
}
