package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// faultyInput is a graph that takes every kind of path through the file system: sources in files, splits, spilled
// edges.
func faultyInput(t *testing.T) (Input, int64) {
	t.Helper()
	g := newRandomGraph(4, 2000, 60_000, map[string][]int64{"x": {25}}, manifest.DType_FLOAT32)
	name := filepath.Join(t.TempDir(), "x.npy")
	require.NoError(t, os.WriteFile(name, g.rows["x"], 0o600))
	x := &g.NodeTensors[0]
	x.Mem, x.File = nil, name
	g.Splits["train"] = Dense(manifest.DType_INT64, []int64{2}, int64Bytes([]int64{0, 7}))
	g.EdgeTensors = []NamedSource{{"w", Dense(manifest.DType_UINT8, []int64{60_000}, make([]byte, 60_000))}}
	g.WeightsOf = "w"
	return g.Input, smallestBudget(t, g.Input)
}

// A writer makes a new store through a file system whose calls requireEveryCallFails fails.
type writer struct {
	memory  int64
	prepare func(fs ssd.FS) func(path string, overwrite bool, budget *mem.Budget) error
	check   func(path string) // that the new store is whole
	alike   int               // later calls of a kind are alike: after call n, n/alike are passed over
}

// requireEveryCallFails fails each call to the file system in turn. Whatever fails, the error says so, nothing is left
// that opens, nor any file, memory or descriptor, and the next conversion works. Over an old store, that is what is
// left.
func requireEveryCallFails(t *testing.T, c writer, overwrite bool, ops ...faultfs.Op) {
	t.Helper()
	errno := map[bool]syscall.Errno{false: syscall.ENOSPC, true: syscall.EIO}[overwrite]
	for _, op := range ops {
		explore.Run(t, fmt.Sprint(overwrite, " ", op), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "g")
			if overwrite {
				require.NoError(t, convertTiny(path, 7, true))
			}
			for nth := explore.First(t, ""); ; nth += explore.Stride() {
				fs := faultfs.New(ssd.OS)
				write := c.prepare(fs)
				before := fs.Calls(op)
				fs.Arm(faultfs.Fault{Op: op, Nth: nth, Errno: errno})
				budget := mem.NewBudget(c.memory)
				err := write(path, overwrite, budget)
				require.Zero(t, budget.Used())
				require.Zero(t, fs.OpenFiles())
				if err == nil && (fs.Calls(op)-before < nth || op == faultfs.Remove && !overwrite) { // at last, of the lock file
					c.check(path)
					break
				}
				if err == nil { // the new store was there, and the next conversion removes the old one
					require.True(t, overwrite, "a failed call went unnoticed")
					c.check(path)
					left, err := os.ReadDir(filepath.Dir(path))
					require.NoError(t, err)
					if op != faultfs.Remove || len(left) != 1 { // the lock file stays
						require.Len(t, left, 2, "a failed call went unnoticed: the old store, replaced or to be removed")
					}
					require.NoError(t, convertTiny(path, 7, true))
					require.NoDirExists(t, path+replacedSuffix)
					require.NoDirExists(t, path+partialSuffix)
					continue
				}
				require.ErrorIs(t, err, errno)
				names, readErr := os.ReadDir(filepath.Dir(path))
				require.NoError(t, readErr)
				if overwrite {
					requireNodes(t, path, 7)
					require.Len(t, names, 1, "call %d: %v", nth, err)
				} else if op != faultfs.Remove { // what cannot be removed is left to the next conversion
					require.Empty(t, names, "call %d: %v", nth, err)
				}
				if nth > 8 {
					nth += nth / c.alike // later calls of a kind are alike
				}
			}
		})
	}
}

func TestEveryCallFails(t *testing.T) {
	in, memory := faultyInput(t)
	converted := func(in *Input) func(fs ssd.FS) func(string, bool, *mem.Budget) error {
		return func(fs ssd.FS) func(string, bool, *mem.Budget) error {
			return func(path string, overwrite bool, budget *mem.Budget) error {
				return convert(context.Background(), fs, *in, path, ConvertOptions{Overwrite: overwrite}, budget)
			}
		}
	}
	c := writer{memory, converted(&in), func(path string) { requireNodes(t, path, 2000) }, 4}
	for _, overwrite := range []bool{false, true} {
		requireEveryCallFails(t, c, overwrite, faultfs.Open, faultfs.OpenDirect, faultfs.Rename, faultfs.Exchange,
			faultfs.Mkdir, faultfs.ReadDir, faultfs.Stat, faultfs.SyncDir, faultfs.Read, faultfs.Write, faultfs.Sync,
			faultfs.Truncate, faultfs.Size, faultfs.Lock, faultfs.Allocate)
	}
	g := largeHeteroGraph()
	c = writer{smallestBudget(t, g.Input), converted(&g.Input), func(path string) {
		requireHetero(t, g, mustOpen(t, path))
	}, 1}
	t.Run("types", func(t *testing.T) {
		requireEveryCallFails(t, c, false, faultfs.Open, faultfs.OpenDirect, faultfs.Read, faultfs.Write, faultfs.Sync,
			faultfs.Rename, faultfs.Remove)
	})
}

// requireDiskFull lets the disk run full at many points of a conversion, which needs more than least bytes.
func requireDiskFull(t *testing.T, least int64, prepare func(fs ssd.FS) func(path string) error) {
	t.Helper()
	dir := t.TempDir()
	for space := int64(0); ; space = space*2 + 10_000 {
		fs := faultfs.New(ssd.OS)
		write := prepare(fs)
		fs.SetSpace(space)
		err := write(filepath.Join(dir, "g"))
		if err == nil {
			require.Greater(t, space, least)
			break
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		var where *ssd.PathError
		require.True(t, errors.As(err, &where))
		requireNothing(t, dir)
	}
}

func TestDiskFull(t *testing.T) {
	in, memory := faultyInput(t)
	requireDiskFull(t, 100_000, func(fs ssd.FS) func(path string) error {
		return func(path string) error {
			return Convert(context.Background(), fs, in, path, ConvertOptions{Memory: memory})
		}
	})
	source, opts := faultySource(t)
	requireDiskFull(t, 1_000_000, func(fs ssd.FS) func(path string) error {
		s, err := Open(fs, source)
		require.NoError(t, err)
		return func(path string) error { return Relayout(context.Background(), s, path, opts) }
	})
}

// TestDamagedSpill overwrites the edges on disk between the two passes: what comes back is not used as an index
// unchecked.
func TestDamagedSpill(t *testing.T) {
	in, memory := faultyInput(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "g")
	fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Read, Path: spillName, Nth: 1, Short: 1 << 30, Hook: func() {
		name := filepath.Join(path+partialSuffix, spillName)
		file, err := os.OpenFile(name, os.O_WRONLY, 0) // in place: another worker may be reading, and must not see it shorter
		require.NoError(t, err)
		info, err := file.Stat()
		require.NoError(t, err)
		_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, int(info.Size())), 0)
		require.NoError(t, errors.Join(err, file.Close()))
	}})
	err := Convert(context.Background(), fs, in, path, ConvertOptions{Memory: memory})
	require.ErrorIs(t, err, ErrCorrupt)
	requireNothing(t, dir)
}

// TestDirectIORefused converts and reads on a file system without O_DIRECT, refused at open or at the first transfer.
func TestDirectIORefused(t *testing.T) {
	g := edgesThroughDisk(3)
	memory := smallestBudget(t, g.Input)
	fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.OpenDirect, Nth: 1, Times: faultfs.Forever, Errno: syscall.EINVAL})
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, Convert(context.Background(), fs, g.Input, path, ConvertOptions{Memory: memory}))
	s, err := Open(fs, path)
	require.NoError(t, err)
	require.NoError(t, s.Verify(context.Background(), nil))
	requireGraph(t, g, s)

	fs = faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Write, Path: spillName, Nth: 1, Errno: syscall.EINVAL})
	require.NoError(t, Convert(context.Background(), fs, g.Input, path, ConvertOptions{Memory: memory, Overwrite: true}))
	s = mustOpen(t, path)
	requireGraph(t, g, s)
}

// TestShortTransfers makes every read and write short.
func TestShortTransfers(t *testing.T) {
	in, memory := faultyInput(t)
	path := filepath.Join(t.TempDir(), "g")
	fs := faultfs.New(ssd.OS,
		faultfs.Fault{Op: faultfs.Read, Nth: 1, Times: faultfs.Forever, Short: 8192},
		faultfs.Fault{Op: faultfs.Write, Nth: 1, Times: faultfs.Forever, Short: 8192})
	require.NoError(t, Convert(context.Background(), fs, in, path, ConvertOptions{Memory: memory}))
	s, err := Open(fs, path)
	require.NoError(t, err)
	require.NoError(t, s.Verify(context.Background(), nil))
}

// TestReadErrors fails reads of a store.
func TestReadErrors(t *testing.T) {
	in, _ := faultyInput(t)
	requireReadErrors(t, in)
	requireReadErrors(t, newHeteroGraph(3, 50).Input)
}

func requireReadErrors(t *testing.T, in Input) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, Convert(context.Background(), ssd.OS, in, path, ConvertOptions{}))
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
			require.NotErrorIs(t, err, ErrCorrupt)
		}
	}
}
