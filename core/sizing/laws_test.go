package sizing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// TestLaws holds for any request: the smallest memory that an error names works and a byte less does not, the parts fit
// in the memory, and the way to work is one that was asked for or less.
func TestLaws(t *testing.T) {
	rng := explore.Rand(t, 1, 2)
	for range 2000 {
		r, g, c := anyDivision(rng)
		least := smallest(t, r, g, c)
		r.Memory = least - 1
		_, err := Divide(r, g, c)
		require.ErrorIs(t, err, mem.ErrBudget, "%+v %+v %+v", r, g, c)
		for _, r.Memory = range []int64{least, least + rng.Int64N(1+least), 2*least + rng.Int64N(1<<24), 1 << 40} {
			s, err := Divide(r, g, c)
			require.NoError(t, err, "%+v %+v %+v", r, g, c)
			requireFits(t, s, r, g, c)
		}
		r.Memory = 0
		s, err := Divide(r, g, c)
		require.NoError(t, err)
		require.Equal(t, r.Workers, s.Workers)
	}
}

func requireFits(t *testing.T, s *Split, r Request, g Graph, c Costs) {
	t.Helper()
	total := s.Shares.Topology + s.Shares.Working + s.Shares.NeighborCache + s.Shares.Held + s.Shares.FeatureCache
	total += s.Traces + s.Packs + s.Pool + r.History.Memory
	if s.Cache == "belady" {
		total += s.CacheRows * int64(c.PlannedSlot-4) // the rest is in the share
	}
	require.LessOrEqual(t, total, r.Memory, "%+v of %+v %+v %+v", s, r, g, c)
	if s.CacheRows > 0 && s.Cache == "degree" {
		ranking := total - s.Shares.FeatureCache - s.Pool + c.Rank + 4*g.Nodes
		require.LessOrEqual(t, ranking, r.Memory, "ranking: %+v of %+v %+v %+v", s, r, g, c)
	}
	require.LessOrEqual(t, s.Smallest, r.Memory)
	require.LessOrEqual(t, s.Workers, r.Workers)
	require.LessOrEqual(t, s.Prefetch, generous(&r).Prefetch)
	require.True(t, s.Depth >= minDepth && s.Depth <= fullDepth)
	rows := g.Nodes
	if s.Columns == nil {
		rows = 0
	}
	require.LessOrEqual(t, s.CacheRows, rows)
	for i, column := range s.ColumnOf {
		if column >= 0 {
			require.False(t, s.Resident[i])
			require.GreaterOrEqual(t, s.Columns[column], g.Tensors[i].Width)
		}
	}
	if s.Cache != "belady" {
		require.Zero(t, s.Superbatch+s.Packs+s.Scratch)
		require.Equal(t, s.Reorder > 0, s.Traces > 0, "%+v of %+v", s, r)
		require.True(t, s.Reorder == 0 || s.Cache == "lru")
	}
}

// anyDivision returns the request of a random loader.
func anyDivision(rng *rand.Rand) (Request, Graph, Costs) {
	some := func(most int64, of ...int64) int64 {
		if len(of) > 0 && rng.IntN(2) == 0 {
			return of[rng.IntN(len(of))]
		}
		return rng.Int64N(most)
	}
	kinds := []string{"auto", "none", "belady", "degree", "lru"}
	r := Request{
		Cache: kinds[rng.IntN(len(kinds))], Workers: 1 + rng.IntN(9), Prefetch: rng.IntN(10) + Auto, Holds: rng.IntN(3),
		FeatureCache: some(1<<20, Auto, 0), NeighborCache: some(1<<20, Auto, 0), EpochBatches: 1 + some(1000),
		Superbatch: some(100, Auto) + 1, Reorder: some(2, Auto, 0), TraceMemory: Auto, BufferMemory: some(1<<20, Auto, 0),
		Scratch: some(1<<20, Auto, 0),
	}
	if r.Superbatch == 0 {
		r.Superbatch = Auto
	}
	if r.Cache == "degree" && rng.IntN(2) == 0 {
		r.History = History{Buffer: 1 + some(1<<20), Memory: some(1 << 20)}
	}
	g := Graph{
		OnDisk: rng.IntN(4) > 0, Fixed: some(1 << 20), Order: some(1<<16, 0), Checks: some(1<<16, 0), Loading: some(1 << 22),
		Neighbors: some(1 << 22), EdgeIDs: some(1<<22, 0), Weights: some(1<<20, 0), UserWeights: some(1<<20, 0),
	}
	c := Costs{
		Batch: some(1 << 20), Prune: some(1<<16, 0), Lookup: some(1 << 16), Worker: some(1 << 18), StampWorker: some(1 << 18),
		FetchWorker: some(1 << 10), FetchBatch: some(1 << 10), Score: some(1<<22, 0), Rank: some(1<<16, 0), ResidentSlot: 4,
		PlannedSlot: 4 + rng.IntN(2),
	}
	for range 1 + rng.IntN(4) {
		n := some(10_000)
		g.Types, g.Nodes = append(g.Types, n), g.Nodes+n
		nodes := some(n+1, 0)
		c.NodesOfType, c.Nodes = append(c.NodesOfType, nodes), c.Nodes+nodes
	}
	g.Stamp, g.Lists = 4*g.Nodes, some(g.Nodes+1, g.Nodes)
	g.ListTables, g.Choosing = g.Lists, 6*g.Nodes
	for range rng.IntN(6) {
		tensor := Tensor{Width: 1 + rng.IntN(500), Type: rng.IntN(len(g.Types)), Used: rng.IntN(5) > 0, Span: 4096}
		if tensor.Rows = g.Types[tensor.Type]; rng.IntN(4) == 0 {
			tensor.ByEdge, tensor.Used, tensor.Rows = true, true, some(40_000)
		}
		g.Tensors = append(g.Tensors, tensor)
	}
	slices.SortStableFunc(g.Tensors, func(a, b Tensor) int {
		switch {
		case a.ByEdge == b.ByEdge:
			return 0
		case b.ByEdge:
			return -1
		}
		return 1
	})
	if g.Weights > 0 && rng.IntN(2) == 0 {
		g.TimesOfNodes, g.LongLists, g.TimesInOrder = true, some(1<<20, 0), some(1<<22, 0)
	}
	return r, g, c
}

// TestMoreMemoryIsNeverLess: a larger cache by name never holds fewer rows.
func TestMoreMemoryIsNeverLess(t *testing.T) {
	g := onDisk()
	g.Tensors = g.Tensors[:1]
	rows := int64(0)
	for size := int64(0); size < 600_000; size += 777 {
		r := auto(64<<20, "lru")
		r.FeatureCache = size
		s, err := Divide(r, g, ofBatches())
		require.NoError(t, err)
		held := s.CacheRows
		if s.Resident[0] {
			held = g.Nodes
		}
		require.GreaterOrEqual(t, held, rows, size)
		rows = held
	}
	require.Equal(t, g.Nodes, rows)
}

// TestTheLeastMemoryWithWhatGrows: where a part of the graph grows with the memory, the error of any smaller memory has
// a memory that works, and a byte less does not.
func TestTheLeastMemoryWithWhatGrows(t *testing.T) {
	r, g, c := auto(1, "belady"), onDisk(), ofBatches()
	fixed := g.Fixed
	g.Growing = func(memory int64) int64 { return max(1<<10, min(memory/16, 64<<20)) }
	divide := func(memory int64) error {
		r.Memory, g.Fixed = memory, fixed+g.Growing(memory)
		_, err := Divide(r, g, c)
		return err
	}
	var short *mem.BudgetError
	require.ErrorAs(t, divide(1), &short)
	least := short.Need
	require.NoError(t, divide(least))
	for _, memory := range []int64{least - 1, least / 2, least * 9 / 10} {
		require.ErrorAs(t, divide(memory), &short)
		require.Equal(t, least, short.Need)
	}
}
