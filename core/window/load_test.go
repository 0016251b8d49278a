package window

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/plan"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// TestTheLoadIsThatOfTheLastWindows: what the loop does is the median of a few windows, and reading is late by what all
// of them took beyond the device, so that a short window says little and a long one much.
func TestTheLoadIsThatOfTheLastWindows(t *testing.T) {
	var w windows
	share := 1 / float64(runtime.NumCPU())
	require.Equal(t, plan.Load{Share: share, Pace: share}, w.load(10, ssd.Device{}), "nothing has run")
	window := func(wall, waited, processor, late float64) Outcome {
		return Outcome{
			Batches: 10, Choice: plan.Choice{DeviceSeconds: 2, ProcessorSeconds: processor},
			WallSeconds: wall, WaitedSeconds: waited, MeasuredSeconds: 2 + late,
		}
	}
	w.last = []Outcome{window(20, 10, 0.01, 0.05)}
	want := (share*paceUnproven + 0.05) / (paceUnproven + 0.01)
	require.InDelta(t, want, w.load(10, ssd.Device{}).Pace, 1e-12, "a short window")
	load := w.load(10*muchShorter+1, ssd.Device{})
	require.InDelta(t, share, load.Pace, 1e-12, "which tells a long window nothing")
	require.Zero(t, load.LoopSeconds)
	w.last = []Outcome{
		window(1000, 0, 1, 500), // too long ago
		window(20, 10, 0.01, 0.05), window(30, 10, 200, 100), window(5, 10, 0, 0),
		window(90, 10, 100, 50), window(20, 0, 100, -1),
	}
	load = w.load(10, ssd.Device{})
	require.InDelta(t, 150./400, load.Pace, 0.001)
	require.Equal(t, plan.Load{LoopSeconds: 2, Pace: load.Pace, Share: share}, load)
}

// TestLatenessIsThatOnTheDeviceAsItIsKnown: what a device that turned out to be slow took longer is not counted again
// as lateness.
func TestLatenessIsThatOnTheDeviceAsItIsKnown(t *testing.T) {
	share := 1 / float64(runtime.NumCPU())
	quick, slow := ssd.Device{RequestSeconds: 1e-5}, ssd.Device{RequestSeconds: 5e-5}
	w := windows{last: []Outcome{{
		Batches: 1, Choice: plan.Choice{DeviceSeconds: 2, ProcessorSeconds: 1}, MeasuredSeconds: 11, device: quick,
		moved: moved{rows: requested{requests: 200_000}},
	}}}
	require.InDelta(t, (share*paceUnproven+9)/(paceUnproven+1), w.load(1, quick).Pace, 1e-9)
	require.InDelta(t, (share*paceUnproven+1)/(paceUnproven+1), w.load(1, slow).Pace, 1e-9)
}

// TestTheEngineIsBusyWithRowsForTheirPart: what else the engine reads takes its part of the time, by what the device
// needs for it.
func TestTheEngineIsBusyWithRowsForTheirPart(t *testing.T) {
	d := ssd.Device{RequestSeconds: 1}
	busy := func(all, rows int64) time.Duration {
		return moved{engine: 8 * time.Second, all: requested{requests: all}, rows: requested{requests: rows}}.busy(d)
	}
	require.Equal(t, 8*time.Second, busy(2, 2))
	require.Equal(t, 2*time.Second, busy(4, 1))
	require.Zero(t, busy(4, 0))
	d = ssd.Device{}
	require.Equal(t, 8*time.Second, busy(4, 1), "a device that takes no time")
}

// TestMovedIsOfRows: it counts the rows of nodes that were read, and neither tensors of edges nor neighbour
// lists.
func TestMovedIsOfRows(t *testing.T) {
	o := options()
	o.Transfer, o.Scratch, o.BufferMemory, o.ScratchBytes = "pack+forward", t.TempDir(), 8<<20, 64<<20
	for _, lists := range []bool{false, true} {
		if lists {
			o.NeighborCache = 0
		}
		r := open(t, ssd.OS, o, func(*sizing.Split) {})
		require.Equal(t, lists, !r.sampling.Split.Neighbors)
		none, before := r.sampling.EngineStats().Bytes, r.cache.moved()
		r.whole(0)
		require.Eventually(t, func() bool { // batches ahead may still be read
			all := r.sampling.EngineStats().Bytes - none
			rows, edges := r.cache.moved().minus(before).rows.bytes, int64(0)
			for i := range r.features.Tables {
				if table := &r.features.Tables[i]; table.Disk != nil && !slices.Contains(r.features.OnDisk, table) {
					_, n := table.Disk.Handle().Moved()
					edges += n
				}
			}
			return rows > 0 && edges > 0 && (rows+edges < all) == lists && (rows+edges == all) != lists
		}, time.Minute, time.Millisecond)
	}
}
