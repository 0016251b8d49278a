package loader

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/plan"
)

// TestTheLoadIsThatOfTheLastWindows: what the loop does is the median of a few windows, and reading is late by what it
// took beyond the device.
func TestTheLoadIsThatOfTheLastWindows(t *testing.T) {
	var w windows
	share := 1 / float64(runtime.NumCPU())
	require.Equal(t, plan.Load{Share: share}, w.load(), "nothing has run")
	window := func(wall, waited, measured float64) Window {
		return Window{
			Batches: 10, Choice: plan.Choice{DeviceSeconds: 2, ProcessorSeconds: 0.5},
			WallSeconds: wall, WaitedSeconds: waited, MeasuredSeconds: measured,
		}
	}
	w.last = []Window{
		window(1000, 0, 500), // too long ago
		window(20, 10, 3), window(30, 10, 4), window(5, 10, 1), window(90, 10, 9), window(20, 0, 3),
	}
	require.Equal(t, plan.Load{LoopSeconds: 2, Pace: 2, Share: share}, w.load())
}
