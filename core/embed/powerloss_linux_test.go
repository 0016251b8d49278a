package embed_test

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// callsOfRun returns the number of calls to the file system in a run without faults.
func callsOfRun(t *testing.T) int {
	t.Helper()
	fs := faultfs.New(ssd.OS)
	l := newLossy(t, fs, t.TempDir(), 1)
	before := fs.Calls(faultfs.Any)
	require.NoError(t, l.run())
	l.checkAgain()
	return fs.Calls(faultfs.Any) - before
}

// TestPowerLoss takes the power away at a call to the file system, at every call with FRESHGO_TEST_POWERLOSS=all (make
// powerloss) and at some drawn ones without. Afterwards the table has the state saved last, or the one whose save was
// under way.
func TestPowerLoss(t *testing.T) {
	rng := explore.Rand(t, 45, 7)
	calls := callsOfRun(t)
	for _, kind := range faultfs.DiskKinds() {
		t.Run(kind, func(t *testing.T) {
			d := faultfs.NewDisk(t, kind)
			nths := []int{1 + rng.IntN(calls), 1 + rng.IntN(calls), 1 + rng.IntN(calls), 1 + rng.IntN(calls)}
			if os.Getenv("FRESHGO_TEST_POWERLOSS") == "all" {
				nths = nil
				for nth := range calls {
					nths = append(nths, nth+1, nth+1) // in both ways
				}
			}
			for i, nth := range nths {
				how := []faultfs.Loss{faultfs.JournalFlushed, faultfs.JournalLost}[i%2]
				t.Run(fmt.Sprint("call ", nth, " journal ", how), func(t *testing.T) {
					d.TB = t
					fs := faultfs.New(ssd.OS)
					l := newLossy(t, fs, d.Home(), uint64(nth))
					d.Sync()
					var once sync.Once
					fs.Arm(faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO,
						Hook: func() { once.Do(func() { d.LosePower(how) }) }})
					failed := l.run()
					fs.Clear()
					_ = l.table.Close()
					d.Again()
					l.checkAgain()
					require.True(t, failed != nil || nth > calls/2, "the run ended early")
				})
			}
		})
	}
}

// TestLostWrites takes the power away from a file system that has kept of each file and directory only what was synced,
// and some of what came after it, with the last write torn. It is done at every call with FRESHGO_TEST_POWERLOSS=all,
// several times, and at drawn ones without.
func TestLostWrites(t *testing.T) {
	rng := explore.Rand(t, 45, 8)
	calls := callsOfRun(t)
	rounds, lost := 40, 0
	all := os.Getenv("FRESHGO_TEST_POWERLOSS") == "all"
	if all {
		rounds = 5 * calls
	}
	for i := range explore.Rounds(rounds) {
		nth := 1 + i%(calls+1) // the last: after the run has ended
		if !all {
			nth = 1 + rng.IntN(calls+1)
		}
		t.Run(fmt.Sprint("call ", nth, " round ", i), func(t *testing.T) {
			disk := faultfs.NewLosing(t.TempDir())
			fs := faultfs.New(disk)
			l := newLossy(t, fs, t.TempDir(), rng.Uint64())
			fs.Arm(faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO})
			_ = l.run()
			fs.Clear()
			_ = l.table.Close()
			n, err := disk.Lose(rng)
			require.NoError(t, err)
			lost += n
			l.checkAgain()
		})
	}
	require.Positive(t, lost)
}
