package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// fenced is the file system with a witness: no file is opened outside a directory, whatever links lie in it.
type fenced struct {
	ssd.FS
	t   *testing.T
	dir string
}

func (f fenced) Open(path string, flag int, perm uint32) (ssd.File, error) {
	file, err := f.FS.Open(path, flag, perm)
	if err == nil {
		real, readErr := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		require.NoError(f.t, readErr)
		require.True(f.t, strings.HasPrefix(real, f.dir), "%s is %s", path, real)
	}
	return file, err
}

// strangers returns functions that each put something other than a file at a path; target is a file elsewhere.
func strangers(target string) map[string]func(path string) error {
	return map[string]func(path string) error{
		"link to a file":     func(path string) error { return os.Symlink(target, path) },
		"link to nothing":    func(path string) error { return os.Symlink(target+"-gone", path) },
		"link to itself":     func(path string) error { return os.Symlink(path, path) },
		"link to a device":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"link to the parent": func(path string) error { return os.Symlink("..", path) },
		"pipe":               func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"socket":             func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) },
		"directory":          func(path string) error { return os.Mkdir(path, 0o700) },
	}
}

// TestStrangersInAStore puts links, pipes and devices in the place of each file, before the store is opened and after.
// Nothing outside the directory is opened, nobody waits for the other end of a pipe, and the error names the file.
func TestStrangersInAStore(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	src := sampleStore(t)
	path := filepath.Join(dir, "g")
	require.NoError(t, os.Rename(src, path))
	fs := fenced{ssd.OS, t, dir}
	ctx := context.Background()
	for name, data := range readFiles(t, path) {
		file := filepath.Join(path, name)
		target := filepath.Join(outside, name) // the very bytes, so that no checksum tells
		require.NoError(t, os.WriteFile(target, data, 0o600))
		for what, put := range strangers(target) {
			s, err := Open(fs, path)
			require.NoError(t, err)
			require.NoError(t, os.Remove(file))
			require.NoError(t, put(file))
			_, err = Open(fs, path)
			var damage *CorruptError
			require.ErrorAs(t, err, &damage, "%s for %s", what, name)
			require.Equal(t, file, damage.Path)
			require.Error(t, s.Verify(ctx, nil), "%s for %s", what, name)
			again := filepath.Join(dir, "again")
			require.Error(t, Relayout(ctx, s, again, RelayoutOptions{Order: Community}), "%s for %s", what, name)
			require.NoDirExists(t, again)
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.WriteFile(file, data, 0o600))
		}
		after, err := os.ReadFile(target)
		require.NoError(t, err)
		require.Equal(t, data, after)
	}
	require.NoError(t, requireNodes(t, path, 3000).Close())
}

// TestStrangersWhereAStoreIsWritten: a name that a conversion writes, beside the store or in it, may exist already as a
// link. Nothing is written through it, and nothing removed behind it.
func TestStrangersWhereAStoreIsWritten(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "g")
	precious := func(name, data string) string {
		file := filepath.Join(outside, name)
		require.NoError(t, os.WriteFile(file, []byte(data), 0o600))
		return file
	}
	key := precious("key", "a key")
	removed := precious(removedName, "") // which would make the directory one that is being removed
	lock := precious(lockName, "")       // or one in which a killed conversion left something
	unharmed := func() {
		for file, want := range map[string]string{key: "a key", removed: "", lock: ""} {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, want, string(data), file)
		}
		names, err := os.ReadDir(outside)
		require.NoError(t, err)
		require.Len(t, names, 3)
	}
	fs := fenced{ssd.OS, t, dir}
	convert := func() error {
		return Convert(context.Background(), fs, tiny(3), path, ConvertOptions{Overwrite: true})
	}
	for _, at := range []string{path + partialSuffix, path + replacedSuffix} {
		for _, target := range []string{outside, outside + "-gone"} {
			require.NoError(t, convert())
			require.NoError(t, os.Symlink(target, at))
			require.ErrorIs(t, convert(), ErrExists)
			unharmed()
			require.NoError(t, os.Remove(at))
			requireNodes(t, path, 3)
		}
	}
	for what, put := range strangers(key) {
		require.NoError(t, os.Mkdir(path+partialSuffix, 0o700))
		require.NoError(t, put(filepath.Join(path+partialSuffix, lockName)))
		require.Error(t, convert(), what)
		unharmed()
		require.NoError(t, os.RemoveAll(path+partialSuffix))
		requireNodes(t, path, 3)

		s, err := Open(fs, path)
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(filepath.Join(path, lockName))) // of the Addition before
		require.NoError(t, put(filepath.Join(path, lockName)))
		_, err = s.BeginAddition()
		require.Error(t, err, what)
		unharmed()
		require.NoError(t, os.Remove(filepath.Join(path, lockName)))

		a, err := s.BeginAddition()
		require.NoError(t, err)
		require.NoError(t, put(filepath.Join(path, addedPrefix+"0_x.bin")))
		w, err := a.Create("x", manifest.DType_FLOAT32, 1, ssd.PageBytes, mem.NewBudget(0))
		require.NoError(t, err)
		require.NoError(t, w.WriteRows(make([]byte, 12)))
		_, array, err := w.Finish(3)
		require.NoError(t, err)
		require.Equal(t, addedPrefix+"1_x.bin", array.File, "the next name is free")
		require.NoError(t, a.Discard())
		unharmed()
		require.NoError(t, os.Remove(filepath.Join(path, addedPrefix+"0_x.bin")))
	}
}

// TestLinksInThePlaceOfAStore: a store does not take the place of a link, and what the link leads to stays whole, also
// where the link is put there while the store is written.
func TestLinksInThePlaceOfAStore(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "g"), filepath.Join(dir, "there")
	require.NoError(t, Convert(context.Background(), ssd.OS, tiny(5), target, ConvertOptions{}))
	for _, to := range []string{target, target + "-gone"} {
		for _, overwrite := range []bool{false, true} {
			require.NoError(t, os.Symlink(to, path))
			err := Convert(context.Background(), ssd.OS, tiny(3), path, ConvertOptions{Overwrite: overwrite})
			require.ErrorIs(t, err, ErrExists)
			require.NoError(t, os.Remove(path))

			s, err := prepareSite(ssd.OS, path, overwrite)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(to, path))
			require.ErrorIs(t, s.publish(overwrite), ErrExists)
			require.NoError(t, s.discard())
			require.NoError(t, os.Remove(path))
			requireNodes(t, target, 5)
			names, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, names, 1, "nothing is left beside it")
		}
	}
}

// TestNamesBecomeNoPaths: whatever tensors, splits and types are called, their files lie in the store.
func TestNamesBecomeNoPaths(t *testing.T) {
	dir := t.TempDir()
	fs := fenced{ssd.OS, t, dir}
	names := []string{"..", ".", "/", "/etc/passwd", "../../x", "a/b", "lock", "manifest.pb", "a\x00b", "\xff\xfe", "ü",
		" ", strings.Repeat("n", 10_000), "CON", "x.bin", "%s%d", "-rf"}
	for _, name := range names {
		path := filepath.Join(dir, "g")
		one := Dense(manifest.DType_INT8, []int64{1}, []byte{7})
		in := Input{
			NodeTypes: []NodeInput{{Name: name, NumNodes: 1, Tensors: []NamedSource{{name, one}},
				Splits: map[string]Source{name: Dense(manifest.DType_BOOL, []int64{1}, []byte{1})}}},
			EdgeTypes: []EdgeInput{{Source: name, Relation: name, Target: name, EdgeIndex: edgesOf([]int64{0}, []int64{0}),
				Tensors: []NamedSource{{name, one}}}},
		}
		err := Convert(context.Background(), fs, in, path, ConvertOptions{})
		if name == "\xff\xfe" { // the manifest holds UTF-8
			require.Error(t, err)
			require.NoDirExists(t, path+partialSuffix)
			continue
		}
		require.NoError(t, err, "%q", name)
		s, err := Open(fs, path)
		require.NoError(t, err, "%q", name)
		require.NoError(t, s.Verify(context.Background(), nil))
		node, err := s.NodeType(name)
		require.NoError(t, err)
		ids, err := node.LoadSplit(context.Background(), name)
		require.NoError(t, err)
		require.Equal(t, []int64{0}, ids)
		require.Equal(t, name, node.Tensors[0].Name)
		require.NoError(t, os.RemoveAll(path))
		requireNothing(t, dir, "%q", name)
	}
}
