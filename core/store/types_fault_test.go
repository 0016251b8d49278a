package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestTypesEveryCallFails fails each read and write of a conversion in turn: nothing stays, neither files nor memory
// nor descriptors.
func TestTypesEveryCallFails(t *testing.T) {
	g := largeHeteroGraph()
	memory := smallestBudget(t, g.Input)
	for _, op := range []faultfs.Op{faultfs.Open, faultfs.OpenDirect, faultfs.Read, faultfs.Write, faultfs.Sync,
		faultfs.Rename, faultfs.Remove} {
		path := filepath.Join(t.TempDir(), "g")
		for nth := explore.First(t, fmt.Sprint(op)); ; nth += explore.Stride() {
			fs := faultfs.New(ssd.OS, faultfs.Fault{Op: op, Nth: nth, Errno: syscall.EIO})
			budget := mem.NewBudget(memory)
			err := convert(context.Background(), fs, g.Input, path, ConvertOptions{}, budget)
			require.Zero(t, budget.Used())
			require.Zero(t, fs.OpenFiles())
			if err == nil {
				if op == faultfs.Remove {
					break // of the lock file, at last: the store is there
				}
				require.Less(t, fs.Calls(op), nth, "a failed call went unnoticed")
				break
			}
			require.ErrorIs(t, err, syscall.EIO)
			if op != faultfs.Remove { // what cannot be removed is left to the next conversion
				requireNothing(t, filepath.Dir(path), "%s %d: %v", op, nth, err)
			}
			if nth > 8 {
				nth += nth // later calls of a kind are alike
			}
		}
		s := mustOpen(t, path)
		requireHetero(t, g, s)
	}
}

// TestTypesKilled stops a conversion dead at many points, with nothing tidied up, as a killed process does. There is no
// store then, and the next conversion makes one.
func TestTypesKilled(t *testing.T) {
	g := largeHeteroGraph()
	memory := smallestBudget(t, g.Input)
	path := filepath.Join(t.TempDir(), "g")
	for nth := 1; ; nth += 1 + nth {
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO})
		err := Convert(context.Background(), fs, g.Input, path, ConvertOptions{Memory: memory, Overwrite: true})
		if err == nil {
			require.Greater(t, nth, 100)
			break
		}
		_, err = Open(ssd.OS, path)
		require.ErrorIs(t, err, ErrNotFound)
		if nth%2 == 0 {
			require.NoError(t, Convert(context.Background(), ssd.OS, g.Input, path, ConvertOptions{Memory: memory}))
			s := mustOpen(t, path)
			requireHetero(t, g, s)
			require.NoError(t, os.RemoveAll(path))
			requireNothing(t, filepath.Dir(path))
		}
	}
}
