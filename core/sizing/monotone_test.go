package sizing

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
)

// anyLoader is a loader of a store: batches small and large, rows wide and narrow, of one type or of several, with
// neighbour lists that are much or little beside them.
func anyLoader(rng *rand.Rand) (Request, Graph, Costs) {
	between := func(least, most float64) int64 {
		return int64(least * math.Pow(most/least, rng.Float64()))
	}
	g := Graph{OnDisk: true, Order: between(1<<10, 1<<22), Loading: 1 << 20}
	c := Costs{ResidentSlot: 4, PlannedSlot: 4}
	share := math.Pow(10, -3*rng.Float64()) // of all nodes that a batch has
	for t := range 1 + max(0, rng.IntN(6)-3) {
		n := between(5e3, 5e5)
		g.Types, g.Nodes = append(g.Types, n), g.Nodes+n
		drawn := int64(float64(n)*share) + 1
		c.NodesOfType, c.Nodes = append(c.NodesOfType, drawn), c.Nodes+drawn
		width := int(between(4, 4096))
		g.Tensors = append(g.Tensors, Tensor{Width: width, Rows: n, Type: t, Used: true, Span: max(width, ssd.PageBytes)})
		if rng.IntN(3) == 0 {
			g.Tensors = append(g.Tensors, Tensor{Width: 8, Rows: n, Type: t, Used: true, Span: ssd.PageBytes})
		}
		c.Batch += drawn * int64(width+40)
	}
	edges := g.Nodes * between(1, 60)
	g.Fixed, g.Stamp, g.Lists = 8*g.Nodes, 4*g.Nodes, g.Nodes
	g.Neighbors, g.ListTables, g.Choosing = 4*edges, cache.NeighborTableBytes(g.Nodes), 9*g.Nodes
	if rng.IntN(2) == 0 {
		g.EdgeIDs = 8 * edges
	}
	c.Edges = c.Nodes * between(1, 4)
	c.Wanted = 4 * c.Edges
	c.Expanded = []int64{c.Nodes/100 + 1, c.Nodes/8 + 1}
	c.Batch += 24 * c.Edges
	c.Lookup, c.Worker, c.StampWorker = 60*c.Nodes, 40*c.Nodes, 20*c.Nodes+g.Stamp
	c.FetchWorker, c.FetchBatch = 16*c.Edges, 16*c.Edges
	r := auto(0, []string{"auto", "auto", "belady", "degree"}[rng.IntN(4)])
	r.Workers, r.Prefetch = 1+rng.IntN(16), rng.IntN(6)+Auto
	r.Reorder, r.Scratch, r.EpochBatches = 0, Auto, between(1, 400)
	if rng.IntN(3) == 0 {
		g.Weights, g.TimesOfNodes, g.LongLists, g.TimesInOrder = 4*g.Nodes, true, 4*g.Nodes, 12*edges
	}
	return r, g, c
}

// TestMoreMemoryMovesNoMore: an epoch is predicted to move at most hardlyMore times as many bytes as with any
// smaller memory, from the smallest that works to one that holds everything.
func TestMoreMemoryMovesNoMore(t *testing.T) {
	rng := explore.Rand(t, 5, 5)
	for range 30 {
		r, g, c := anyLoader(rng)
		memory := smallest(t, r, g, c)
		least := math.Inf(1)
		for least > 0 && memory < 1<<40 {
			r.Memory = memory
			s, err := Divide(r, g, c)
			require.NoError(t, err)
			require.LessOrEqual(t, s.predicted.bytes, hardlyMore*1.03*least, "%d bytes for %+v %+v %+v", memory, r, g, c)
			least = min(least, s.predicted.bytes)
			memory += max(1, memory/20, rng.Int64N(1+memory/10))
		}
	}
}

// TestAutoMovesNoMoreThanAnyKind: with cache="auto" an epoch is predicted to move at most hardlyMore times as many
// bytes as with a planned cache or a fixed one, in any memory. Only planned windows that are too short are left out.
func TestAutoMovesNoMoreThanAnyKind(t *testing.T) {
	rng := explore.Rand(t, 6, 6)
	planned := 0
	for range 100 {
		r, g, c := anyLoader(rng)
		r.Cache = "auto"
		memory := smallest(t, r, g, c)
		for range 5 {
			r.Memory = memory
			chosen, err := Divide(r, g, c)
			require.NoError(t, err)
			for _, kind := range []string{"belady", "degree"} {
				by := r
				by.Cache = kind
				s, err := Divide(by, g, c)
				z := newDivision(r, g, c)
				if err != nil || !z.worthwhile(s) {
					continue
				}
				require.LessOrEqual(t, chosen.predicted.bytes, hardlyMore*s.predicted.bytes, "%s, %+v %+v %+v", kind, r, g, c)
				if kind == "belady" {
					planned++
				}
			}
			memory += memory/4 + rng.Int64N(1+memory/2)
		}
	}
	require.Positive(t, planned)
}
