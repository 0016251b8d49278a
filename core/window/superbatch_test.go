package window

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestPiecesOfAPrologueOverlap: while the first read of one piece waits, the next piece begins. With one merger it
// waits. Either way all rows arrive, and slots are counted once.
func TestPiecesOfAPrologueOverlap(t *testing.T) {
	for _, mergers := range [][]*ssd.Merger{{{}}, {{}, {}}} {
		fs := faultfs.New(ssd.OS)
		o := options()
		o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack", t.TempDir(), 8<<20, 64<<20
		r := open(t, fs, o, stored(0))
		turns, _ := draw.Share{}.Schedule(numBatches, 0)
		in := r.cache.Begin(0, 0, turns).inspector
		first, err := in.superbatchOf(0)
		require.NoError(t, err)
		close(first.read) // as though it had been executed
		s, err := in.superbatchOf(1)
		require.NoError(t, err)
		s.openPacks(0, len(s.packs))

		begun, second := 0, make(chan struct{})
		var held sync.Once
		fs.Arm(faultfs.Fault{Op: faultfs.Read, Path: "node*", Nth: 1, Times: 1, Short: 1 << 30, Hook: func() {
			held.Do(func() {
				if len(mergers) == 1 {
					return
				}
				select {
				case <-second:
				case <-time.After(20 * time.Second):
					t.Error("the second piece waits for the first")
				}
			})
		}})
		fills, packs := 0, 0
		err = s.readAhead(context.Background(), mergers, 16, func() {
			if begun++; begun == 2 {
				close(second)
			}
		})
		require.NoError(t, err)
		for _, size := range s.plan.Packs {
			packs += int(size.Rows)
		}
		r.features.Resident.All(func(int32, uint32) { fills++ })
		require.Greater(t, begun, 2)
		require.Positive(t, packs)
		require.Positive(t, fills)
		require.EqualValues(t, fills, r.counters.Filled.Load())
		r.close()
	}
}
