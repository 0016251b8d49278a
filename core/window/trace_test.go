package window

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// TestTracesAreUnpackedAsTheyWerePacked: with positions of edges of one byte, of many and below 0, and without.
func TestTracesAreUnpackedAsTheyWerePacked(t *testing.T) {
	var sizes []int
	for i, pos := range [][]int64{{5, 6, 0}, {1 << 62, 1<<62 + 1, 1 << 62}, {5, -1, math.MinInt64}, nil, nil} {
		g := sample.Subgraph{
			Nodes: []int64{7, 1<<32 - 2, 3}, Ptr: []int64{0, 1, 3, 0, 1 << 32}, Row: []uint32{2, 0, 1}, Pos: pos,
			Weight: []float32{2, 3}, Tree: []uint32{9}, NodesPerHop: []int64{2, 1}, EdgesPerHop: []int64{3},
		}
		r := draw.Request{Inputs: []int64{1 << 40}}
		s := sampled{
			numSeeds: 1, nodes: 3, edges: 3, perHop: hopCounts{g.NodesPerHop, g.EdgesPerHop}, byRows: i == 4,
		}
		data := bytes.Join(s.pack(&g, &r, &traceScratch{bytes: []byte{1}}), nil)
		sizes = append(sizes, len(data))
		var got sample.Subgraph
		var asked draw.Request
		s.unpack(data, mem.Bytes([]uint32{7, 1<<32 - 2, 3}), &got, &asked)
		require.Equal(t, g.Nodes, got.Nodes)
		require.Equal(t, g.Ptr, got.Ptr)
		require.Equal(t, g.Row, got.Row)
		require.Equal(t, g.Weight, got.Weight)
		require.Equal(t, g.Tree, got.Tree)
		require.Equal(t, append([]int64{}, pos...), append([]int64{}, got.Pos...))
		require.Equal(t, r.Inputs, asked.Inputs)
	}
	require.Equal(t, sizes[3]+3, sizes[0])
	require.Equal(t, sizes[3]+10+1+1, sizes[1])
	require.Equal(t, sizes[3]-3*4, sizes[4])
}

// TestTracesKeepPositionsWhereBatchesHaveThem: else a trace is shorter by a varint for each edge.
func TestTracesKeepPositionsWhereBatchesHaveThem(t *testing.T) {
	budget := mem.NewBudget(0)
	for _, kept := range []bool{true, false} {
		c := &Cache{
			draw: &draw.Sampling{}, positions: kept, recordStore: &recordStore{budget: budget, limit: 1 << 20},
		}
		g := sample.Subgraph{Nodes: []int64{7, 3}, Ptr: []int64{0, 2}, Row: []uint32{1, 0}, Pos: []int64{5, 6}}
		s := sampled{rows: lost{}, nodes: 2, edges: 2}
		s.keep(c, nil, &g, &draw.Request{}, &traceScratch{})
		var got sample.Subgraph
		require.NoError(t, s.load(t.Context(), &got, &draw.Request{}))
		require.Equal(t, g.Row, got.Row)
		require.Equal(t, kept, len(got.Pos) > 0)
		require.Len(t, g.Pos, 2, "the batch itself keeps them")
		s.free()
	}
	require.Zero(t, budget.Used())
}

// TestSourcesArePacked: those that are new take a bit, the others a word more, whatever they are.
func TestSourcesArePacked(t *testing.T) {
	var drawn []uint32
	for i := range uint32(1000) {
		drawn = append(drawn, 1024+i)
	}
	drawn[500] = 7
	for _, c := range []struct {
		sources []uint32
		words   int
	}{
		{nil, 0}, {[]uint32{0, 1, 2}, 1}, {[]uint32{2, 0, 1}, 1 + 3}, {[]uint32{1<<31 - 1, 0, 0}, 1 + 3},
		{[]uint32{3, 4, 1, 5, 4, 9, 10}, 1 + 4}, {drawn, 32 + 3}, // the first, the old one, and the one behind it
	} {
		packed := packedSources([]uint32{8}, c.sources)
		require.Len(t, packed, 1+c.words, "%d", c.sources)
		require.Equal(t, uint32(8), packed[0])
		got := unpackedSources([]uint32{9, 9}, int64(len(c.sources)), packed[1:])
		require.Equal(t, append([]uint32{}, c.sources...), got)
	}
}
