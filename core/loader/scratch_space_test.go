package loader

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// little is a file system that says it has few bytes left.
type little struct {
	ssd.FS
	free int64
}

func (l little) Space(string) (int64, error) { return l.free, nil }

// TestScratchIsComparedWithTheFreeSpace: a size that was chosen is at most seven eighths of what is free; one that was
// given is an error where there is no room for what the file may hold, and none where the file will never be so large.
func TestScratchIsComparedWithTheFreeSpace(t *testing.T) {
	d := newDataset(3000, 20_000)
	s := d.store(t, little{ssd.OS, 4 << 20})
	o := belady()
	o.Memory, o.Scratch, o.ScratchBytes = 8<<20, t.TempDir(), 4<<20
	require.EqualValues(t, 4<<20, open(t, draw.OpenStore(s), o).draw.Split.Scratch)
	o.ScratchBytes = 1 << 40
	require.EqualValues(t, 1<<40, open(t, draw.OpenStore(s), o).draw.Split.Scratch)

	few := d.store(t, little{ssd.OS, 10_000})
	for _, o.ScratchBytes = range []int64{10_001, 1 << 40} {
		_, err := Open(context.Background(), draw.OpenStore(few), o, mem.NewAllocator())
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.ErrorContains(t, err, "scratch_size")
		require.ErrorContains(t, err, o.Scratch)
	}
	o.ScratchBytes = draw.Auto
	require.EqualValues(t, 8750, open(t, draw.OpenStore(few), o).draw.Split.Scratch)
}

// TestScratchDirectoryIsRemoved: what is in the scratch file stays readable when its directory goes in mid-epoch; where
// the directory goes before there is a file, plans do without and say why.
func TestScratchDirectoryIsRemoved(t *testing.T) {
	reference := open(t, someDataset().graph(t), plain())
	want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
	for _, before := range []int{0, 15} {
		o := belady()
		o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
		l := open(t, draw.OpenStore(someDataset().store(t, ssd.OS)), o)
		storePlans(t, l, 0)
		for epoch := range int64(2) {
			var got []*seen
			if epoch == 0 && before == 0 {
				require.NoError(t, os.RemoveAll(o.Scratch))
			}
			require.NoError(t, l.Start(epoch, 0, Train))
			for i := range someBatchs {
				b, err := l.Next(context.Background())
				require.NoError(t, err)
				got = append(got, look(b))
				b.Release()
				if epoch == 0 && i == before {
					require.NoError(t, os.RemoveAll(o.Scratch))
				}
			}
			requireSame(t, want[epoch], got)
		}
		require.Equal(t, before == 0, l.Stats().ScratchWhy != "", l.Stats().ScratchWhy)
		require.Positive(t, l.Stats().Packed, "packs in memory go on")
	}
}
