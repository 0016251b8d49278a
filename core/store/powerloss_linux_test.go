package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// disk is a file system of its own in an image, which can lose its power.
type disk struct {
	t     *testing.T
	image string
	dir   string // where it is mounted
	homes int
}

// making gives the command and the size of each kind of file system.
var making = map[string]struct {
	bytes   int64
	command []string
}{
	"ext4": {64 << 20, []string{"mkfs.ext4", "-q", "-F"}},
	"xfs":  {320 << 20, []string{"mkfs.xfs", "-q", "-f", "-K"}}, // it makes none below 300 MiB
}

func newDisk(t *testing.T, kind string) *disk {
	t.Helper()
	home := t.TempDir()
	d := &disk{t: t, image: filepath.Join(home, "image"), dir: filepath.Join(home, "mounted")}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, making[kind].bytes))
	require.NoError(t, os.Mkdir(d.dir, 0o700))
	for _, command := range [][]string{append(making[kind].command, d.image), {"mount", "-o", "loop", d.image, d.dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a file system in an image cannot be made here: %v: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", d.dir).Run() })
	return d
}

// home makes an empty directory on the disk, in the place of the one before.
func (d *disk) home() string {
	d.t.Helper()
	require.NoError(d.t, os.RemoveAll(filepath.Join(d.dir, fmt.Sprint(d.homes))))
	d.homes++
	home := filepath.Join(d.dir, fmt.Sprint(d.homes))
	require.NoError(d.t, os.Mkdir(home, 0o700))
	return home
}

// sync makes what is on the disk durable.
func (d *disk) sync() {
	root, err := os.Open(d.dir)
	require.NoError(d.t, err)
	defer root.Close()
	require.NoError(d.t, unix.Syncfs(int(root.Fd())))
}

// shutdown is EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: the disk takes nothing any more.
const shutdown = 0x8004587d

// The two ways in which power goes: with what the journal has by then, and with what it has written out already.
const (
	journalFlushed uint32 = 1
	journalLost    uint32 = 2
)

func (d *disk) losePower(how uint32) {
	root, err := os.Open(d.dir)
	require.NoError(d.t, err)
	defer root.Close()
	// the kernel reads four bytes there during the call
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), shutdown, uintptr(unsafe.Pointer(&how)))
	require.Zero(d.t, errno)
}

// again mounts the file system after the loss, as the next start does.
func (d *disk) again() {
	d.t.Helper()
	d.run("umount", d.dir)
	// A process that began a mount namespace of its own meanwhile has a copy of the mount. While it lives, so does the
	// file system without power, and to mount the image again would give that one, which answers EIO.
	require.Eventually(d.t, func() bool { return !d.attached() }, time.Minute, time.Millisecond,
		"another process still has %s mounted, in a mount namespace of its own", d.image)
	d.run("mount", "-o", "loop", d.image, d.dir)
}

func (d *disk) run(command ...string) {
	d.t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	require.NoError(d.t, err, "%v: %s", command, out)
}

// attached reports whether a loop device has the image.
func (d *disk) attached() bool {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(d.t, err)
	return slices.ContainsFunc(backing, func(name string) bool {
		path, err := os.ReadFile(name)
		return err == nil && strings.TrimSpace(string(path)) == d.image // a device may go while we look
	})
}

// lossy are the works during which the power goes: each writes a store of 90 nodes to path.
func lossy(t *testing.T) map[string]func(fs ssd.FS, path string) error {
	t.Helper()
	ctx := context.Background()
	graph := newRandomGraph(4, 90, 900, map[string][]int64{"x": {30}}, manifest.DType_FLOAT32)
	graph.Splits["train"] = Dense(manifest.DType_INT64, []int64{2}, int64Bytes([]int64{0, 7}))
	source := filepath.Join(t.TempDir(), "source")
	require.NoError(t, Convert(ctx, ssd.OS, graph.Input, source, ConvertOptions{}))
	smaller := newRandomGraph(5, 80, 700, map[string][]int64{"x": {30}}, manifest.DType_FLOAT32)
	require.NoError(t, Convert(ctx, ssd.OS, smaller.Input, source+"80", ConvertOptions{}))
	more := newRandomGraph(6, 10, 60, map[string][]int64{"x": {30}}, manifest.DType_FLOAT32)
	growth := Growth{
		Nodes: []NodeInput{{NumNodes: 10, Tensors: more.NodeTensors}}, Edges: []EdgeInput{{EdgeIndex: more.EdgeIndex}},
	}
	open := func(fs ssd.FS, path string, work func(s *Store) error) error {
		s, err := Open(fs, path)
		if err != nil {
			return err
		}
		return errors.Join(work(s), s.Close())
	}
	from := func(fs ssd.FS, work func(s *Store) error) error { return open(fs, source, work) }
	return map[string]func(fs ssd.FS, path string) error{
		"convert": func(fs ssd.FS, path string) error {
			return Convert(ctx, fs, graph.Input, path, ConvertOptions{Overwrite: true})
		},
		"relayout": func(fs ssd.FS, path string) error {
			return from(fs, func(s *Store) error {
				return Relayout(ctx, s, path, RelayoutOptions{Order: Community, Overwrite: true})
			})
		},
		"update": func(fs ssd.FS, path string) error {
			y := NamedSource{"y", Dense(manifest.DType_UINT8, []int64{90}, make([]byte, 90))}
			changes := Changes{Nodes: []NodeChange{{Tensors: []NamedSource{y}}}}
			return from(fs, func(s *Store) error { return Update(ctx, s, path, changes, ConvertOptions{Overwrite: true}) })
		},
		"append": func(fs ssd.FS, path string) error {
			return open(fs, source+"80", func(s *Store) error {
				return Append(ctx, s, path, growth, ConvertOptions{Overwrite: true})
			})
		},
	}
}

// requireAfterLoss requires that what is at the path after a loss of power is a whole store, the new one or the one of
// 5 nodes before, or none where there was none; that the work, done again, leaves its store there and nothing else; and
// returns what was there.
func requireAfterLoss(t *testing.T, path string, replaces bool, failed error, again func() error) (found string) {
	t.Helper()
	s, err := Open(ssd.OS, path)
	switch {
	case err == nil:
		require.NoError(t, s.Verify(context.Background(), nil))
		nodes := s.EdgeTypes()[0].NumNodes
		require.Contains(t, []int64{5, 90}, nodes)
		require.True(t, nodes == 90 || replaces)
		require.True(t, nodes == 90 || failed != nil, "what was published is gone")
		found = fmt.Sprint(nodes, " nodes")
	default:
		require.ErrorIs(t, err, ErrNotFound)
		require.False(t, replaces, "neither the old store nor the new one is there")
		require.Error(t, failed, "what was published is gone")
		found = "none"
	}
	require.NoError(t, again())
	requireNodes(t, path, 90)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	names := []string{}
	for _, entry := range left {
		if entry.Name() != "lost+found" {
			names = append(names, entry.Name())
		}
	}
	require.Equal(t, []string{filepath.Base(path)}, names)
	return found
}

// callsOf returns how many calls to the file system a work makes.
func callsOf(t *testing.T, work func(fs ssd.FS, path string) error, replaces bool) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g")
	if replaces {
		require.NoError(t, convertTiny(path, 5, false))
	}
	counted := faultfs.New(ssd.OS)
	require.NoError(t, work(counted, path))
	return counted.Calls(faultfs.Any)
}

// TestPowerLoss takes the power away at a call to the file system, at every call with FRESHGO_TEST_POWERLOSS=all
// (make powerloss) and at some drawn ones without. Afterwards there is a whole store at the path: the new one, or the
// one before, or none where there was none. What is left beside it the next conversion removes.
func TestPowerLoss(t *testing.T) {
	rng := explore.Rand(t, 3, 7)
	all := os.Getenv("FRESHGO_TEST_POWERLOSS") == "all"
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk(t, kind)
			losses, outcomes := 0, map[string]int{}
			for name, work := range lossy(t) {
				for _, replaces := range []bool{false, true} {
					calls := callsOf(t, work, replaces)
					nths := []int{1 + rng.IntN(calls), calls - rng.IntN(calls/4)} // towards the end it is published
					if all {
						nths = nil
						for nth := 1; nth <= calls; nth++ {
							nths = append(nths, nth, nth) // in both ways
						}
					}
					for i, nth := range nths {
						how := []uint32{journalFlushed, journalLost}[i%2]
						losses++
						t.Run(fmt.Sprint(name, " replaces ", replaces, " call ", nth, " journal ", how), func(t *testing.T) {
							d.t = t
							path := filepath.Join(d.home(), "g")
							if replaces {
								require.NoError(t, convertTiny(path, 5, false))
							}
							d.sync()
							var once sync.Once
							fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever,
								Errno: syscall.EIO, Hook: func() { once.Do(func() { d.losePower(how) }) }})
							failed := work(fs, path)
							d.again()
							again := func() error { return work(ssd.OS, path) }
							outcomes[requireAfterLoss(t, path, replaces, failed, again)]++
						})
					}
				}
			}
			t.Logf("%d losses of power: %v", losses, outcomes)
		})
	}
}

// TestLostWrites takes the power away from a file system that has kept of each file and directory only what was synced,
// and some of what came after it, with the last write torn: stricter than any disk, and without one. It is done at
// every call with FRESHGO_TEST_POWERLOSS=all, several times, and at drawn ones without.
func TestLostWrites(t *testing.T) {
	rng := explore.Rand(t, 3, 8)
	all := os.Getenv("FRESHGO_TEST_POWERLOSS") == "all"
	losses, lost, outcomes := 0, 0, map[string]int{}
	for name, work := range lossy(t) {
		for _, replaces := range []bool{false, true} {
			calls := callsOf(t, work, replaces)
			rounds := 40
			if all {
				rounds = 20 * calls
			}
			for i := range explore.Rounds(rounds) {
				nth := 1 + i%(calls+1) // the last: after the work has ended
				if !all {
					nth = calls + 1 - int(float64(calls)*rng.Float64()*rng.Float64()) // towards the end it is published
				}
				t.Run(fmt.Sprint(name, " replaces ", replaces, " call ", nth, " round ", i), func(t *testing.T) {
					attic, dir := t.TempDir(), t.TempDir()
					path := filepath.Join(dir, "g")
					if replaces {
						require.NoError(t, convertTiny(path, 5, false))
					}
					disk := faultfs.NewLosing(attic)
					fs := faultfs.New(disk, faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO})
					failed := work(fs, path)
					n, err := disk.Lose(rng)
					require.NoError(t, err)
					losses, lost = losses+1, lost+n
					again := func() error { return work(ssd.OS, path) }
					outcomes[requireAfterLoss(t, path, replaces, failed, again)]++
				})
			}
		}
	}
	t.Logf("%d losses of power took back %d changes: %v", losses, lost, outcomes)
	require.Positive(t, lost)
}
