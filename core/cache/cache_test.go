package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// topBySorting is the definition: the k first by falling score, then rising id.
func topBySorting(h Hotness, k int) []int64 {
	ids := make([]int64, len(h))
	for i := range ids {
		ids[i] = int64(i)
	}
	slices.SortStableFunc(ids, func(a, b int64) int {
		switch {
		case h[a] > h[b]:
			return -1
		case h[a] < h[b]:
			return 1
		}
		return 0
	})
	ids = ids[:min(k, len(ids))]
	slices.Sort(ids)
	return ids
}

func TestTopIsTheRanking(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	few, many := make(Hotness, 1000), make(Hotness, 1000)
	for i := range few {
		few[i] = float32(rng.IntN(4)) // many ties
		many[i] = rng.Float32() * 1e6
	}
	for name, h := range map[string]Hotness{"few": few, "many": many, "equal": make(Hotness, 50), "none": nil} {
		for _, k := range []int{0, 1, 2, 249, 500, 999, 1000, 2000} {
			require.ElementsMatch(t, topBySorting(h, k), h.Top(int64(k)), "%s, k = %d", name, k)
			require.True(t, slices.IsSorted(h.Top(int64(k))))
		}
	}
}

func TestCountsAsHotnessKeepsTheOrder(t *testing.T) {
	counts := []uint32{5, 0, 1 << 31, 7, 5}
	h := CountsAsHotness(counts)
	require.Equal(t, Hotness{5, 0, 1 << 31, 7, 5}, h)
	require.Equal(t, []int64{0, 2, 3}, h.Top(3))
}

func TestRowsHoldWhatIsAdmitted(t *testing.T) {
	budget := mem.NewBudget(0)
	widths := []int{8, 3}
	c, err := NewRows(budget, 100, 5, widths)
	require.NoError(t, err)
	require.Equal(t, RowsBytes(100, 5, widths), budget.Used())
	first := c.Admit([]int64{90, 3})
	second := c.Admit([]int64{50})
	require.EqualValues(t, 0, first)
	require.EqualValues(t, 2, second)
	for slot := range int64(3) {
		copy(c.Row(0, slot), []byte{byte(slot), 1, 1, 1, 1, 1, 1, 1})
		copy(c.Row(1, slot), []byte{byte(slot), 2, 2})
	}
	slots := make([]int32, 4)
	require.Equal(t, 3, c.Resolve([]int64{3, 4, 50, 90}, slots))
	require.Equal(t, []int32{1, -1, 2, 0}, slots)
	require.Equal(t, []byte{1, 2, 2}, c.Table(1)[3:6])
	require.EqualValues(t, 3, c.Len())
	require.Panics(t, func() { c.Admit([]int64{1, 2, 4}) }, "no room for three")
	c.Close()
	require.Zero(t, budget.Used())
}

func TestCapacityIsWhatRowsBytesAllows(t *testing.T) {
	for _, widths := range [][]int{{512}, {7, 9}} {
		for _, nBytes := range []int64{0, 399, 400, 450, 1000, 50000, 1 << 40} {
			k := Capacity(nBytes, 100, widths)
			require.LessOrEqual(t, k, int64(100))
			if k > 0 {
				require.LessOrEqual(t, RowsBytes(100, k, widths), nBytes)
			}
			if k < 100 && nBytes > RowsBytes(100, 1, widths) {
				require.Greater(t, RowsBytes(100, k+1, widths), nBytes)
			}
		}
	}
	require.Zero(t, Capacity(1000, 100, nil))
}

func TestNewRowsRefuses(t *testing.T) {
	_, err := NewRows(mem.NewBudget(0), 10, 11, []int{4})
	require.ErrorContains(t, err, "got 11")
	budget := mem.NewBudget(50)
	_, err = NewRows(budget, 10, 5, []int{4})
	require.ErrorIs(t, err, mem.ErrBudget)
	require.Zero(t, budget.Used())
}
