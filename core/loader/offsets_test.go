package loader

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestOffsetsAreReadBesideLists: a loader whose neighbour lists stay in memory reads offsets and lists at the same
// time, or, where the memory has no room for reading both, the offsets first.
func TestOffsetsAreReadBesideLists(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  int
		memory int64
		beside bool
	}{
		"roomy": {3000, 64 << 20, true},
		"tight": {700_000, 20 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			var offsets atomic.Int64 // reads
			var before int64         // of them before the lists
			lists := make(chan struct{})
			begin := sync.OnceFunc(func() {
				before = offsets.Load()
				close(lists)
			})
			fs := faultfs.New(ssd.OS,
				faultfs.Fault{Op: faultfs.Read, Path: "indices.crc", Nth: 1, Times: faultfs.Forever, Short: 1 << 20,
					Hook: begin},
				faultfs.Fault{Op: faultfs.Read, Path: "indptr.bin", Nth: 1, Times: faultfs.Forever, Short: 1 << 20, Hook: func() {
					if c.beside {
						select {
						case <-lists:
						case <-time.After(10 * time.Second):
						}
					}
					offsets.Add(1)
				}})
			o := plain()
			o.Fanouts, o.BatchSize, o.Seeds, o.Memory = []int64{2}, 10, nil, c.memory
			l := open(t, draw.OpenStore(newDataset(c.nodes, c.nodes).store(t, fs)), o)
			if c.beside {
				require.True(t, l.draw.Split.Neighbors)
				require.Zero(t, before)
			} else {
				require.Equal(t, offsets.Load(), before)
			}
			require.Positive(t, offsets.Load())
		})
	}
}
