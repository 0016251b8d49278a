package mem_test

import (
	"math"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/invariants"
	"freshgo/core/mem"
)

func TestPurposeNames(t *testing.T) {
	names := map[string]bool{}
	for p := range mem.Purpose(mem.NumPurposes) {
		require.NotEmpty(t, p.String())
		names[p.String()] = true
	}
	require.Len(t, names, mem.NumPurposes)
	require.Equal(t, "topology", mem.Topology.String())
	require.Equal(t, "convert", mem.Convert.String())
	require.Equal(t, "packs", mem.Pack.String())
	require.Equal(t, "purpose(200)", mem.Purpose(200).String())
}

func TestReserveCountsByPurpose(t *testing.T) {
	b := mem.NewBudget(100)
	require.NoError(t, b.Reserve(mem.IDMap, 60))
	require.NoError(t, b.Reserve(mem.Trace, 40))
	b.Release(mem.IDMap, 50)
	require.NoError(t, b.Reserve(mem.Trace, 20))

	require.EqualValues(t, 100, b.Limit())
	require.EqualValues(t, 70, b.Used())
	require.EqualValues(t, 30, b.Free())
	require.EqualValues(t, 100, b.Peak())
	require.Equal(t, [mem.NumPurposes]int64{mem.IDMap: 10, mem.Trace: 60}, b.Live())
	require.Equal(t, [mem.NumPurposes]int64{mem.IDMap: 60, mem.Trace: 60}, b.Peaks())
}

func TestBudgetRefuses(t *testing.T) {
	b := mem.NewBudget(100)
	require.NoError(t, b.Reserve(mem.Topology, 70))
	for _, need := range []int64{31, math.MaxInt64} {
		for name, ask := range map[string]func() error{
			"reserve": func() error { return b.Reserve(mem.Batch, need) },
			"alloc":   func() error { _, err := b.Alloc(mem.Batch, need); return err },
		} {
			err := ask()
			require.ErrorIs(t, err, mem.ErrBudget, name)
			var refusal *mem.BudgetError
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, mem.BudgetError{Purpose: mem.Batch, Need: need, Free: 30, Limit: 100}, *refusal)
			require.Equal(t, 70+min(need, math.MaxInt64-70), refusal.Minimum())
		}
	}
	require.EqualValues(t, 70, b.Used())
	require.EqualValues(t, 70, b.Peak(), "a refusal is not counted")
	require.NoError(t, b.Reserve(mem.Batch, 30), "exactly what is left")
	require.EqualError(t, b.Reserve(mem.Batch, 1),
		"mem: batch needs 1 bytes, 0 of the budget's 100 are left: give memory of at least 101 bytes: memory budget exceeded")
	b.Release(mem.Topology, 70)
	b.Release(mem.Batch, 30)
	require.EqualError(t, b.Reserve(mem.Staging, 101),
		"mem: staging needs 101 bytes, 100 of the budget's 100 are left: memory budget exceeded", "which is what to give")
}

func TestUnlimitedBudgetCounts(t *testing.T) {
	b := mem.NewBudget(0)
	require.NoError(t, b.Reserve(mem.Trace, 1<<50))
	require.EqualValues(t, 1<<50, b.Used())
	require.Zero(t, b.Limit())
	require.EqualValues(t, math.MaxInt64, b.Free())
}

func TestReleaseOfMoreThanIsLivePanics(t *testing.T) {
	b := mem.NewBudget(0)
	require.NoError(t, b.Reserve(mem.Trace, 10))
	require.Panics(t, func() { b.Release(mem.Trace, 11) })
	require.Panics(t, func() { b.Release(mem.Batch, 1) })
	require.Panics(t, func() { b.Release(mem.Trace, -1) })
	require.Panics(t, func() { _ = b.Reserve(mem.Trace, -1) })
	require.EqualValues(t, 10, b.Used())
	b.Release(mem.Trace, 10)
	require.Zero(t, b.Used())
}

func TestConcurrentUseStaysWithinTheLimit(t *testing.T) {
	const limit = 1000
	b := mem.NewBudget(limit)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			p := mem.Purpose(g % mem.NumPurposes)
			for i := range 2000 {
				if n := int64(i*37%400 + 1); b.Reserve(p, n) == nil {
					b.Release(p, n)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.Used())
	require.Zero(t, b.Live())
	require.LessOrEqual(t, b.Peak(), int64(limit))
}

func TestAlloc(t *testing.T) {
	for _, n := range []int64{0, 1, 4095, 4096, 4097, 8 << 20} {
		b := mem.NewBudget(n)
		if n == 0 {
			b = mem.NewBudget(1)
		}
		block, err := b.Alloc(mem.FeatureCache, n)
		require.NoError(t, err)
		require.Len(t, block.Bytes(), int(n))
		require.EqualValues(t, n, b.Live()[mem.FeatureCache])
		for i, v := range block.Bytes() {
			if v != 0 {
				t.Fatalf("byte %d of %d is not zero", i, n)
			}
		}
		if n > 0 {
			block.Bytes()[n-1] = 1
		}
		block.Free()
		block.Free()
		require.Zero(t, b.Used())
		require.EqualValues(t, n, b.Peak())
	}
}

func TestShrinkKeepsTheFirstBytes(t *testing.T) {
	for _, n := range []int64{3, 10_000, 9 << 20} {
		b := mem.NewBudget(n)
		for range 2 { // the second block may be the first one's map
			block, err := b.Alloc(mem.Trace, n)
			require.NoError(t, err)
			for i, v := range block.Bytes() {
				if v != 0 {
					t.Fatalf("byte %d of %d is not zero", i, n)
				}
				block.Bytes()[i] = byte(i%251 + 1)
			}
			for _, left := range []int64{n, n / 2, n/2 - 1, 0} {
				block.Shrink(left)
				require.EqualValues(t, left, b.Used())
				require.Len(t, block.Bytes(), int(left))
				for i, v := range block.Bytes() {
					if v != byte(i%251+1) {
						t.Fatalf("byte %d of %d is %d", i, left, v)
					}
				}
			}
			block.Free()
			require.Zero(t, b.Used())
		}
	}
}

func TestRecountMovesABlockToAnotherBudget(t *testing.T) {
	from, to := mem.NewBudget(0), mem.NewBudget(99)
	block, err := from.Alloc(mem.Trace, 100)
	require.NoError(t, err)
	require.ErrorIs(t, block.Recount(to, mem.NeighborCache), mem.ErrBudget)
	require.EqualValues(t, 100, from.Live()[mem.Trace], "a refusal changes nothing")
	require.Zero(t, to.Used())
	block.Shrink(99)
	require.NoError(t, block.Recount(to, mem.NeighborCache))
	require.Zero(t, from.Used())
	require.EqualValues(t, 99, to.Live()[mem.NeighborCache])
	block.Free()
	require.Zero(t, to.Used())
}

func TestAllocThatTheSystemRefusesIsNotCounted(t *testing.T) {
	b := mem.NewBudget(0)
	_, err := b.Alloc(mem.Topology, 1<<60)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.ErrorContains(t, err, "topology")
	require.Zero(t, b.Used())
}

func TestViews(t *testing.T) {
	block, err := mem.NewBudget(0).Alloc(mem.Topology, 64)
	require.NoError(t, err)
	defer block.Free()
	words := mem.Slice[uint64](block)
	require.Len(t, words, 8)
	words[1] = 0x0807060504030201
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, block.Bytes()[8:16])

	require.Equal(t, []uint16{0x0403, 0x0605}, mem.View[uint16](block.Bytes()[10:14]))
	require.Empty(t, mem.View[int64](nil))
	require.Panics(t, func() { mem.View[uint32](block.Bytes()[1:5]) }, "misaligned")
	require.Panics(t, func() { mem.View[uint32](block.Bytes()[:6]) }, "not a whole number of elements")
}

func TestMapAllocatorCountsWhatIsLive(t *testing.T) {
	a := mem.NewAllocator()
	var held []mem.Buffer
	for _, n := range []int64{0, 1, 100, 5000} {
		buffer, err := a.Acquire(n)
		require.NoError(t, err)
		require.Len(t, buffer.Bytes(), int(n))
		held = append(held, buffer)
	}
	buffers, bytes := a.Live()
	require.EqualValues(t, 4, buffers)
	require.EqualValues(t, 5101, bytes)

	_, err := a.Acquire(1 << 60)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Panics(t, func() { _, _ = a.Acquire(-1) })

	for _, buffer := range held {
		buffer.Release()
	}
	require.Panics(t, held[1].Release, "a second release")
	buffers, bytes = a.Live()
	require.Zero(t, buffers)
	require.Zero(t, bytes)
}

// Maps come back, with the next buffer of their size, until too many are kept; with the tag invariants nothing is left
// in them.
func TestMapAllocatorReusesMaps(t *testing.T) {
	a := mem.NewAllocator()
	first, err := a.Acquire(5000)
	require.NoError(t, err)
	old := first.Bytes()
	copy(old, "left")
	first.Release()
	if invariants.Enabled {
		require.NotEqual(t, "left", string(old[:4]), "seen after its release")
	}
	second, err := a.Acquire(8000)
	require.NoError(t, err)
	require.Same(t, &old[0], &second.Bytes()[0])
	if invariants.Enabled {
		for i, v := range second.Bytes() {
			require.NotZero(t, v, "byte %d", i)
		}
	}
	other, err := a.Acquire(8000)
	require.NoError(t, err)
	require.NotSame(t, &old[0], &other.Bytes()[0], "that one is in use")
	second.Release()
	other.Release()

	large, err := a.Acquire(64 << 20)
	require.NoError(t, err)
	large.Release() // not kept
	again, err := a.Acquire(64 << 20)
	require.NoError(t, err)
	again.Release()
	buffers, bytes := a.Live()
	require.Zero(t, buffers)
	require.Zero(t, bytes)
}

func TestSmallBlocksComeBackEmpty(t *testing.T) {
	b := mem.NewBudget(0)
	for _, n := range []int64{1, 16 << 10, 16<<10 + 1, 100_000, 256 << 10, 256<<10 + 1} {
		var blocks []*mem.Block
		for range 40 { // more than are kept of the largest
			block, err := b.Alloc(mem.Trace, n)
			require.NoError(t, err)
			require.Len(t, block.Bytes(), int(n))
			for _, v := range block.Bytes() {
				if v != 0 {
					t.Fatalf("a block of %d bytes is not empty", n)
				}
			}
			for i := range block.Bytes() {
				block.Bytes()[i] = 7
			}
			if blocks = append(blocks, block); len(blocks)%3 == 0 {
				blocks[len(blocks)-2].Free()
			}
		}
		for _, block := range blocks {
			block.Free()
		}
	}
	require.Zero(t, b.Used())
}
