package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// TestSpareMemoryHasAStoreInPart: memory that the caller did not name bounds a loader of a store as memory does that is
// named, where the worst case of batches has room and the store has not.
func TestSpareMemoryHasAStoreInPart(t *testing.T) {
	src := draw.OpenStore(someStore(t, ssd.OS))
	for _, cache := range []string{"none", "auto"} {
		o := plain()
		o.Fanouts, o.BatchSize, o.Workers, o.Prefetch, o.Cache = []int64{2}, 4, 1, 1, cache
		o.Seeds = []int64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7, 9, 5}
		want := open(t, src, o)
		all := epochOf(t, want, 0)
		whole := want.Stats().MemoryPeak
		o.Spare, o.Memory = true, 1
		measured := 0
		for o.Memory = leastMemory(t, src, o); o.Memory < 2*whole; o.Memory += whole / 4 {
			l := open(t, src, o)
			requireSame(t, all, epochOf(t, l, 0))
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
			if l.Stats().MemorySmallest > 0 {
				measured++
			}
		}
		require.Positive(t, measured)
	}
}

// TestBatchesAheadOfManyThreads: the batches that many threads prepare take a quarter of the memory, whoever named it.
func TestBatchesAheadOfManyThreads(t *testing.T) {
	explore.Figures(t)
	d := newDataset(20_000, 100_000)
	for name, src := range map[string]draw.Source{"disk": draw.OpenStore(d.store(t, ssd.OS)), "memory": d.graph(t)} {
		for _, spare := range []bool{false, true} {
			o := plain()
			o.Workers, o.Prefetch, o.Spare, o.BatchSize = 64, draw.Auto, spare, 2000
			ahead := map[int]bool{}
			for o.Memory = 32 << 20; o.Memory <= 2<<30; o.Memory *= 4 {
				l := open(t, src, o)
				split := &l.draw.Split
				require.Positive(t, split.Batches)
				if ahead[split.Prefetch] = true; split.Prefetch > sizing.FewAhead {
					each := split.Batches / int64(split.Prefetch+1) // and the consumer's
					require.LessOrEqual(t, int64(split.Prefetch)*each, l.draw.Options.Memory/4, "%s, %d", name, o.Memory)
				}
				epochOf(t, l, 0)
				require.LessOrEqual(t, l.draw.Budget.Peaks()[mem.Batch], split.Batches)
			}
			require.True(t, ahead[64], "%v", ahead)
			require.Greater(t, len(ahead), 1)
		}
	}
}
