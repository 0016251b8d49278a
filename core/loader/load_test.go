package loader

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/plan"
)

// TestTheLoadIsThatOfTheLastWindows: what the loop does is the median of a few windows, and reading is late by what all
// of them took beyond the device, so that a short window says little and a long one much.
func TestTheLoadIsThatOfTheLastWindows(t *testing.T) {
	var w windows
	share := 1 / float64(runtime.NumCPU())
	require.Equal(t, plan.Load{Share: share, Pace: share}, w.load(), "nothing has run")
	window := func(wall, waited, processor, late float64) Window {
		return Window{
			Batches: 10, Choice: plan.Choice{DeviceSeconds: 2, ProcessorSeconds: processor},
			WallSeconds: wall, WaitedSeconds: waited, MeasuredSeconds: 2 + late,
		}
	}
	w.last = []Window{window(20, 10, 0.01, 0.05)}
	require.InDelta(t, (share*paceUnproven+0.05)/(paceUnproven+0.01), w.load().Pace, 1e-12, "a short window")
	w.last = []Window{
		window(1000, 0, 1, 500), // too long ago
		window(20, 10, 0.01, 0.05), window(30, 10, 200, 100), window(5, 10, 0, 0),
		window(90, 10, 100, 50), window(20, 0, 100, -1),
	}
	load := w.load()
	require.InDelta(t, 150./400, load.Pace, 0.001)
	require.Equal(t, plan.Load{LoopSeconds: 2, Pace: load.Pace, Share: share}, load)
}
