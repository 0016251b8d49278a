package loader

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// overlapping is a loader whose windows overlap wherever their packs find room: nothing is weighed against it.
func overlapping(t *testing.T, fs ssd.FS, stored int64) (*Loader, draw.Options) {
	o := belady()
	o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
	l := open(t, draw.OpenStore(someStore(t, fs)), o)
	cacheOf(l).device = ssd.Learn(ssd.Device{}, l.draw.Engine.SlotBytes(), ssd.Full{})
	storePlans(t, l, stored)
	return l, o
}

// earlyWindow waits until the inspector has planned a window that begins after batch n, and returns it.
func earlyWindow(t *testing.T, l *Loader, n int64) (found *superbatch) {
	require.Eventually(t, func() bool {
		in := cacheOf(l).inspector
		in.mu.Lock()
		defer in.mu.Unlock()
		for _, s := range in.published {
			if s.first > n && s.early != nil {
				found = s
			}
		}
		return found != nil
	}, time.Minute, time.Millisecond)
	return found
}

// TestTheNextWindowIsScannedInLulls: while the consumer has a batch of one window, the whole prologue of the next runs.
// The batches of that window then read nothing from the store, and what moved is counted for it.
func TestTheNextWindowIsScannedInLulls(t *testing.T) {
	l, o := overlapping(t, ssd.OS, 0)
	reference := open(t, someDataset().graph(t), plain())
	want := epochOf(t, reference, 0)
	require.NoError(t, l.Start(0, 0, Train))
	next := func(i int) {
		b, err := l.Next(context.Background())
		require.NoError(t, err)
		require.Equal(t, want[i], look(b))
		b.Release()
	}
	at := 0
	for ; at < 5; at++ { // the first window has one batch, the second ten
		next(at)
	}
	window := earlyWindow(t, l, 5)
	require.EqualValues(t, 1+o.Superbatch, window.first)
	<-window.early.over
	require.False(t, isClosed(window.early.begun))
	require.NoError(t, window.early.err)
	for ; at < int(window.first); at++ {
		next(at)
	}
	before := l.Stats()
	for ; at < int(window.end())-2; at++ { // two are in flight
		next(at)
	}
	after := l.Stats()
	require.Equal(t, before.Filled, after.Filled)
	require.Greater(t, after.Packed, before.Packed)
	for ; at < len(want); at++ {
		next(at)
	}
	early := 0
	for _, w := range l.Plan().Windows {
		if w.Early {
			early++
			require.Positive(t, w.MeasuredRead)
			require.Positive(t, w.MeasuredWritten)
			require.Positive(t, w.MeasuredSeconds)
		}
	}
	require.Positive(t, early)
}

// TestOverlapStopsWithItsEpoch leaves epochs while the next window's prologue waits for a lull, or runs: its packs give
// their room back, and the batches of other epochs, and of the same one resumed in mid-window, are right.
func TestOverlapStopsWithItsEpoch(t *testing.T) {
	l, _ := overlapping(t, ssd.OS, 100_000)
	reference := open(t, someDataset().graph(t), plain())
	want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
	rng := explore.Rand(t, 31, 4)
	for range explore.Rounds(12) {
		epoch, first := rng.Int64N(2), rng.Int64N(someBatchs)
		require.NoError(t, l.Start(epoch, first, Train))
		take := rng.Int64N(someBatchs - first)
		held := rng.IntN(2) == 0 // the next window waits: there is no lull
		if held {
			cacheOf(l).idleGate.enter()
		}
		for i := range take {
			b, err := l.Next(context.Background())
			require.NoError(t, err)
			require.Equal(t, want[epoch][first+i], look(b))
			b.Release()
		}
		if rng.IntN(2) == 0 && take > 0 {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond) // it may be anywhere
		}
		l.Stop()
		if held {
			cacheOf(l).idleGate.leave()
		}
		require.Zero(t, cacheOf(l).pool.Stats().File, "the file is empty")
	}
	requireSame(t, want[0], epochOf(t, l, 0))
}

// TestFaultsOfEarlyPrologues lets the scratch file fail at one read and one write after the other.
func TestFaultsOfEarlyPrologues(t *testing.T) {
	reference := open(t, someDataset().graph(t), plain())
	want := [][]*seen{epochOf(t, reference, 0), epochOf(t, reference, 1)}
	slowly := func(l *Loader, epoch int64) (found []*seen) { // so that there are lulls
		require.NoError(t, l.Start(epoch, 0, Train))
		for range someBatchs {
			b, err := l.Next(context.Background())
			require.NoError(t, err)
			found = append(found, look(b))
			b.Release()
			time.Sleep(100 * time.Microsecond)
		}
		return found
	}
	for _, op := range []faultfs.Op{faultfs.Read, faultfs.Write} {
		failed := 0
		for nth := 3; nth < explore.Rounds(300); nth += 1 + nth/3 {
			fs := faultfs.New(ssd.OS)
			l, _ := overlapping(t, fs, 0)
			fs.Arm(faultfs.Fault{Op: op, Path: ssd.TempPrefix + "*", Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO})
			for epoch := range want {
				requireSame(t, want[epoch], slowly(l, int64(epoch)))
			}
			if l.Stats().ScratchWhy != "" {
				failed++
			}
			l.Close()
		}
		require.Positive(t, failed, op)
	}
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
