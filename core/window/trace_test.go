package window

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/sample"
)

// TestTracesAreUnpackedAsTheyWerePacked: with positions of edges that 32 bits hold, which take half of the room, with
// one that they do not hold, and without.
func TestTracesAreUnpackedAsTheyWerePacked(t *testing.T) {
	var sizes []int
	for _, pos := range [][]int64{{5, 1<<32 - 1, 0}, {5, 1 << 32, 0}, {5, -1, 0}, nil} {
		g := sample.Subgraph{
			Nodes: []int64{7, 1<<32 - 2, 3}, Ptr: []int64{0, 1, 3}, Row: []uint32{2, 0, 1}, Pos: pos,
			NodesPerHop: []int64{2, 1}, EdgesPerHop: []int64{3},
		}
		r := draw.Request{Inputs: []int64{1 << 40}}
		s := sampled{
			numSeeds: 1, nodes: 3, edges: 3, edgePos: pos != nil, perHop: hopCounts{g.NodesPerHop, g.EdgesPerHop},
		}
		pieces, _ := s.pack(&g, &r, nil)
		data := bytes.Join(pieces, nil)
		sizes = append(sizes, len(data))
		var got sample.Subgraph
		var asked draw.Request
		s.unpack(data, &got, &asked)
		require.Equal(t, g.Nodes, got.Nodes)
		require.Equal(t, g.Ptr, got.Ptr)
		require.Equal(t, g.Row, got.Row)
		require.Equal(t, append([]int64{}, pos...), append([]int64{}, got.Pos...))
		require.Equal(t, r.Inputs, asked.Inputs)
	}
	require.Equal(t, sizes[3]+3*4, sizes[0])
	require.Equal(t, sizes[3]+3*8, sizes[1])
}
