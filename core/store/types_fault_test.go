package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// TestTypesFlippedBytes changes a byte of every file: Verify must find it.
func TestTypesFlippedBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, Convert(context.Background(), ssd.OS, newHeteroGraph(3, 50).Input, path, ConvertOptions{}))
	s, err := Open(ssd.OS, path)
	require.NoError(t, err)
	for name, data := range readFiles(t, path) {
		if name == manifest.Name || len(data) == 0 {
			continue
		}
		data[len(data)/2] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(path, name), data, 0o600))
		var damage *CorruptError
		require.ErrorAs(t, s.Verify(context.Background(), nil), &damage, name)
		require.Equal(t, filepath.Join(path, name), damage.Path)
		data[len(data)/2] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(path, name), data, 0o600))
	}
	require.NoError(t, s.Verify(context.Background(), nil))
}

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
				names, readErr := os.ReadDir(filepath.Dir(path))
				require.NoError(t, readErr)
				require.Empty(t, names, "%s %d: %v", op, nth, err)
			}
			if nth > 8 {
				nth += nth // later calls of a kind are alike
			}
		}
		s, err := Open(ssd.OS, path)
		require.NoError(t, err)
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
			s, err := Open(ssd.OS, path)
			require.NoError(t, err)
			requireHetero(t, g, s)
			require.NoError(t, os.RemoveAll(path))
			names, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Empty(t, names)
		}
	}
}

// TestTypesReadErrors fails reads of a store.
func TestTypesReadErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, Convert(context.Background(), ssd.OS, newHeteroGraph(3, 50).Input, path, ConvertOptions{}))
	for _, op := range []faultfs.Op{faultfs.Open, faultfs.OpenDirect, faultfs.Stat, faultfs.Read, faultfs.Size} {
		for nth := 1; ; nth++ {
			fs := faultfs.New(ssd.OS, faultfs.Fault{Op: op, Nth: nth, Errno: syscall.EIO})
			s, err := Open(fs, path)
			if err == nil {
				err = s.Verify(context.Background(), nil)
			}
			require.Zero(t, fs.OpenFiles())
			if err == nil {
				require.Less(t, fs.Calls(op), nth)
				break
			}
			require.ErrorIs(t, err, syscall.EIO)
		}
	}
}

func TestTypesCancel(t *testing.T) {
	g := largeHeteroGraph()
	memory := smallestBudget(t, g.Input)
	var stages []string
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, Convert(context.Background(), ssd.OS, g.Input, path,
		ConvertOptions{Memory: memory, Progress: func(stage string, _, _ int64) {
			if !slices.Contains(stages, stage) {
				stages = append(stages, stage)
			}
		}}))
	require.Equal(t, []string{
		"counting edges of to", "writing split user.train", "writing user.x", "writing item.x",
		"writing (user, to, item).time", "partitioning edges of to", "sorting edges of to", "writing (item, to, user).time",
	}, stages)
	for _, stop := range stages {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		budget := mem.NewBudget(memory)
		err := convert(ctx, ssd.OS, g.Input, filepath.Join(dir, "g"),
			ConvertOptions{Progress: func(stage string, _, _ int64) {
				if stage == stop {
					cancel()
				}
			}}, budget)
		require.ErrorIs(t, err, context.Canceled, stop)
		require.Zero(t, budget.Used(), stop)
		names, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, names, stop)
	}
}
