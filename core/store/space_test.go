package store

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/narrow"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// little is a file system that says it has few bytes left.
type little struct {
	ssd.FS
	free int64
}

func (l little) Space(string) (int64, error) { return l.free, nil }

// written counts the bytes of a directory's files.
func written(t *testing.T, dir string) (total int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		total += info.Size()
	}
	return total
}

func requireNoSpace(t *testing.T, err error, dir string, free int64) *SpaceError {
	t.Helper()
	var short *SpaceError
	require.ErrorAs(t, err, &short)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, dir, short.Dir)
	require.Equal(t, free, short.Free)
	require.Greater(t, short.Need, free)
	return short
}

// TestSpaceIsCheckedBeforeTheFirstByte: of a graph with far more nodes than the disk has room for, nothing is written.
func TestSpaceIsCheckedBeforeTheFirstByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	in := Input{EdgeIndex: edgesOf([]int64{0, 1}, []int64{1, 2}), NumNodes: maxNodes}
	fs := faultfs.New(little{ssd.OS, 30 << 30})
	err := Convert(context.Background(), fs, in, path, ConvertOptions{})
	short := requireNoSpace(t, err, path+partialSuffix, 30<<30)
	require.GreaterOrEqual(t, short.Need, int64(8*maxNodes))
	require.NoDirExists(t, path+partialSuffix)
	require.LessOrEqual(t, fs.Calls(faultfs.Write), 1) // the mark in the lock file
}

// TestSpaceOfAStore: what is needed is what is written, but for the manifest, the splits and what sorting takes.
func TestSpaceOfAStore(t *testing.T) {
	path := sampleStore(t)
	s := mustOpen(t, path)
	defer s.Close()
	again := filepath.Join(t.TempDir(), "again")
	opts := RelayoutOptions{Order: Community, HotRows: -1}
	s.fs = little{ssd.OS, 1}
	short := requireNoSpace(t, Relayout(context.Background(), s, again, opts), again+partialSuffix, 1)
	s.fs = little{ssd.OS, short.Need}
	require.NoError(t, Relayout(context.Background(), s, again, opts))
	require.InDelta(t, written(t, again), short.Need, 64<<10)
}

// TestSpaceOfNarrowedTensors: of tensors that are stored in fewer bytes, of nodes and of edges, those bytes are needed.
func TestSpaceOfNarrowedTensors(t *testing.T) {
	const edges, width = 4000, 64
	targets := make([]int64, edges)
	for i := range targets {
		targets[i] = int64(i) // sorted, so that they need no numbers
	}
	wide := func(name string) []NamedSource {
		x := NamedSource{name, Dense(manifest.DType_FLOAT32, []int64{edges, width}, make([]byte, edges*width*4))}
		x.Narrow = narrow.BFloat16
		return []NamedSource{x}
	}
	in := Input{NumNodes: edges, EdgeIndex: edgesOf(targets, targets), NodeTensors: wide("x"), EdgeTensors: wide("e")}
	path := filepath.Join(t.TempDir(), "g")
	err := Convert(context.Background(), little{ssd.OS, 1}, in, path, ConvertOptions{})
	short := requireNoSpace(t, err, path+partialSuffix, 1)
	require.NoError(t, Convert(context.Background(), little{ssd.OS, short.Need}, in, path, ConvertOptions{}))
	require.InDelta(t, written(t, path), short.Need, 64<<10)
}

// reserving runs work on a file system on which it watches the first write of data: by then every file that the store
// will have takes the space that it needs, but for the manifest.
func reserving(t *testing.T, path string, work func(fs ssd.FS) error) {
	t.Helper()
	var taken map[string]int64
	fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Write, Path: "*.bin", Nth: 1, Short: math.MaxInt, Hook: func() {
		taken = map[string]int64{}
		for name, data := range readFiles(t, path+partialSuffix) {
			taken[name] = int64(len(data))
		}
	}})
	require.NoError(t, work(fs))
	files := readFiles(t, path)
	require.Greater(t, len(taken), 4)
	for name, data := range files {
		if name != manifest.Name && len(data) > 0 {
			require.EqualValues(t, len(data), taken[name], name)
		}
	}

	full := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Allocate, Nth: 2, Errno: syscall.EDQUOT})
	require.NoError(t, os.RemoveAll(path))
	err := work(full)
	require.ErrorIs(t, err, syscall.EDQUOT)
	require.ErrorContains(t, err, "bytes of disk space for")
	require.NoDirExists(t, path+partialSuffix)
	require.NoDirExists(t, path)
	require.LessOrEqual(t, full.Calls(faultfs.Write), 1, "nothing was written but the mark in the lock file")

	for _, errno := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.ENOSYS} {
		fault := faultfs.Fault{Op: faultfs.Allocate, Nth: 1, Times: faultfs.Forever, Errno: errno}
		require.NoError(t, work(faultfs.New(ssd.OS, fault)), "a file system that cannot take space ahead")
		again := readFiles(t, path)
		for name, data := range files {
			if name != manifest.Name { // which has a uuid
				require.True(t, bytes.Equal(data, again[name]), name)
			}
		}
		require.NoError(t, os.RemoveAll(path))
	}
}

// TestSpaceIsTakenBeforeTheFirstByte: of the whole store, so that nobody else takes it meanwhile.
func TestSpaceIsTakenBeforeTheFirstByte(t *testing.T) {
	in, memory := faultyInput(t)
	path := filepath.Join(t.TempDir(), "g")
	reserving(t, path, func(fs ssd.FS) error {
		return Convert(context.Background(), fs, in, path, ConvertOptions{Memory: memory})
	})
	src := sampleStore(t)
	again := filepath.Join(t.TempDir(), "again")
	reserving(t, again, func(fs ssd.FS) error {
		s, err := Open(fs, src)
		require.NoError(t, err)
		defer s.Close()
		return Relayout(context.Background(), s, again, RelayoutOptions{Order: Community, HotRows: -1})
	})
	draft := filepath.Join(t.TempDir(), "draft")
	require.NoError(t, os.RemoveAll(draft))
	noSpace := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Allocate, Path: "rows0_x.bin", Nth: 1, Errno: syscall.ENOSPC})
	d, err := ConvertDraft(context.Background(), noSpace, in, draft, Community, ConvertOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, d.Relayout(context.Background(), RelayoutOptions{Order: Community, HotRows: -1}), syscall.ENOSPC)
	require.NoDirExists(t, draft+partialSuffix)
}
