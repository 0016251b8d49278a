package store

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

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
