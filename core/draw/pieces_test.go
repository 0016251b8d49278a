package draw

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/sample"
)

// fetcher is an index array whose element at each position is that position.
type fetcher struct{ calls []sample.Drawn }

func (f *fetcher) Fetch(_ context.Context, d sample.Drawn, out []int64) error {
	f.calls = append(f.calls, d)
	copy(out, d.Pos)
	return nil
}

// TestPieces: what is fetched in pieces is what is fetched at once, and no piece is larger than it may be.
func TestPieces(t *testing.T) {
	rng := explore.Rand(t, 3, 4)
	for range explore.Rounds(300) {
		most, from := 1+rng.Int64N(9), rng.Int64N(100)
		d := sample.Drawn{Ptr: []int64{from}}
		for v := range rng.Int64N(20) {
			d.Targets = append(d.Targets, v)
			d.Ptr = append(d.Ptr, d.Ptr[v]+rng.Int64N(1+2*most))
		}
		for range d.Ptr[len(d.Targets)] - from {
			d.Pos = append(d.Pos, rng.Int64())
		}
		of, out := new(fetcher), make([]int64, len(d.Pos))
		require.NoError(t, inPieces(of, most).Fetch(context.Background(), d, out))
		require.Equal(t, append([]int64{}, d.Pos...), out)
		lengths := map[int64]int64{}
		for _, call := range of.calls {
			require.LessOrEqual(t, int64(len(call.Pos)), most)
			require.EqualValues(t, len(call.Pos), call.Ptr[len(call.Targets)]-call.Ptr[0])
			for i, v := range call.Targets {
				lengths[v] += call.Ptr[i+1] - call.Ptr[i]
			}
		}
		for i, v := range d.Targets {
			require.Equal(t, d.Ptr[i+1]-d.Ptr[i], lengths[v])
		}
	}
}
