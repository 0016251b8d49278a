//go:build !invariants

package mem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpareMapsStayWithinTheLimit: what a budget keeps of freed blocks never takes it beyond its limit, and goes when
// the memory is wanted and when nothing is in use any more.
func TestSpareMapsStayWithinTheLimit(t *testing.T) {
	const limit = 1 << 20
	b := NewBudget(limit)
	one, err := b.Alloc(Trace, 100<<10) // a map of 128 KiB
	require.NoError(t, err)
	rest, err := b.Alloc(Trace, limit/2)
	require.NoError(t, err)
	one.Free()
	require.EqualValues(t, 128<<10, b.spare.kept())
	again, err := b.Alloc(Trace, 70<<10)
	require.NoError(t, err)
	require.Zero(t, b.spare.kept(), "it is used again")
	again.Free()
	require.NoError(t, b.Reserve(Batch, limit/2-(128<<10)))
	require.EqualValues(t, 128<<10, b.spare.kept(), "both fit")
	require.NoError(t, b.Reserve(Batch, 1))
	require.Zero(t, b.spare.kept(), "there is no room beside")
	require.NoError(t, b.Reserve(Batch, b.Free()))
	rest.Free()
	require.EqualValues(t, limit/2, b.spare.kept())
	b.Release(Batch, b.Used())
	require.Zero(t, b.spare.kept(), "nothing is in use")

	tight := NewBudget(100 << 10)
	require.NoError(t, tight.Reserve(Batch, 1))
	one, err = tight.Alloc(Trace, 70<<10)
	require.NoError(t, err)
	one.Free()
	require.Zero(t, tight.spare.kept(), "its map is larger than the room")

	free := NewBudget(0)
	require.NoError(t, free.Reserve(Batch, 1))
	for range 20 {
		var blocks []*Block
		for range 20 {
			one, err = free.Alloc(Trace, mostSmall)
			require.NoError(t, err)
			blocks = append(blocks, one)
		}
		for _, one := range blocks {
			one.Free()
		}
		require.EqualValues(t, mostKept, free.spare.kept())
	}
	free.Release(Batch, 1)
	require.Zero(t, free.spare.kept())
}
