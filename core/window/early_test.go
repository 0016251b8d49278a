package window

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// stored makes plans in the scratch file, as large graphs need it. Records stay in memory while they take less than
// held.
func stored(held int64) func(*sizing.Split) {
	return func(s *sizing.Split) { s.Stored, s.TracesHeld = true, held }
}

// overlapping is a cache whose windows overlap wherever their packs find room: nothing is weighed against it.
func overlapping(t *testing.T, fs ssd.FS, held int64) *rig {
	o := options()
	o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
	r := open(t, fs, o, stored(held))
	r.cache.device = ssd.Learn(ssd.Device{}, r.sampling.Engine.SlotBytes(), ssd.Full{})
	return r
}

// earlyWindow waits until the inspector has planned a window that begins after batch n, and returns it.
func earlyWindow(t *testing.T, c *Cache, n int64) (found *superbatch) {
	require.Eventually(t, func() bool {
		in := c.inspector
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
	r := overlapping(t, ssd.OS, 0)
	p := r.start(0, 0)
	p.take(5) // the first window has one batch, the second ten
	window := earlyWindow(t, r.cache, 5)
	require.EqualValues(t, 1+r.sampling.Options.Superbatch, window.first)
	<-window.early.over
	require.False(t, isClosed(window.early.begun))
	require.NoError(t, window.early.err)
	p.take(window.first - p.next)
	filled, packed := r.counters.Filled.Load(), r.counters.Packed.Load()
	p.take(window.end() - 2 - p.next) // two are in flight
	require.Equal(t, filled, r.counters.Filled.Load())
	require.Greater(t, r.counters.Packed.Load(), packed)
	p.take(numBatches - p.next)
	p.stop()
	early := 0
	for _, w := range r.cache.Report().Windows {
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
	r := overlapping(t, ssd.OS, 100_000)
	rng := explore.Rand(t, 31, 4)
	for range explore.Rounds(12) {
		first := rng.Int64N(numBatches)
		p := r.start(rng.Int64N(2), first)
		take := rng.Int64N(numBatches - first)
		held := rng.IntN(2) == 0 // the next window waits: there is no lull
		if held {
			r.cache.idleGate.enter()
		}
		p.take(take)
		if rng.IntN(2) == 0 && take > 0 {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond) // it may be anywhere
		}
		p.stop()
		if held {
			r.cache.idleGate.leave()
		}
		require.Zero(t, r.cache.pool.Stats().File, "the file is empty")
	}
	r.whole(0)
}

// TestFaultsOfEarlyPrologues lets the scratch file fail at one read and one write after the other.
func TestFaultsOfEarlyPrologues(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.Read, faultfs.Write} {
		failed := 0
		for nth := 3; nth < explore.Rounds(300); nth += 1 + nth/3 {
			fs := faultfs.New(ssd.OS)
			r := overlapping(t, fs, 0)
			fs.Arm(faultfs.Fault{Op: op, Path: ssd.TempPrefix + "*", Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO})
			for epoch := range int64(2) {
				p := r.start(epoch, 0)
				for range numBatches {
					p.take(1)
					time.Sleep(100 * time.Microsecond) // so that there are lulls
				}
				p.stop()
			}
			if r.cache.Stats().Scratch.Why != "" {
				failed++
			}
			r.close()
		}
		require.Positive(t, failed, op)
	}
}

// TestTheFirstBatchComesBeforeSamplingAhead: the consumer waits for the first batch, so that nothing is sampled for
// later ones until its rows have been read, wherever an epoch begins.
func TestTheFirstBatchComesBeforeSamplingAhead(t *testing.T) {
	for _, first := range []int64{0, 7} {
		r := overlapping(t, ssd.OS, 0)
		p := r.start(0, first)
		p.take(numBatches - p.next)
		p.stop()
		spans := r.cache.Report().Timeline
		sampled, read := spans["sampling"], spans["reading"]
		require.GreaterOrEqual(t, len(sampled), 3)
		require.Zero(t, read[0][0])
		require.EqualValues(t, 1, sampled[1][0])
		require.GreaterOrEqual(t, sampled[1][1], read[0][2])
	}
}
