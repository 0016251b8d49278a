package store

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// disk is an ext4 file system of its own in an image, which can lose its power.
type disk struct {
	t     *testing.T
	image string
	dir   string // where it is mounted
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	home := t.TempDir()
	d := &disk{t: t, image: filepath.Join(home, "image"), dir: filepath.Join(home, "mounted")}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, 16<<20))
	require.NoError(t, os.Mkdir(d.dir, 0o700))
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", d.image}, {"mount", "-o", "loop", d.image, d.dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a file system in an image cannot be made here: %v: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", d.dir).Run() })
	return d
}

// shutdown is EXT4_IOC_SHUTDOWN: the disk takes nothing any more.
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
	for _, command := range [][]string{{"umount", d.dir}, {"mount", "-o", "loop", d.image, d.dir}} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(d.t, err, "%v: %s", command, out)
	}
}

// TestPowerLoss takes the power away at a call to the file system, at every call with FRESHGO_TEST_POWERLOSS=all
// (make powerloss) and at some drawn ones without. Afterwards there is a whole store at the path: the new one, or the
// one before, or none where there was none. What is left beside it the next conversion removes.
func TestPowerLoss(t *testing.T) {
	ctx := context.Background()
	before, after := tiny(5), tiny(9)
	source := filepath.Join(t.TempDir(), "source")
	require.NoError(t, Convert(ctx, ssd.OS, after, source, ConvertOptions{}))
	works := map[string]func(fs ssd.FS, path string) error{
		"convert": func(fs ssd.FS, path string) error {
			return Convert(ctx, fs, after, path, ConvertOptions{Overwrite: true})
		},
		"relayout": func(fs ssd.FS, path string) error {
			s, err := Open(fs, source)
			if err != nil {
				return err
			}
			return Relayout(ctx, s, path, RelayoutOptions{Order: Community, Overwrite: true})
		},
	}
	rng := explore.Rand(t, 3, 7)
	all := os.Getenv("FRESHGO_TEST_POWERLOSS") == "all"
	losses, outcomes := 0, map[string]int{}
	for name, work := range works {
		for _, replaces := range []bool{false, true} {
			// What a run without a loss calls, and in which of them it publishes.
			counted := faultfs.New(ssd.OS)
			rehearsal := filepath.Join(t.TempDir(), "g")
			if replaces {
				require.NoError(t, Convert(ctx, ssd.OS, before, rehearsal, ConvertOptions{}))
			}
			require.NoError(t, work(counted, rehearsal))
			calls := counted.Calls(faultfs.Any)
			var nths []int
			for nth := 1; nth <= calls; nth++ {
				nths = append(nths, nth)
			}
			if !all {
				nths = []int{1 + rng.IntN(calls), calls - rng.IntN(calls/4)} // towards the end it is published
			}
			for i, nth := range nths {
				for _, how := range []uint32{journalFlushed, journalLost} {
					if !all && (i == 0) == (how == journalFlushed) {
						continue
					}
					losses++
					t.Run(fmt.Sprint(name, " replaces ", replaces, " call ", nth, " journal ", how), func(t *testing.T) {
						d := newDisk(t)
						path := filepath.Join(d.dir, "g")
						if replaces {
							require.NoError(t, Convert(ctx, ssd.OS, before, path, ConvertOptions{}))
							unix.Sync()
						}
						var once sync.Once
						fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever,
							Errno: syscall.EIO, Hook: func() { once.Do(func() { d.losePower(how) }) }})
						failed := work(fs, path)
						d.again()
						s, err := Open(ssd.OS, path)
						switch {
						case err == nil:
							require.NoError(t, s.Verify(ctx, nil))
							nodes := s.Topology().NumNodes
							require.Contains(t, []int64{5, 9}, nodes)
							require.True(t, nodes == 9 || replaces)
							require.True(t, nodes == 9 || failed != nil, "what was published is gone")
							outcomes[fmt.Sprint(nodes, " nodes")]++
						default:
							require.ErrorIs(t, err, ErrNotFound)
							require.False(t, replaces, "neither the old store nor the new one is there")
							require.Error(t, failed, "what was published is gone")
							outcomes["none"]++
						}
						require.NoError(t, work(ssd.OS, path))
						requireNodes(t, path, 9)
						left, err := os.ReadDir(d.dir)
						require.NoError(t, err)
						require.Len(t, left, 2, "the store, and lost+found")
					})
				}
			}
		}
	}
	t.Logf("%d losses of power: %v", losses, outcomes)
}
