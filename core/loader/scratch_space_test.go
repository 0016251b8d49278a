package loader

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync/atomic"
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

// filling is a file system whose files can be allocated up to a size. Where it is sudden, it says so once it is full.
type filling struct {
	ssd.FS
	size      int64
	sudden    bool
	allocated atomic.Int64
	full      atomic.Bool
}

type fillingFile struct {
	ssd.File
	fs *filling
}

func (f *filling) Open(path string, flag int, perm uint32) (ssd.File, error) {
	file, err := f.FS.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &fillingFile{file, f}, nil
}

func (f *filling) Space(string) (int64, error) {
	if f.sudden && !f.full.Load() {
		return 1 << 40, nil
	}
	return f.size - f.allocated.Load(), nil
}

func (f *fillingFile) Allocate(off, n int64) error {
	if off+n > f.fs.size {
		f.fs.full.Store(f.fs.allocated.Load() > f.fs.size/2)
		return &ssd.PathError{Op: "allocate", Path: f.Name(), Off: off, Err: syscall.ENOSPC}
	}
	f.fs.allocated.Store(off + n)
	return f.File.Allocate(off, n)
}

// TestDiskFillsUp: where the disk has less room than the scratch file was sized for, batches are the same, no plan is
// lost, hardly a batch is sampled again by itself, and epochs read few more bytes. The disk says so beforehand, or it
// fills while a window is sampled or planned.
func TestDiskFillsUp(t *testing.T) {
	f := newDataset(3000, 200_000).form("")
	o := f.readsTogether(0)
	reference := open(t, f.graph(t), o)
	want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
	o.Superbatch, o.BufferMemory, o.ScratchBytes = 40, 8<<20, 1<<30
	most := int64(math.MaxInt64)
	for _, fs := range []*filling{
		{size: 1 << 40}, {size: 8 << 20}, {size: 8 << 20, sudden: true}, {size: 4 << 20, sudden: true},
	} {
		fs.FS, o.Scratch = ssd.OS, t.TempDir()
		l := open(t, draw.OpenStore(f.store(t, fs)), o)
		l.draw.Split.Traces = 1 << 16 // of memory, in place of the file
		l.draw.Split.Records = o.Superbatch << 19
		storePlans(t, l, 0)
		fs.allocated.Store(0) // by measuring the disk
		fs.full.Store(false)
		before := l.Stats()
		for epoch := range want {
			requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
		}
		after := l.Stats()
		read := after.BytesRead - before.BytesRead
		t.Log(read, after.Resampled, len(l.Plan().Windows), after.ScratchWhy)
		require.LessOrEqual(t, read, most)
		require.LessOrEqual(t, after.Resampled, int64(4))
		require.Equal(t, 1, streamsOf(l), "no plan is lost")
		if fs.size == 1<<40 {
			require.Empty(t, after.ScratchWhy)
			most = 5 * read / 4
			continue
		}
		require.Contains(t, after.ScratchWhy, fmt.Sprint(fs.size))
		require.Greater(t, len(l.Plan().Windows), 4, "windows are shorter")
	}
}
