package scratch

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// Buffers are apart from each other, memory is within its bound and is all given back, and a buffer is refused only
// where none is free and there is no room for one.
func TestBuffers(t *testing.T) {
	const chunk, most = 64 << 10, 6 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	budget := mem.NewBudget(0)
	pool := &Pool{budget: budget, options: Options{MemoryBytes: most}}
	b := &buffers{pool: pool, chunk: chunk}
	held := map[byte]*buffer{}
	refused := 0
	for range 20_000 {
		mark := byte(rng.UintN(256))
		if one := held[mark]; one != nil {
			for _, at := range []int{0, len(one.data) / 2, len(one.data) - 1} {
				require.Equal(t, mark, one.data[at])
			}
			b.give(one)
			delete(held, mark)
			continue
		}
		size := chunk
		if rng.UintN(4) == 0 {
			size = 4096 * (1 + rng.IntN(chunk/4096-1))
		}
		one, err := b.take(size, 0)
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			require.Less(t, b.left(), int64(size))
			require.Empty(t, b.slabs, "a whole one is free")
			refused++
			continue
		}
		require.True(t, len(one.data) == size || len(one.data) == chunk)
		for i := range one.data {
			one.data[i] = mark
		}
		require.True(t, b.fit(int(roomOf(b)), 0))
		require.False(t, b.fit(int(roomOf(b))+1, 0))
		held[mark] = one
	}
	for _, one := range held {
		b.give(one)
	}
	require.Zero(t, budget.Used())
	require.EqualValues(t, most-most/tablesShare, b.left())
	require.LessOrEqual(t, budget.Peak(), int64(most))
	require.Positive(t, refused)

	budget = mem.NewBudget(3 * chunk) // the pool does not know this limit
	b = &buffers{pool: &Pool{budget: budget, options: Options{MemoryBytes: most}}, chunk: chunk}
	for range 3 {
		_, err := b.take(chunk, 0)
		require.NoError(t, err)
	}
	_, err := b.take(chunk, 0)
	require.ErrorIs(t, err, mem.ErrBudget)
}

// roomOf is room as takes of single chunks would find it.
func roomOf(b *buffers) (n int64) {
	for _, s := range b.slabs {
		n += int64(len(s.free) * b.chunk)
	}
	return n + max(0, b.pool.options.MemoryBytes-b.pool.options.MemoryBytes/tablesShare-b.pool.budget.Used())
}
