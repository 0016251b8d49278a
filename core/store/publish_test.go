package store

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// tiny is a graph of n nodes.
func tiny(n int64) Input {
	return Input{NumNodes: n, EdgeIndex: edgesOf([]int64{0}, []int64{0})}
}

func convertTiny(path string, n int64, overwrite bool) error {
	return Convert(context.Background(), ssd.OS, tiny(n), path, ConvertOptions{Overwrite: overwrite})
}

func requireNodes(t *testing.T, path string, n int64) *Store {
	t.Helper()
	s := mustOpen(t, path)
	require.NoError(t, s.Verify(context.Background(), nil))
	require.Equal(t, n, s.EdgeTypes()[0].NumNodes)
	return s
}

func TestOverwrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "g")
	require.NoError(t, convertTiny(path, 1, true))
	first := requireNodes(t, path, 1)
	require.ErrorIs(t, convertTiny(path, 2, false), ErrExists)
	requireNodes(t, path, 1)
	require.NoError(t, convertTiny(path, 2, true))
	second := requireNodes(t, path, 2)
	require.NotEqual(t, first.UUID(), second.UUID())

	require.ErrorIs(t, first.CheckCurrent(), ErrReplaced)
	_, err := first.NodeTypes()[0].LoadSplit(context.Background(), "train")
	require.ErrorIs(t, err, ErrNotFound)
	require.Error(t, first.Verify(context.Background(), nil), "a replaced store must not be read as the new one")

	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.NotContains(t, readFiles(t, path), lockName)
}

// TestOverwriteWithoutExchange: a file system that cannot exchange two directories renames twice.
func TestOverwriteWithoutExchange(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		dir := t.TempDir()
		path := filepath.Join(dir, "g")
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Exchange, Nth: 1, Times: faultfs.Forever, Errno: errno})
		for nodes := int64(1); nodes < 4; nodes++ {
			require.NoError(t, Convert(context.Background(), fs, tiny(nodes), path, ConvertOptions{Overwrite: true}))
			requireNodes(t, path, nodes)
			names, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, names, 1)
			require.NotContains(t, readFiles(t, path), lockName)
		}
		require.Equal(t, 2, fs.Calls(faultfs.Exchange))
		require.Equal(t, 6, fs.Calls(faultfs.Rename), "two each, and the first finds nothing to put aside")
	}
}

// TestInsideAStore: a store inside the directory of another one would go when that is replaced.
func TestInsideAStore(t *testing.T) {
	outer := filepath.Join(t.TempDir(), "g")
	require.NoError(t, convertTiny(outer, 1, false))
	files := readFiles(t, outer)
	require.NoError(t, os.Mkdir(filepath.Join(outer, "below"), 0o700))
	for _, inner := range []string{"h", "below/h"} {
		err := convertTiny(filepath.Join(outer, inner), 2, true)
		require.ErrorIs(t, err, ErrInvalid, inner)
		require.ErrorContains(t, err, filepath.Join(outer, inner)+" is inside the store "+outer+":")
	}
	require.NoError(t, os.Remove(filepath.Join(outer, "below")), "nothing is left there")
	require.Equal(t, files, readFiles(t, outer))

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(outer, link))
	require.ErrorIs(t, convertTiny(filepath.Join(link, "h"), 2, true), ErrInvalid)
	require.NoError(t, convertTiny(outer, 3, true), "the store itself is replaced")
}

func TestForeignPathsStay(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"file":             func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"empty directory":  func(path string) error { return os.Mkdir(path, 0o700) },
		"directory":        func(path string) error { return os.MkdirAll(filepath.Join(path, "mine"), 0o700) },
		"another manifest": func(path string) error { return writeIn(path, manifest.Name, "something else") },
		"short manifest":   func(path string) error { return writeIn(path, manifest.Name, "FRESH") },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "g")
			require.NoError(t, create(path))
			require.ErrorIs(t, convertTiny(path, 1, false), ErrExists)
			require.ErrorIs(t, convertTiny(path, 1, true), ErrFormat)
			_, err := os.Stat(path)
			require.NoError(t, err)
			_, err = os.Stat(path + partialSuffix)
			require.ErrorIs(t, err, os.ErrNotExist)

			// Nor is a directory of that kind removed from where a store is built.
			elsewhere := filepath.Join(t.TempDir(), "g")
			require.NoError(t, create(elsewhere+partialSuffix))
			if err := convertTiny(elsewhere, 1, true); name != "empty directory" {
				require.Error(t, err)
				_, err = os.Stat(elsewhere + partialSuffix)
				require.NoError(t, err)
			}
		})
	}
}

func writeIn(dir, name, data string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600)
}

func TestDamagedStoreMayBeReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, convertTiny(path, 1, false))
	name := filepath.Join(path, manifest.Name)
	require.NoError(t, os.Truncate(name, manifest.HeaderBytes+1))
	_, err := Open(ssd.OS, path)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, convertTiny(path, 2, true))
	requireNodes(t, path, 2)
}

func TestOneConversionAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	in := tiny(3)
	in.Splits = map[string]Source{"train": Dense(manifest.DType_BOOL, []int64{3}, []byte{1, 1, 1})}
	var second error
	err := Convert(context.Background(), ssd.OS, in, path, ConvertOptions{Progress: func(string, int64, int64) {
		second = convertTiny(path, 1, true)
	}})
	require.NoError(t, err)
	require.ErrorIs(t, second, ErrBusy)
	requireNodes(t, path, 3)
}

// TestKilledConversion leaves a building directory at every stage at which a process can be killed.
func TestKilledConversion(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "g")
	for name, leave := range map[string]func(s *site){
		"begun":   func(*site) {},
		"arrays":  func(s *site) { require.NoError(t, s.writeFile("indptr.bin", make([]byte, 100))) },
		"sealing": func(s *site) { require.NoError(t, s.writeFile(manifest.Name, []byte(("FRESHGO\x00")))) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := prepareSite(ssd.OS, path, true)
			require.NoError(t, err)
			leave(s)
			require.ErrorIs(t, convertTiny(path, 1, true), ErrBusy)
			require.NoError(t, s.lock.Close()) // as the end of the process does
			_, err = Open(ssd.OS, path+partialSuffix)
			require.Error(t, err)
			require.NoError(t, convertTiny(path, 1, true))
			requireNodes(t, path, 1)
			names, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, names, 1)
		})
	}
}

// TestKilledReplacement kills a conversion between its two renames, and after them.
func TestKilledReplacement(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "g")
	require.NoError(t, convertTiny(path, 1, false))
	require.NoError(t, os.Rename(path, path+replacedSuffix))
	require.ErrorIs(t, convertTiny(path, 2, false), ErrExists, "the old store comes back first")
	requireNodes(t, path, 1)

	require.NoError(t, os.Rename(path, path+replacedSuffix))
	require.NoError(t, convertTiny(path, 2, true))
	require.NoError(t, os.MkdirAll(filepath.Join(path+replacedSuffix, "mine"), 0o700))
	require.ErrorIs(t, convertTiny(path, 3, true), ErrFormat, "a foreign directory in the way")
	require.NoError(t, os.RemoveAll(path+replacedSuffix))

	require.NoError(t, convertTiny(path+replacedSuffix, 1, false))
	require.NoError(t, convertTiny(path, 3, true))
	requireNodes(t, path, 3)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
}

// TestKilledRemoval: a conversion that is killed at any step of removing the store that it has replaced is no obstacle
// to the next, and what is left of that store is never taken for one.
func TestKilledRemoval(t *testing.T) {
	for left := range 5 {
		for _, published := range []bool{true, false} {
			path := filepath.Join(t.TempDir(), "g")
			require.NoError(t, convertTiny(path+replacedSuffix, 1, false))
			names, err := os.ReadDir(path + replacedSuffix)
			require.NoError(t, err)
			for _, name := range names[min(left, len(names)):] {
				require.NoError(t, os.Remove(filepath.Join(path+replacedSuffix, name.Name())))
			}
			if left > 0 {
				require.NoError(t, os.WriteFile(filepath.Join(path+replacedSuffix, removedName), nil, 0o600))
			}
			if published {
				require.NoError(t, convertTiny(path+".other", 2, false))
				require.NoError(t, os.Rename(path+".other", path))
			}
			require.NoError(t, convertTiny(path, 3, published))
			require.NoDirExists(t, path+replacedSuffix)
		}
	}
}

// TestRemovalThatCannotBeListed: what is left of a removed store is not called somebody else's because the disk fails.
func TestRemovalThatCannotBeListed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, os.MkdirAll(path+replacedSuffix, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path+replacedSuffix, removedName), nil, 0o600))
	fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.ReadDir, Nth: 1, Errno: syscall.EIO, Path: "*" + replacedSuffix})
	err := Convert(context.Background(), fs, tiny(1), path, ConvertOptions{})
	require.ErrorIs(t, err, syscall.EIO)
	require.NotErrorIs(t, err, ErrFormat)
	require.NoError(t, convertTiny(path, 1, false))
	require.NoDirExists(t, path+replacedSuffix)
}

// TestLockThatVanishes removes the lock file between its opening and its locking, as a conversion that ends does.
func TestLockThatVanishes(t *testing.T) {
	for _, replace := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "g")
		name := filepath.Join(path+partialSuffix, lockName)
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Lock, Nth: 1, Errno: 0, Short: 1, Hook: func() {
			require.NoError(t, os.Remove(name))
			if replace {
				require.NoError(t, os.WriteFile(name, nil, 0o600))
			}
		}})
		s, err := prepareSite(fs, path, false)
		require.NoError(t, err)
		require.Equal(t, 2, fs.Calls(faultfs.Lock), "the first lock was of a file that is gone")
		require.NoError(t, s.discard())
	}
}

func TestMissingParentAndPermission(t *testing.T) {
	dir := t.TempDir()
	require.ErrorIs(t, convertTiny(filepath.Join(dir, "no", "g"), 1, false), ErrNotFound)
	fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Mkdir, Nth: 1, Errno: syscall.EACCES})
	err := Convert(context.Background(), fs, tiny(1), filepath.Join(dir, "g"), ConvertOptions{})
	require.ErrorIs(t, err, ErrPermission)
	require.ErrorIs(t, err, syscall.EACCES)
}

// TestReplacingInALowerLayer: where an overlay lets nothing take the place of a directory, the error says what to do,
// and the store stays.
func TestReplacingInALowerLayer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, convertTiny(path, 7, false))
	refusal := faultfs.Fault{Op: faultfs.Exchange, Nth: 1, Times: faultfs.Forever, Errno: syscall.EXDEV}
	overlay := faultfs.New(ssd.OS, refusal)
	err := Convert(context.Background(), overlay, tiny(9), path, ConvertOptions{Overwrite: true})
	require.ErrorIs(t, err, syscall.EXDEV)
	require.ErrorContains(t, err, "lower layer of an overlay")
	require.ErrorContains(t, err, "write to another path")
	requireNodes(t, path, 7)
	require.NoDirExists(t, path+partialSuffix)
}
