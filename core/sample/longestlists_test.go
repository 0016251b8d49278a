package sample

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// Classes of lengths ascend, and each begins with its shortest length.
func TestLengthClasses(t *testing.T) {
	for n := int64(1); n < 1<<14; n++ {
		class := lengthClass(n)
		require.LessOrEqual(t, lengthClass(n-1), class)
		require.LessOrEqual(t, shortestOf(class), n)
		require.Greater(t, shortestOf(class+1), n)
	}
	require.Less(t, lengthClass(math.MaxInt64), 256)
}

// Whatever the memory, it is kept to, the lists that are held are the longest ones, and each is in order of time.
func TestLongListsAreTheLongest(t *testing.T) {
	g := plainTypes(newTestGraph(600, explore.Seed(t, 4)))
	g.withNodeTimes(explore.Seed(t, 5))
	of, r := g.relations[0], Relation{Indptr: offsets.Of(g.relations[0].indptr), Indices32: g.relations[0].narrow}
	times := byNode(g.nodeTimes[0], 0)
	held := 0
	for most := int64(16); most < 1<<20; most += most / 3 {
		budget := mem.NewBudget(0)
		l, err := NewLongLists(context.Background(), &r, times, most, budget)
		require.NoError(t, err)
		require.LessOrEqual(t, budget.Used(), most)
		require.GreaterOrEqual(t, len(l.order), held, "more memory holds no less")
		held = len(l.order)
		for v := range g.nodes[0] {
			list := of.wide[of.indptr[v]:of.indptr[v+1]]
			order := l.of(v, int64(len(list)))
			if int64(len(list)) <= l.longer {
				require.Nil(t, order)
				continue
			}
			want := make([]uint32, len(list))
			for i := range want {
				want[i] = uint32(i)
			}
			slices.SortStableFunc(want, func(a, b uint32) int {
				return int(g.nodeTimes[0][list[a]] - g.nodeTimes[0][list[b]])
			})
			require.Equal(t, want, order)
		}
		l.Close()
		require.Zero(t, budget.Used())
	}
	all := 0
	for v := range g.nodes[0] {
		if n := of.indptr[v+1] - of.indptr[v]; n > leastLong {
			all += int(n)
		}
	}
	require.Equal(t, all, held)
	var none *LongLists
	require.Nil(t, none.of(3, 1<<20))
}

// Long lists take the memory that is said, 4 bytes a target at most.
func TestLongListsTakeTheirBytes(t *testing.T) {
	require.Zero(t, LongListsBytes(nil))
	require.Zero(t, LongListsBytes(offsets.Of([]int64{0})))
	require.Zero(t, LongListsBytes(offsets.Of([]int64{0, leastLong})))
	require.Zero(t, LongListsBytes(offsets.Of([]int64{0, 1 << 20})), "longer than there are nodes")
	const nodes = 10_000
	indptr := make([]int64, 1, nodes+1)
	for v := range int64(nodes) {
		deg := int64(3)
		if v%500 == 7 {
			deg = 100 + v/100
		}
		indptr = append(indptr, indptr[v]+deg)
	}
	r := Relation{Indptr: offsets.Of(indptr)}
	r.Indices32 = make([]int32, r.numEdges())
	times, budget := byNode(make([]int64, nodes), 0), mem.NewBudget(0)
	l, err := NewLongLists(context.Background(), &r, times, LongListsBytes(r.Indptr), budget)
	require.NoError(t, err)
	require.Len(t, l.nodes, nodes/500)
	require.Equal(t, LongListsBytes(r.Indptr), budget.Used())
	require.LessOrEqual(t, budget.Used(), int64(4*nodes))
	l.Close()
	require.Zero(t, budget.Used())
}

func TestLongListsStopWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g := plainTypes(newTestGraph(600, 4))
	g.withNodeTimes(5)
	r, budget := Relation{Indptr: offsets.Of(g.relations[0].indptr), Indices32: g.relations[0].narrow}, mem.NewBudget(0)
	_, err := NewLongLists(ctx, &r, byNode(g.nodeTimes[0], 1), 1<<20, budget)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, budget.Used())
	_, err = NewLongLists(context.Background(), &r, byNode(g.nodeTimes[0], 1), 1<<20, mem.NewBudget(100))
	require.ErrorIs(t, err, mem.ErrBudget)
}
