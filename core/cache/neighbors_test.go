package cache

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/packed"
)

// listsOf makes an indptr of these degrees.
func listsOf(degrees ...int64) []int64 {
	indptr := []int64{0}
	for _, d := range degrees {
		indptr = append(indptr, indptr[len(indptr)-1]+d)
	}
	return indptr
}

// chooseBySorting is the definition: every list by falling importance, then in the
// order of kinds and nodes, is taken where it fits into what is left.
func chooseBySorting(of []Lists, nBytes int64) []map[int64]bool {
	type list struct {
		kind       int
		node       int64
		nBits      int64
		importance float32
	}
	nBits := 8 * nBytes
	var order []list
	var chosen []map[int64]bool
	unit := int64(128) // all are multiples of it
	for slices.ContainsFunc(of, func(o Lists) bool { return o.edgeBits()%unit != 0 }) {
		unit--
	}
	for kind, o := range of {
		chosen = append(chosen, map[int64]bool{})
		for v, wanted := range o.Wanted {
			if degree := o.Indptr.Degree(int64(v)); degree > 0 {
				order = append(order, list{kind, int64(v), degree * o.edgeBits(), wanted / float32(degree*(o.edgeBits()/unit))})
			}
		}
		nBits -= 8 * (NeighborTableBytes(int64(len(o.Wanted))) + ColumnsBytes(len(o.Widths)))
	}
	slices.SortStableFunc(order, func(a, b list) int { return cmp.Compare(b.importance, a.importance) })
	for _, l := range order {
		if l.nBits <= nBits {
			chosen[l.kind][l.node] = true
			nBits -= l.nBits
		}
	}
	return chosen
}

func chosenBy(n *Neighbors) map[int64]bool {
	chosen := map[int64]bool{}
	for v := range n.indptr.NumNodes() {
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

// chosen chooses among lists of one kind, whose in-edges take one byte, by
// capacity in-edges in all.
func chosen(t *testing.T, indptr []int64, wanted Hotness, capacity int64) *Neighbors {
	t.Helper()
	budget := mem.NewBudget(0)
	tables := NeighborTableBytes(int64(len(wanted)))
	n, err := NewNeighbors(context.Background(), budget, []Lists{{offsets.Of(indptr), wanted, []int{8}}},
		capacity+tables+ColumnsBytes(1))
	require.NoError(t, err)
	require.Equal(t, tables, budget.Used(), "scratch is left")
	require.LessOrEqual(t, n[0].edges, max(0, capacity))
	t.Cleanup(func() {
		n[0].Close()
		require.Zero(t, budget.Used())
	})
	return n[0]
}

func TestImportanceIsOutDegreeOverInDegree(t *testing.T) {
	require.EqualValues(t, 0.5, importance(7, 14, 1))
	require.EqualValues(t, 0.25, importance(7, 14, 2)) // of edges twice as large
}

func TestListsAreChosenByRank(t *testing.T) {
	for name, c := range map[string]struct {
		degrees    []int64
		importance Hotness // by in-edges these are wanted so often
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
			for v := range c.importance {
				c.importance[v] *= float32(c.degrees[v])
			}
			n := chosen(t, listsOf(c.degrees...), c.importance, c.capacity)
			require.Equal(t, len(c.want), len(chosenBy(n)))
			edges := int64(0)
			for _, v := range c.want {
				require.NotEqualValues(t, Miss, listOf(n, v), "node %d", v)
				edges += c.degrees[v]
			}
			require.Equal(t, edges, n.edges)
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
			outDegrees[v] = float32(degrees[v] * degrees[v])
		}
	case 1: // nearly no ties
		for v := range outDegrees {
			outDegrees[v] = rng.Float32()
		}
	}
	return indptr, outDegrees
}

func TestChoiceEqualsGreedyBySorting(t *testing.T) {
	for seed := range uint64(60) {
		rng := explore.Rand(t, seed, 9)
		indptr, importance := randomLists(rng, []int{1, 15, 16, 17, 500, 6000}[seed%6])
		total := indptr[len(indptr)-1]
		for _, capacity := range []int64{0, 1, total / 50, total / 3, total - 1, total, total + 1} {
			n := chosen(t, indptr, importance, capacity)
			all := capacity + NeighborTableBytes(int64(len(importance))) + ColumnsBytes(1)
			want := chooseBySorting([]Lists{{offsets.Of(indptr), importance, []int{8}}}, all)[0]
			require.Equal(t, want, chosenBy(n), "seed %d, capacity %d of %d", seed, capacity, total)
		}
	}
}

// Lists of several kinds, whose in-edges take different bytes, compete for the room.
func TestChoiceAmongKinds(t *testing.T) {
	for seed := range uint64(60) {
		rng := explore.Rand(t, seed, 12)
		var of []Lists
		all := int64(0)
		for range 1 + rng.IntN(4) {
			indptr, wanted := randomLists(rng, []int{0, 1, 17, 300, 5000}[rng.IntN(5)])
			of = append(of, Lists{offsets.Of(indptr), wanted, [][]int{{5}, {27}, {10, 20}, {32, 57}}[rng.IntN(4)]})
			last := &of[len(of)-1]
			all += NeighborTableBytes(int64(len(wanted))) + ColumnsBytes(len(last.Widths)) +
				(indptr[len(wanted)]*last.edgeBits()+7)/8
		}
		for _, nBytes := range []int64{0, all / 50, all / 3, all - 1, all} {
			budget := mem.NewBudget(0)
			n, err := NewNeighbors(context.Background(), budget, of, nBytes)
			require.NoError(t, err)
			var got []map[int64]bool
			for _, one := range n {
				got = append(got, chosenBy(one))
			}
			require.Equal(t, chooseBySorting(of, nBytes), got, "seed %d, %d bytes of %d", seed, nBytes, all)
			for _, one := range n {
				one.Close()
			}
			require.Zero(t, budget.Used())
		}
	}
}

// What lists of a kind take decides too.
func TestEdgesThatTakeMoreAreWorthLess(t *testing.T) {
	a, b := offsets.Of(listsOf(2, 2, 2)), offsets.Of(listsOf(2, 2))
	of := []Lists{{a, Hotness{6, 2, 4}, []int{13}}, {b, Hotness{8, 10}, []int{13, 13}}}
	n, err := NewNeighbors(context.Background(), mem.NewBudget(0), of, (4*13+2*26+7)/8+8+8+ColumnsBytes(3))
	require.NoError(t, err)
	require.Equal(t, map[int64]bool{0: true, 2: true}, chosenBy(n[0])) // 6, then 4, equal to what is next
	require.Equal(t, map[int64]bool{1: true}, chosenBy(n[1]))          // 10/2, before 4
	n[0].Close()
	n[1].Close()
}

// The rounds of the chooser: more candidates than can be sorted at a time, and
// each may or may not fit.
func TestChoiceOfManyRounds(t *testing.T) {
	const nodes = 5 * minSorted
	degrees, importance := make([]int64, nodes), make(Hotness, nodes)
	for v := range degrees {
		degrees[v], importance[v] = 1, float32(nodes-v)
		if v%2 == 0 {
			degrees[v] = int64(nodes - v) // never fits once the first has been passed over
			importance[v] *= float32(nodes - v)
		}
	}
	indptr := listsOf(degrees...)
	for _, capacity := range []int64{nodes - 1, nodes / 2, nodes / 2 * 5, 3 * nodes} {
		n := chosen(t, indptr, importance, capacity)
		want := chooseBySorting([]Lists{{offsets.Of(indptr), importance, []int{8}}},
			capacity+NeighborTableBytes(nodes)+ColumnsBytes(1))[0]
		require.Equal(t, want, chosenBy(n))
	}
}

func TestColumnsHoldTheLists(t *testing.T) {
	for seed := range uint64(12) {
		rng := explore.Rand(t, seed, 3)
		indptr, importance := randomLists(rng, 700)
		total := indptr[len(indptr)-1]
		n := chosen(t, indptr, importance, total*int64(seed)/11)
		width := 1 + rng.IntN(40)
		narrow, err := n.AddColumn(width)
		require.NoError(t, err)
		wide, err := n.AddColumn(57)
		require.NoError(t, err)
		columns := packed.Bytes(n.edges, width) + packed.Bytes(n.edges, 57)
		require.Equal(t, NeighborTableBytes(700)+columns, n.budget.Used())
		ofNarrow := func(p int64) int64 { return p * 7 & (1<<width - 1) }
		var pieces sync.WaitGroup               // at the same time: pieces share words
		for first := int64(0); first < total; { // pieces of any size
			end := min(total, first+1+rng.Int64N(900))
			var small, large []int64
			for p := first; p < end; p++ {
				small, large = append(small, ofNarrow(p)), append(large, p<<32)
			}
			at := first
			pieces.Go(func() { Put(narrow, at, small); Put(wide, at, large) })
			first = end
		}
		pieces.Wait()
		whole, err := n.budget.Alloc(mem.NeighborCache, total*8)
		require.NoError(t, err)
		for p := range mem.Slice[int64](whole) {
			mem.Slice[int64](whole)[p] = ofNarrow(int64(p))
		}
		cut, err := n.CutColumn(whole, width, func(first int64, out []int64) { copy(out, mem.Slice[int64](whole)[first:]) })
		require.NoError(t, err)
		for at := range n.edges {
			require.Equal(t, narrow.At(at), cut.At(at))
		}
		require.Equal(t, NeighborTableBytes(700)+columns+packed.Bytes(n.edges, width), n.budget.Used(),
			"the rest is given back")
		next := int64(0) // lists lie back to back in the order of their nodes
		for v := range int64(700) {
			at := listOf(n, v)
			if at == Miss {
				continue
			}
			require.Equal(t, next, at)
			for i := range indptr[v+1] - indptr[v] {
				require.Equal(t, ofNarrow(indptr[v]+i), narrow.At(at+i))
				require.Equal(t, (indptr[v]+i)<<32, wide.At(at+i))
			}
			next += indptr[v+1] - indptr[v]
		}
		require.Equal(t, n.edges, next)
		requireRuns(t, n, 0, total)
		requireRuns(t, n, total/3, total/2)
	}
}

// requireRuns recounts what is cached between two positions.
func requireRuns(t *testing.T, n *Neighbors, lo, hi int64) {
	t.Helper()
	want, got := map[int64]int64{}, map[int64]int64{}
	for v := range n.indptr.NumNodes() {
		if at := listOf(n, v); at != Miss {
			begin, end := n.indptr.Range(v)
			for p := max(lo, begin); p < min(hi, end); p++ {
				want[p] = at + p - begin
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
}

func TestNeighborsRefuse(t *testing.T) {
	indptr, wanted, bytes := offsets.Of(listsOf(5, 5)), Hotness{1, 2}, []int{8}
	_, err := NewNeighbors(context.Background(), mem.NewBudget(0),
		[]Lists{{indptr, wanted, bytes}, {indptr, wanted[:1], bytes}}, 5)
	require.ErrorIs(t, err, ErrHotness)
	for _, limit := range []int64{7, 15, 16 + NeighborScratchBytes(4) - 1} {
		budget := mem.NewBudget(limit)
		_, err = NewNeighbors(context.Background(), budget, []Lists{{indptr, wanted, bytes}, {indptr, wanted, bytes}}, 5)
		require.ErrorIs(t, err, mem.ErrBudget)
		require.Zero(t, budget.Used())
	}
	budget := mem.NewBudget(8 + NeighborScratchBytes(2))
	n, err := NewNeighbors(context.Background(), budget, []Lists{{indptr, wanted, []int{32}}}, math.MaxInt64)
	require.NoError(t, err)
	defer n[0].Close()
	require.NoError(t, budget.Reserve(mem.Batch, budget.Free()-packed.Bytes(10, 32)+1))
	_, err = n[0].AddColumn(32)
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Panics(t, func() { _, _ = n[0].AddColumn(0) })
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
		n, err := NewNeighbors(lookCounter{context.Background(), &left}, budget,
			[]Lists{{offsets.Of(indptr), importance, []int{32}}, {offsets.Of(indptr), importance, []int{64}}}, 16000)
		if err == nil {
			n[0].Close()
			n[1].Close()
			require.Greater(t, looks, 8, "too few looks at the context")
			return
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, budget.Used())
	}
}
