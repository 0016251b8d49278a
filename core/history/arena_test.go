package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// An arena holds exactly the most that was asked of it, and pieces that do not overlap.
func TestArena(t *testing.T) {
	budget := mem.NewBudget(0)
	var a arena
	for _, n := range []int64{0, 1, 2, 3, 2, 5, 100, 99, 101} {
		need := pieceBytes(n, 8) + pieceBytes(n, 4) + pieceBytes(n, 1)
		held := max(need, budget.Used())
		require.NoError(t, a.begin(budget, need))
		require.Equal(t, held, budget.Used())
		long, short, narrow := take[int64](&a, n), take[uint32](&a, n), take[byte](&a, n)
		for i := range n {
			long[i], short[i], narrow[i] = -1, 2, 3
		}
		for i := range n {
			require.Equal(t, []any{int64(-1), uint32(2), byte(3)}, []any{long[i], short[i], narrow[i]})
		}
		require.Equal(t, []int{int(n), int(n), int(n)}, []int{cap(long), cap(short), cap(narrow)})
	}
	a.free()
	require.Zero(t, budget.Used())
}
