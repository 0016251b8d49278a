package cache

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// listsOf makes an indptr of these degrees.
func listsOf(degrees ...int64) []int64 {
	indptr := []int64{0}
	for _, d := range degrees {
		indptr = append(indptr, indptr[len(indptr)-1]+d)
	}
	return indptr
}

// chooseBySorting is the definition: every node by falling importance, then
// rising id, is taken where its list fits into what is left.
func chooseBySorting(indptr []int64, importance Hotness, capacity int64) map[int64]bool {
	order := make([]int64, len(importance))
	for v := range order {
		order[v] = int64(v)
	}
	slices.SortStableFunc(order, func(a, b int64) int {
		switch {
		case importance[a] > importance[b]:
			return -1
		case importance[a] < importance[b]:
			return 1
		}
		return 0
	})
	chosen := map[int64]bool{}
	for _, v := range order {
		if degree := indptr[v+1] - indptr[v]; degree > 0 && degree <= capacity {
			chosen[v] = true
			capacity -= degree
		}
	}
	return chosen
}

func chosenBy(n *Neighbors) map[int64]bool {
	chosen := map[int64]bool{}
	for v := range int64(len(n.indptr) - 1) {
		if listOf(n, v) != Miss {
			chosen[v] = true
		}
	}
	return chosen
}

// listOf looks one node up among others.
func listOf(n *Neighbors, v int64) int64 {
	nodes, at := make([]int64, findGroup+3), make([]int64, findGroup+3)
	place := int(v) % len(nodes)
	nodes[place] = v
	n.Find(nodes, at)
	return at[place]
}

func newNeighbors(t *testing.T, indptr []int64, importance Hotness, capacity int64) *Neighbors {
	t.Helper()
	budget := mem.NewBudget(0)
	n, err := NewNeighbors(context.Background(), budget, indptr, importance, capacity)
	require.NoError(t, err)
	require.Equal(t, NeighborTableBytes(int64(len(indptr)-1)), budget.Used(), "scratch is left")
	require.LessOrEqual(t, n.Edges(), max(0, capacity))
	t.Cleanup(func() {
		n.Close()
		require.Zero(t, budget.Used())
	})
	return n
}

func TestImportanceIsOutDegreeOverInDegree(t *testing.T) {
	outDegrees := Hotness{6, 6, 0, 5, 7}
	require.Equal(t, Hotness{2, 6, 0, 0, 0.5}, Importance(outDegrees, listsOf(3, 1, 4, 0, 14)))
}

func TestListsAreChosenByRank(t *testing.T) {
	for name, c := range map[string]struct {
		degrees    []int64
		importance Hotness
		capacity   int64
		want       []int64
	}{
		"most important first":           {[]int64{3, 3, 3, 3}, Hotness{1, 4, 2, 3}, 6, []int64{1, 3}},
		"ties from the lowest id":        {[]int64{2, 2, 2, 2}, Hotness{1, 1, 1, 1}, 5, []int64{0, 1}},
		"skip and go on":                 {[]int64{9, 2, 5, 1}, Hotness{4, 3, 2, 1}, 4, []int64{1, 3}},
		"skip within equals":             {[]int64{1, 9, 1}, Hotness{1, 1, 1}, 2, []int64{0, 2}},
		"hub larger than everything":     {[]int64{100, 1, 1}, Hotness{9, 1, 0}, 99, []int64{1, 2}},
		"exactly full":                   {[]int64{4, 3, 2}, Hotness{3, 2, 1}, 7, []int64{0, 1}},
		"one too small":                  {[]int64{4, 3, 2}, Hotness{3, 2, 1}, 6, []int64{0, 2}},
		"no room":                        {[]int64{4, 3, 2}, Hotness{3, 2, 1}, 0, nil},
		"less than no room":              {[]int64{4, 3, 2}, Hotness{3, 2, 1}, -5, nil},
		"everything":                     {[]int64{4, 0, 2}, Hotness{3, 0, 1}, 6, []int64{0, 2}},
		"empty lists need none":          {[]int64{0, 0, 2, 0}, Hotness{9, 9, 1, 9}, 6, []int64{2}},
		"never drawn, but there is room": {[]int64{1, 2}, Hotness{0, 0}, 3, []int64{0, 1}},
		"no nodes":                       {nil, nil, 6, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbors(t, listsOf(c.degrees...), c.importance, c.capacity)
			require.Equal(t, len(c.want), len(chosenBy(n)))
			edges := int64(0)
			for _, v := range c.want {
				require.NotEqualValues(t, Miss, listOf(n, v), "node %d", v)
				edges += c.degrees[v]
			}
			require.Equal(t, edges, n.Edges())
			require.EqualValues(t, len(c.want), n.Lists())
		})
	}
}

// randomLists has skewed in-degrees, among them none and hubs, and importances of
// many ties and of orders that make lists that do not fit frequent.
func randomLists(rng *rand.Rand, nodes int) ([]int64, Hotness) {
	degrees, outDegrees := make([]int64, nodes), make(Hotness, nodes)
	for v := range degrees {
		u := rng.Float64()
		degrees[v] = int64(8 * u * u)
		if rng.IntN(50) == 0 {
			degrees[v] = rng.Int64N(400)
		}
		outDegrees[v] = float32(rng.IntN(1 + rng.IntN(12)))
	}
	indptr := listsOf(degrees...)
	switch rng.IntN(3) {
	case 0: // the longest first
		for v := range outDegrees {
			outDegrees[v] = float32(degrees[v])
		}
	case 1: // nearly no ties
		for v := range outDegrees {
			outDegrees[v] = rng.Float32()
		}
	default:
		outDegrees = Importance(outDegrees, indptr)
	}
	return indptr, outDegrees
}

func TestChoiceEqualsGreedyBySorting(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		indptr, importance := randomLists(rng, []int{1, 15, 16, 17, 500, 6000}[seed%6])
		total := indptr[len(indptr)-1]
		for _, capacity := range []int64{0, 1, total / 50, total / 3, total - 1, total, total + 1} {
			n := newNeighbors(t, indptr, importance, capacity)
			require.Equal(t, chooseBySorting(indptr, importance, capacity), chosenBy(n), "seed %d, capacity %d of %d", seed, capacity, total)
		}
	}
}

// The rounds of the chooser: more candidates than can be sorted at a time, each
// of which may or may not fit.
func TestChoiceOfManyRounds(t *testing.T) {
	const nodes = 5 * minSorted
	degrees, importance := make([]int64, nodes), make(Hotness, nodes)
	for v := range degrees {
		degrees[v], importance[v] = 1, float32(nodes-v)
		if v%2 == 0 {
			degrees[v] = int64(nodes - v) // never fits once the first has been passed over
		}
	}
	indptr := listsOf(degrees...)
	for _, capacity := range []int64{nodes - 1, nodes / 2, nodes / 2 * 5, 3 * nodes} {
		n := newNeighbors(t, indptr, importance, capacity)
		require.Equal(t, chooseBySorting(indptr, importance, capacity), chosenBy(n))
	}
}

func TestColumnsHoldTheLists(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 3))
		indptr, importance := randomLists(rng, 700)
		total := indptr[len(indptr)-1]
		n := newNeighbors(t, indptr, importance, total*int64(seed)/11)
		narrow, err := n.AddColumn(4)
		require.NoError(t, err)
		wide, err := n.AddColumn(8)
		require.NoError(t, err)
		require.Equal(t, NeighborTableBytes(700)+n.Edges()*12, n.budget.Used())
		for first := int64(0); first < total; { // pieces of any size
			end := min(total, first+1+rng.Int64N(900))
			var small, large []byte
			for p := first; p < end; p++ {
				small = binary.LittleEndian.AppendUint32(small, uint32(p*7))
				large = binary.LittleEndian.AppendUint64(large, uint64(p)<<32)
			}
			narrow.Put(first, small)
			wide.Put(first, large)
			first = end
		}
		next := int64(0) // lists lie back to back in the order of their nodes
		for v := range int64(700) {
			at := listOf(n, v)
			if at == Miss {
				continue
			}
			require.Equal(t, next, at)
			for i := range indptr[v+1] - indptr[v] {
				require.Equal(t, uint32((indptr[v]+i)*7), narrow.Narrow[at+i])
				require.Equal(t, (indptr[v]+i)<<32, wide.Wide[at+i])
			}
			next += indptr[v+1] - indptr[v]
		}
		require.Equal(t, n.Edges(), next)
		requireRuns(t, n, 0, total)
		requireRuns(t, n, total/3, total/2)
	}
}

// requireRuns recounts what is cached between two positions.
func requireRuns(t *testing.T, n *Neighbors, lo, hi int64) {
	t.Helper()
	want, got := map[int64]int64{}, map[int64]int64{}
	for v := range int64(len(n.indptr) - 1) {
		if at := listOf(n, v); at != Miss {
			for p := max(lo, n.indptr[v]); p < min(hi, n.indptr[v+1]); p++ {
				want[p] = at + p - n.indptr[v]
			}
		}
	}
	last := lo
	for r := range n.Runs(lo, hi) {
		require.GreaterOrEqual(t, r.From, last)
		require.Less(t, r.From, r.To)
		for p := r.From; p < r.To; p++ {
			got[p] = r.At + p - r.From
		}
		last = r.To
	}
	require.Equal(t, want, got)
}

func TestNeighborSizes(t *testing.T) {
	require.EqualValues(t, 0, NeighborTableBytes(0))
	require.EqualValues(t, 8, NeighborTableBytes(1))
	require.EqualValues(t, 8, NeighborTableBytes(16))
	require.EqualValues(t, 16, NeighborTableBytes(17))
	require.EqualValues(t, 0, NeighborBytes(1000, 0, []int{4}))
	for _, widths := range [][]int{{4}, {4, 8}, {8}} {
		for _, nBytes := range []int64{-1, 0, 100, 504, 507, 508, 515, 516, 520, 1000, 1 << 40} {
			edges := NeighborCapacity(nBytes, 1000, widths)
			if edges > 0 {
				require.LessOrEqual(t, NeighborBytes(1000, edges, widths), nBytes)
			}
			require.Greater(t, NeighborBytes(1000, edges+1, widths), nBytes)
		}
	}
	require.Zero(t, NeighborCapacity(1000, 10, nil))
}

func TestNeighborsRefuse(t *testing.T) {
	indptr, importance := listsOf(5, 5), Hotness{1, 2}
	_, err := NewNeighbors(context.Background(), mem.NewBudget(0), indptr, importance[:1], 5)
	require.ErrorIs(t, err, ErrHotness)
	for _, limit := range []int64{7, 8 + NeighborScratchBytes(2) - 1} {
		budget := mem.NewBudget(limit)
		_, err = NewNeighbors(context.Background(), budget, indptr, importance, 5)
		require.ErrorIs(t, err, mem.ErrBudget)
		require.Zero(t, budget.Used())
	}
	budget := mem.NewBudget(8 + NeighborScratchBytes(2))
	n, err := NewNeighbors(context.Background(), budget, indptr, importance, math.MaxInt64)
	require.NoError(t, err)
	defer n.Close()
	require.NoError(t, budget.Reserve(mem.Batch, budget.Free()-39))
	_, err = n.AddColumn(4)
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Panics(t, func() { _, _ = n.AddColumn(3) })
}

// lookCounter is a context that ends at the n-th look.
type lookCounter struct {
	context.Context
	left *int
}

func (c lookCounter) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestChoiceStopsAtEveryLook(t *testing.T) {
	indptr, importance := randomLists(rand.New(rand.NewPCG(8, 9)), 5000)
	for looks := 0; ; looks++ {
		left, budget := looks, mem.NewBudget(0)
		n, err := NewNeighbors(lookCounter{context.Background(), &left}, budget, indptr, importance, 4000)
		if err == nil {
			n.Close()
			require.Greater(t, looks, 8, "too few looks at the context")
			return
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, budget.Used())
	}
}
